//! What was compared, as a table, the worst element, and a verdict.

use anyhow::Result;

use super::compare::{Comparison, Found, Tolerance, compare};
use crate::data::Array;
use crate::table::{align_right, say, shape, table, thousands};

/// What is compared with what.
pub struct Pair<'a> {
    /// `output`, `loss` or `gradient`.
    pub kind: &'static str,
    pub name: String,
    pub found: &'a Array,
    /// None when the reference does not have it.
    pub reference: Option<&'a Array>,
}

/// Compares all pairs and says how they differ; whether all agree. `heading` stands over their names.
pub fn report(heading: &'static str, pairs: &[Pair<'_>], tolerance: &Tolerance) -> Result<bool> {
    let mut rows = table([
        heading,
        "type",
        "shape",
        "elements",
        "largest difference",
        "relative",
        "outside",
    ]);
    let (mut agree, mut elements, mut outside) = (true, 0, 0);
    let mut worst: Option<(&Pair<'_>, Comparison)> = None;
    for pair in pairs {
        let mut row = vec![
            pair.name.clone(),
            pair.found.elements.element_type().to_string(),
            shape(&pair.found.shape),
            thousands(pair.found.elements.len() as u64),
        ];
        match pair.reference.map(|other| match pair.kind {
            "gradient" => compare(pair.found, other, &tolerance.for_gradients()),
            _ => compare(pair.found, other, tolerance),
        }) {
            None => row.push("not in the reference".to_owned()),
            Some(Found::Mismatch(text)) => {
                agree = false;
                row.push(text);
            }
            Some(Found::Compared(comparison)) => {
                row.extend([
                    format!("{:.3e}", comparison.largest),
                    format!("{:.3e}", comparison.relative),
                    thousands(comparison.outside as u64),
                ]);
                agree &= comparison.outside == 0;
                elements += pair.found.elements.len();
                outside += comparison.outside;
                let excess = |c: &Comparison| c.worst.as_ref().map_or(-1.0, |w| w.excess);
                if worst
                    .as_ref()
                    .is_none_or(|(_, before)| excess(&comparison) > excess(before))
                {
                    worst = Some((pair, comparison));
                }
            }
        }
        rows.add_row(row);
    }
    align_right(&mut rows, &[3, 4, 5, 6]);
    say(rows)?;
    if let Some((
        pair,
        Comparison {
            worst: Some(worst), ..
        },
    )) = &worst
    {
        say(format!(
            "worst element: {} '{}' at {}: found {}, reference {}, difference {:.6e}, allowed {:.6e}",
            pair.kind,
            pair.name,
            shape(&worst.index),
            worst.found,
            worst.reference,
            worst.difference,
            worst.allowed
        ))?;
    }
    say(format!(
        "{}: {} of {} elements outside rtol {:e}, atol {:e}",
        if agree { "agree" } else { "differ" },
        thousands(outside as u64),
        thousands(elements as u64),
        tolerance.relative,
        tolerance.absolute
    ))?;
    Ok(agree)
}
