//! Tensors in host memory whose element type is known at compile time.

use std::ffi::{CString, c_char};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::api::call;
use crate::element::{ElementType, TensorElement};
use crate::error::{Error, Result};
use crate::shape::{self, Dimensions};
use crate::text::c_string;
use crate::value::{Access, Value};

/// A tensor in host memory that owns its elements (wraps `OrtValue`).
///
/// Elements lie in row-major order. A scalar has the empty shape. A dimension may be zero. Threads as for [`Value`].
pub struct Tensor<T: TensorElement> {
    value: Value,
    elements: PhantomData<T>,
}

/// A vector taken apart, so that only the `OrtValue`'s pointer refers to the elements until it is put together again.
struct Parts<T> {
    data: *mut T,
    len: usize,
    capacity: usize,
}

// SAFETY: owns its elements, as a Vec does.
unsafe impl<T: Send> Send for Parts<T> {}
// SAFETY: hands out nothing.
unsafe impl<T: Sync> Sync for Parts<T> {}

impl<T> Parts<T> {
    fn new(data: Vec<T>) -> Self {
        let mut data = ManuallyDrop::new(data);
        Self {
            data: data.as_mut_ptr(),
            len: data.len(),
            capacity: data.capacity(),
        }
    }

    fn into_vec(self) -> Vec<T> {
        let parts = ManuallyDrop::new(self);
        // SAFETY: the parts of a Vec that is put together once.
        unsafe { Vec::from_raw_parts(parts.data, parts.len, parts.capacity) }
    }
}

impl<T> Drop for Parts<T> {
    fn drop(&mut self) {
        // SAFETY: as in `into_vec`.
        drop(unsafe { Vec::from_raw_parts(self.data, self.len, self.capacity) });
    }
}

/// Checks that `len` items fit `shape`.
fn check_length<T: TensorElement>(shape: &[usize], len: usize) -> Result<()> {
    let count = shape::element_count(shape)?;
    let wanted = T::storage_len(count);
    if wanted != len {
        return Err(Error::invalid_argument(format!(
            "tensor of shape {}: expected {wanted} {} elements, found {len}",
            Dimensions(shape),
            T::ELEMENT_TYPE
        )));
    }
    Ok(())
}

impl<T: TensorElement> Tensor<T> {
    /// Takes the elements without copying them (wraps `OrtApi::CreateTensorWithDataAsOrtValue`).
    ///
    /// ```
    /// use ort_training::Tensor;
    /// let images = Tensor::from_vec([2, 3], vec![0f32; 6])?;
    /// assert_eq!(images.shape(), [2, 3]);
    /// # Ok::<(), ort_training::Error>(())
    /// ```
    ///
    /// # Errors
    /// The number of elements is not the product of the shape, or that overflows.
    pub fn from_vec(shape: impl AsRef<[usize]>, data: Vec<T>) -> Result<Self> {
        let shape = shape.as_ref();
        check_length::<T>(shape, data.len())?;
        let parts = Parts::new(data);
        let pointer = parts.data;
        // SAFETY: the parts own the elements, go with the value, and touch them only when they are put together again.
        let value =
            unsafe { Value::from_parts(shape, pointer, Some(Box::new(parts)), Access::Owned) }?;
        Ok(Self {
            value,
            elements: PhantomData,
        })
    }

    /// Copies the elements.
    ///
    /// # Errors
    /// As [`from_vec`](Self::from_vec).
    pub fn from_slice(shape: impl AsRef<[usize]>, data: &[T]) -> Result<Self> {
        Self::from_vec(shape, data.to_vec())
    }

    /// A tensor filled with `element`.
    ///
    /// # Errors
    /// The shape overflows.
    pub fn filled(shape: impl AsRef<[usize]>, element: T) -> Result<Self> {
        let count = shape::element_count(shape.as_ref())?;
        if count
            .checked_mul(size_of::<T>())
            .is_none_or(|bytes| bytes > isize::MAX as usize)
        {
            return Err(Error::invalid_argument(format!(
                "tensor of shape {}: larger than memory",
                Dimensions(shape.as_ref())
            )));
        }
        Self::from_vec(shape, vec![element; T::storage_len(count)])
    }

    /// A tensor of rank 0.
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn scalar(element: T) -> Result<Self> {
        Self::from_vec([], vec![element])
    }

    pub(crate) fn from_value(value: Value) -> Result<Self> {
        // Checks type, place and contents.
        value.data::<T>()?;
        Ok(Self {
            value,
            elements: PhantomData,
        })
    }

