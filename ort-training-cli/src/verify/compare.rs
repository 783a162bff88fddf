//! Two arrays, element by element.

use anyhow::{Result, bail};

use crate::data::{Array, Elements, Scalar, unravel};
use crate::table::shape;

#[derive(Clone, Copy)]
pub struct Tolerance {
    pub relative: f64,
    pub absolute: f64,
    /// Whether the relative part is of the array's largest element, not of each.
    of_largest: bool,
}

impl Tolerance {
    pub fn new(relative: f64, absolute: f64) -> Result<Self> {
        for (option, value) in [("--rtol", relative), ("--atol", absolute)] {
            if !(value.is_finite() && value >= 0.0) {
                bail!("{option}: expected a finite number, 0 or more, found {value}");
            }
        }
        Ok(Self {
            relative,
            absolute,
            of_largest: false,
        })
    }

    /// The same numbers for gradients: elements of one are sums in which terms cancel, so that their errors are parts of
    /// the largest element and not of their own size. (In single precision, PyTorch's own are that far from double's.)
    pub fn for_gradients(self) -> Self {
        Self {
            of_largest: true,
            ..self
        }
    }
}

pub enum Found {
    /// Types or shapes differ, so that no elements can be compared.
    Mismatch(String),
    Compared(Comparison),
}

pub struct Comparison {
    /// The largest |found - reference|.
    pub largest: f64,
    /// The largest |found - reference| / |reference|.
    pub relative: f64,
    /// How many elements differ by more than the tolerance.
    pub outside: usize,
    /// The element that exceeds its tolerance most, or comes closest to it; none in an empty array.
    pub worst: Option<Worst>,
}

pub struct Worst {
    pub index: Vec<usize>,
    pub found: Scalar,
    pub reference: Scalar,
    pub difference: f64,
    pub allowed: f64,
    /// The difference in units of what is allowed.
    pub excess: f64,
}

pub fn compare(found: &Array, reference: &Array, tolerance: &Tolerance) -> Found {
    let (a, b) = (
        found.elements.element_type(),
        reference.elements.element_type(),
    );
    if a != b {
        return Found::Mismatch(format!("type: found {a}, reference {b}"));
    }
    if found.shape != reference.shape {
        return Found::Mismatch(format!(
            "shape: found {}, reference {}",
            shape(&found.shape),
            shape(&reference.shape)
        ));
    }
    let mut comparison = Comparison {
        largest: 0.0,
        relative: 0.0,
        outside: 0,
        worst: None,
    };
    let largest = tolerance.of_largest.then(|| largest(&reference.elements));
    for at in 0..found.elements.len() {
        let (a, b) = (found.elements.get(at), reference.elements.get(at));
        let (difference, allowed) = difference(&a, &b, tolerance, largest);
        let magnitude = b.as_f64().unwrap_or_default().abs();
        comparison.largest = comparison.largest.max(difference);
        if difference > 0.0 {
            comparison.relative = comparison.relative.max(difference / magnitude);
        }
        comparison.outside += usize::from(difference > allowed);
        let excess = if difference == 0.0 {
            0.0
        } else {
            difference / allowed
        };
        if comparison
            .worst
            .as_ref()
            .is_none_or(|worst| excess > worst.excess)
        {
            comparison.worst = Some(Worst {
                index: unravel(at, &found.shape),
                found: a,
                reference: b,
                difference,
                allowed,
                excess,
            });
        }
    }
    Found::Compared(comparison)
}

