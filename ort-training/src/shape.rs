//! Shapes: checked arithmetic on dimensions.

use std::fmt;

use crate::error::{Error, Result};

/// The number of elements of `shape`; 1 for a scalar, whose shape is empty.
///
/// # Errors
/// The product overflows, or a dimension does not fit ONNX Runtime's signed 64-bit integers.
pub(crate) fn element_count(shape: &[usize]) -> Result<usize> {
    let mut count = 1usize;
    // A zero anywhere makes the product zero, but ONNX Runtime multiplies from the left and reports an overflow on the
    // way; the check does the same.
    for &dimension in shape {
        if i64::try_from(dimension).is_err() {
            return Err(overflow(shape));
        }
        count = count
            .checked_mul(dimension)
            .ok_or_else(|| overflow(shape))?;
    }
    if count > isize::MAX as usize {
        return Err(overflow(shape));
    }
    Ok(count)
}

fn overflow(shape: &[usize]) -> Error {
    Error::invalid_argument(format!(
        "shape {}: expected a number of elements that fits memory, found a product that overflows",
        Dimensions(shape)
    ))
}

/// The dimensions as the C API wants them. Call after [`element_count`] accepted them.
pub(crate) fn to_i64(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|&dimension| dimension as i64).collect()
}

/// Shows a shape as `[2, 3]`.
pub(crate) struct Dimensions<'a>(pub(crate) &'a [usize]);

impl fmt::Display for Dimensions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, dimension) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dimension}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(element_count(&[]).unwrap(), 1);
        assert_eq!(element_count(&[2, 3]).unwrap(), 6);
        assert_eq!(element_count(&[2, 0, 3]).unwrap(), 0);
    }

    #[test]
    fn overflows_are_errors() {
        for shape in [
            &[usize::MAX, 2][..],
            &[1 << 32, 1 << 32],
            &[usize::MAX],
            &[1 << 62, 2],
        ] {
            let error = element_count(shape).unwrap_err();
            assert!(error.to_string().contains("overflows"), "{error}");
        }
    }
}
