//! An array made to fit an input: its element type, and the shape where that is unambiguous.

use anyhow::{Result, bail};
use ort_training::{Dimension, IoInfo};

use super::array::Array;

/// Converts `array` to what `spec` declares. The first axis counts rows; the others are rearranged only when their number
/// is another one than the input's and the sizes agree.
pub fn fit(array: Array, spec: &IoInfo) -> Result<Array> {
    let Some(element_type) = spec.element_type() else {
        bail!("expected an input that is a tensor, which this one is not");
    };
    if array.shape.is_empty() {
        bail!("expected an array whose first axis counts the rows, found a single number");
    }
    let array = array.cast(element_type)?;
    let Some(dimensions) = spec.dimensions() else {
        return Ok(array);
    };
    let Some((_, wanted)) = dimensions.split_first() else {
        bail!(
            "expected an input whose first axis counts the rows, but the model takes a single number"
        );
    };
    let found = &array.shape[1..];
    if wanted.len() == found.len() {
        for (axis, (dimension, &size)) in wanted.iter().zip(found).enumerate() {
            if matches!(dimension, Dimension::Fixed(fixed) if *fixed != size) {
                bail!(
                    "expected {dimension} along axis {}, found {size} (an array of shape {:?})",
                    axis + 1,
                    array.shape
                );
            }
        }
        return Ok(array);
    }
    let Some(row) = row_shape(wanted, array.row_len()) else {
        bail!(
            "expected rows of shape [{}], found {} elements in a row (an array of shape {:?})",
            wanted
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            array.row_len(),
            array.shape
        );
    };
    let shape = array.shape[..1].iter().copied().chain(row).collect();
    Array::new(shape, array.elements)
}

/// The shape of a row of `len` elements; none where it does not fit or more than one size is open.
fn row_shape(wanted: &[Dimension], len: usize) -> Option<Vec<usize>> {
    let fixed: usize = wanted
        .iter()
        .filter_map(|dimension| match dimension {
            Dimension::Fixed(size) => Some(*size),
            _ => None,
        })
        .product();
    let open = wanted
        .iter()
        .filter(|dimension| !matches!(dimension, Dimension::Fixed(_)))
        .count();
    let rest = match open {
        0 if fixed == len => 1,
        1 if fixed > 0 && len % fixed == 0 => len / fixed,
        _ => return None,
    };
    Some(
        wanted
            .iter()
            .map(|dimension| match dimension {
                Dimension::Fixed(size) => *size,
                _ => rest,
            })
            .collect(),
    )
}