/// How far two elements are apart, and how far they may be. What is not a number only equals itself, and infinity only
/// its own sign.
fn difference(
    found: &Scalar,
    reference: &Scalar,
    tolerance: &Tolerance,
    largest: Option<f64>,
) -> (f64, f64) {
    let allowance = |reference: f64| {
        let magnitude = Some(reference.abs()).filter(|size| size.is_finite());
        tolerance.absolute + tolerance.relative * largest.or(magnitude).unwrap_or_default()
    };
    match (found, reference) {
        (Scalar::Float(a), Scalar::Float(b)) => {
            if a == b || (a.is_nan() && b.is_nan()) {
                (0.0, allowance(*b))
            } else if a.is_finite() && b.is_finite() {
                ((a - b).abs(), allowance(*b))
            } else {
                (f64::INFINITY, 0.0)
            }
        }
        (Scalar::Int(a), Scalar::Int(b)) => ((a - b).unsigned_abs() as f64, 0.0),
        (a, b) => (f64::from(u8::from(a != b)), 0.0),
    }
}

/// The largest finite size of an element.
fn largest(elements: &Elements) -> f64 {
    (0..elements.len())
        .filter_map(|at| elements.get(at).as_f64())
        .map(f64::abs)
        .filter(|size| size.is_finite())
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f64]) -> Array {
        Array::new(vec![values.len()], Elements::F64(values.to_vec())).unwrap()
    }

    fn compared(a: &[f64], b: &[f64], relative: f64, absolute: f64) -> Comparison {
        let tolerance = Tolerance::new(relative, absolute).unwrap();
        match compare(&floats(a), &floats(b), &tolerance) {
            Found::Compared(comparison) => comparison,
            Found::Mismatch(text) => panic!("{text}"),
        }
    }

    #[test]
    fn the_worst_is_the_one_furthest_outside_its_own_tolerance() {
        // 1000 may be off by 1, 1 by 0.001: the smaller difference is the worse one.
        let comparison = compared(&[1000.5, 1.1], &[1000.0, 1.0], 1e-3, 0.0);
        assert_eq!(comparison.outside, 1);
        assert_eq!(comparison.largest, 0.5);
        assert_eq!(comparison.worst.unwrap().index, [1]);
    }

    #[test]
    fn gradients_are_measured_by_their_largest_element() {
        let tolerance = Tolerance::new(1e-3, 0.0).unwrap();
        let outside = |tolerance: &Tolerance, a: &[f64]| match compare(
            &floats(a),
            &floats(&[1000.0, 1.0]),
            tolerance,
        ) {
            Found::Compared(comparison) => comparison.outside,
            Found::Mismatch(text) => panic!("{text}"),
        };
        assert_eq!(outside(&tolerance, &[1000.0, 1.9]), 1);
        assert_eq!(outside(&tolerance.for_gradients(), &[1000.0, 1.9]), 0);
        assert_eq!(outside(&tolerance.for_gradients(), &[1000.0, 2.1]), 1);
    }

    #[test]
    fn numbers_that_are_none() {
        let nan = f64::NAN;
        let inf = f64::INFINITY;
        assert_eq!(compared(&[nan, inf], &[nan, inf], 0.0, 0.0).outside, 0);
        let tolerant = compared(&[nan, 1.0, inf, 1.0], &[1.0, nan, -inf, inf], 1.0, 1e9);
        assert_eq!(tolerant.outside, 4);
    }

    #[test]
    fn integers_have_no_tolerance() {
        let ints = |v: i64| Array::new(vec![1], Elements::I64(vec![v])).unwrap();
        let tolerance = Tolerance::new(1.0, 1.0).unwrap();
        let Found::Compared(same) = compare(&ints(i64::MAX), &ints(i64::MAX), &tolerance) else {
            panic!()
        };
        let Found::Compared(off) = compare(&ints(i64::MAX), &ints(i64::MAX - 1), &tolerance) else {
            panic!()
        };
        assert_eq!((same.outside, off.outside), (0, 1));
        assert!(matches!(
            compare(&ints(1), &floats(&[1.0]), &tolerance),
            Found::Mismatch(_)
        ));
    }

    #[test]
    fn tolerances_are_checked() {
        assert!(Tolerance::new(-1.0, 0.0).is_err() && Tolerance::new(0.0, f64::NAN).is_err());
    }
}
