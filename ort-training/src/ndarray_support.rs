//! Conversions from and to `ndarray` arrays.

use ndarray::{ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn, OwnedRepr};

use crate::element::TensorElement;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, TensorRef};

fn ensure_unpacked<T: TensorElement>() -> Result<()> {
    if T::storage_len(2) == 2 {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "array: expected one element for each item, found the packed type {}",
        T::ELEMENT_TYPE
    )))
}

fn not_standard(shape: &[usize], strides: &[isize]) -> Error {
    Error::invalid_argument(format!(
        "array of shape {shape:?}: expected row-major elements without gaps, found strides {strides:?}; \
         call `as_standard_layout` first"
    ))
}

impl<T: TensorElement> Tensor<T> {
    /// Takes an array; without copying when its elements lie row-major without gaps and it owns all of them.
    ///
    /// # Errors
    /// Packed 4-bit elements.
    pub fn from_array<D: Dimension>(array: ArrayBase<OwnedRepr<T>, D>) -> Result<Self> {
        ensure_unpacked::<T>()?;
        let shape = array.shape().to_vec();
        let count: usize = shape.iter().product();
        if !array.is_standard_layout() {
            let data = array.iter().copied().collect();
            return Self::from_vec(shape, data);
        }
        let (data, offset) = array.into_raw_vec_and_offset();
        match offset.unwrap_or(0) {
            0 if data.len() == count => Self::from_vec(shape, data),
            offset => Self::from_slice(shape, &data[offset..offset + count]),
        }
    }

    /// The elements as an array, without copying.
    ///
    /// # Errors
    /// Packed 4-bit elements.
    pub fn array_view(&self) -> Result<ArrayViewD<'_, T>> {
        ensure_unpacked::<T>()?;
        ArrayViewD::from_shape(IxDyn(self.shape()), self.data())
            .map_err(|error| Error::invalid_argument(format!("array: {error}")))
    }

    /// The elements as an array of its own; without copying when they came from a `Vec`.
    ///
    /// # Errors
    /// Packed 4-bit elements.
    pub fn into_array(self) -> Result<ArrayD<T>> {
        ensure_unpacked::<T>()?;
        let shape = self.shape().to_vec();
        ArrayD::from_shape_vec(IxDyn(&shape), self.into_vec())
            .map_err(|error| Error::invalid_argument(format!("array: {error}")))
    }
}

impl<'a, T: TensorElement> TensorRef<'a, T> {
    /// Borrows the elements of an array or view.
    ///
    /// # Errors
    /// Elements that do not lie row-major without gaps; packed 4-bit elements.
    pub fn from_array<S: Data<Elem = T>, D: Dimension>(array: &'a ArrayBase<S, D>) -> Result<Self> {
        ensure_unpacked::<T>()?;
        let data = array
            .as_slice()
            .ok_or_else(|| not_standard(array.shape(), array.strides()))?;
        Self::new(array.shape(), data)
    }
}