    /// The dimensions, outermost first; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.value.shape().unwrap_or_default()
    }

    /// The elements in row-major order.
    #[must_use]
    pub fn data(&self) -> &[T] {
        self.value
            .data()
            .unwrap_or_else(|error| unreachable!("checked when it was made: {error}"))
    }

    /// The elements in row-major order, for writing.
    pub fn data_mut(&mut self) -> &mut [T] {
        self.value
            .data_mut()
            .unwrap_or_else(|error| unreachable!("checked when it was made: {error}"))
    }

    /// The elements; without copying when they came from a `Vec`.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        if self.value.access() == Access::Runtime {
            return self.data().to_vec();
        }
        match self
            .value
            .take_backing()
            .map(|backing| backing.downcast::<Parts<T>>())
        {
            Some(Ok(parts)) => parts.into_vec(),
            _ => unreachable!("an owned tensor holds the parts of its vector"),
        }
    }

    /// The same tensor with its element type known at run time only.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.value
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }
}

impl<T: TensorElement> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Tensor({} {})",
            T::ELEMENT_TYPE,
            Dimensions(self.shape())
        )
    }
}

/// A tensor over elements that somebody else owns: nothing is copied, and it does not outlive them (wraps `OrtValue`).
pub struct TensorRef<'a, T: TensorElement> {
    value: Value,
    elements: PhantomData<&'a [T]>,
}

impl<'a, T: TensorElement> TensorRef<'a, T> {
    /// Borrows the elements (wraps `OrtApi::CreateTensorWithDataAsOrtValue`).
    ///
    /// # Errors
    /// The number of elements is not the product of the shape, or that overflows.
    pub fn new(shape: impl AsRef<[usize]>, data: &'a [T]) -> Result<Self> {
        let shape = shape.as_ref();
        check_length::<T>(shape, data.len())?;
        // SAFETY: the elements are borrowed as long as this lives. ONNX Runtime takes a mutable pointer, but writes only
        // outputs, and a lent value cannot become one.
        let value =
            unsafe { Value::from_parts(shape, data.as_ptr().cast_mut(), None, Access::Lent) }?;
        Ok(Self {
            value,
            elements: PhantomData,
        })
    }

    /// The dimensions, outermost first; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.value.shape().unwrap_or_default()
    }

    /// The elements in row-major order.
    #[must_use]
    pub fn data(&self) -> &[T] {
        self.value
            .data()
            .unwrap_or_else(|error| unreachable!("checked when it was made: {error}"))
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    pub(crate) fn into_raw_value(self) -> Value {
        self.value
    }
}

impl<T: TensorElement> fmt::Debug for TensorRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TensorRef({} {})",
            T::ELEMENT_TYPE,
            Dimensions(self.shape())
        )
    }
}

/// A tensor of strings, which ONNX Runtime holds (wraps `OrtValue`).
pub struct StringTensor {
    value: Value,
}

impl StringTensor {
    /// Copies the strings (wraps `OrtApi::CreateTensorAsOrtValue` and `OrtApi::FillStringTensor`).
    ///
    /// # Errors
    /// The number of strings is not the product of the shape, or that overflows; a string holds a NUL.
    pub fn new(shape: impl AsRef<[usize]>, strings: &[impl AsRef<str>]) -> Result<Self> {
        let shape = shape.as_ref();
        let count = shape::element_count(shape)?;
        if count != strings.len() {
            return Err(Error::invalid_argument(format!(
                "tensor of shape {}: expected {count} strings, found {}",
                Dimensions(shape),
                strings.len()
            )));
        }
        let strings: Vec<CString> = strings
            .iter()
            .map(|text| c_string("string element", text.as_ref()))
            .collect::<Result<_>>()?;
        let pointers: Vec<*const c_char> = strings.iter().map(|text| text.as_ptr()).collect();
        let value = Value::allocate(ElementType::String, shape)?;
        if count > 0 {
            // SAFETY: a new string tensor of `count` elements; the strings are copied.
            unsafe {
                call!(ort.FillStringTensor(value.as_ptr(), pointers.as_ptr(), pointers.len()))?;
            }
        }
        Ok(Self { value })
    }

    pub(crate) fn from_value(value: Value) -> Result<Self> {
        value.strings()?;
        Ok(Self { value })
    }

    /// The dimensions, outermost first; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.value.shape().unwrap_or_default()
    }

    /// The strings in row-major order, copied.
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn strings(&self) -> Result<Vec<String>> {
        self.value.strings()
    }

    /// The same tensor with its element type known at run time only.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.value
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }
}

impl fmt::Debug for StringTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StringTensor({})", Dimensions(self.shape()))
    }
}
