//! Sizes that a model computes from shapes: what exporters write for a resizing to the size of another value.

use super::super::analysis::{Types, constant};
use super::super::onnx::{DimensionValue, GraphProto, NodeProto};

/// One number of a computed shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Known(i64),
    /// A dimension that the model names but does not fix.
    Named(String),
    /// A dimension of a value, not known and without a name.
    Of(String, usize),
}

/// Operators that [`sizes`] follows.
pub(super) fn is_followed(node: &NodeProto) -> bool {
    matches!(
        node.op(),
        "Constant"
            | "Shape"
            | "Slice"
            | "Gather"
            | "Unsqueeze"
            | "Squeeze"
            | "Cast"
            | "Identity"
            | "Concat"
    )
}

/// Dimension `axis` of a value.
pub(super) fn size_of(types: &Types, value: &str, axis: usize) -> Option<Size> {
    Some(match &types.dims(value)?.get(axis)?.value {
        Some(DimensionValue::DimValue(n)) => Size::Known(*n),
        Some(DimensionValue::DimParam(name)) if !name.is_empty() => Size::Named(name.clone()),
        _ => Size::Of(value.to_owned(), axis),
    })
}

/// The numbers of an integer vector (or scalar), as far as they follow from shapes.
pub(super) fn sizes(graph: &GraphProto, types: &Types, name: &str) -> Option<Vec<Size>> {
    if let Some(values) = constant(graph, name) {
        return Some(values.ints()?.iter().map(|&n| Size::Known(n)).collect());
    }
    let node = graph.node.iter().find(|n| n.output_name(0) == Some(name))?;
    let input = |index: usize| node.input_name(index);
    let follow = |index: usize| sizes(graph, types, input(index)?);
    let ints = |index: usize| constant(graph, input(index)?)?.ints().map(<[i64]>::to_vec);
    match node.op() {
        "Shape" => {
            let value = input(0)?;
            let rank = types.rank(value)? as i64;
            let clip = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
            let (start, end) = (
                clip(node.int("start").unwrap_or(0)),
                clip(node.int("end").unwrap_or(rank)),
            );
            (start..end)
                .map(|axis| size_of(types, value, axis))
                .collect()
        }
        "Cast" | "Identity" | "Unsqueeze" | "Squeeze" => follow(0),
        "Concat" => {
            let parts: Option<Vec<_>> = (0..node.input.len()).map(follow).collect();
            Some(parts?.concat())
        }
        "Gather" => {
            let all = follow(0)?;
            let at = |index: i64| {
                usize::try_from(if index < 0 {
                    index + all.len() as i64
                } else {
                    index
                })
                .ok()
            };
            ints(1)?
                .into_iter()
                .map(|index| all.get(at(index)?).cloned())
                .collect()
        }
        "Slice" => {
            let all = follow(0)?;
            let (start, end) = (*ints(1)?.first()?, *ints(2)?.first()?);
            if input(4).is_some() && ints(4)? != [1] {
                return None;
            }
            let length = all.len() as i64;
            let clip = |at: i64| {
                (if at < 0 {
                    at.saturating_add(length)
                } else {
                    at
                })
                .clamp(0, length) as usize
            };
            Some(all.get(clip(start)..clip(end))?.to_vec())
        }
        _ => None,
    }
}
