//! ONNX Runtime's values whose element type is known at run time only.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ort_training_sys as sys;

use crate::api::{call, entry, release};
use crate::element::{ElementType, TensorElement};
use crate::error::{Error, Result};
use crate::memory_info;
use crate::shape::{self, Dimensions};
use crate::tensor::{StringTensor, Tensor};

/// A tensor of ONNX Runtime (wraps `OrtValue`) whose element type is known at run time: what steps return.
///
/// Ask for typed access with [`data`](Self::data) and [`scalar`](Self::scalar), or turn it into a [`Tensor`].
///
/// It may be sent to and read from any thread: an `OrtValue` counts its references atomically (a `std::shared_ptr`) and
/// ONNX Runtime's allocators lock.
pub struct Value {
    raw: NonNull<sys::OrtValue>,
    identity: Option<Identity>,
    info: OnceLock<Box<TensorInfo>>,
    /// What holds the data when ONNX Runtime does not; dropped after `raw` is released.
    backing: Option<Box<dyn Any + Send + Sync>>,
    access: Access,
}

/// Stands for one value for the life of the process, so that what was checked of it once (all but its elements) need not
/// be checked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity(NonZeroU64);

impl Identity {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)).expect("a counter of 64 bits"))
    }
}

/// Who wrote the data and who may write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// ONNX Runtime allocated and wrote it.
    Runtime,
    /// Rust memory that this value owns.
    Owned,
    /// Rust memory that somebody else lends for reading.
    Lent,
}

#[derive(Debug, Clone)]
pub(crate) struct TensorInfo {
    pub(crate) element_type: ElementType,
    pub(crate) shape: Box<[usize]>,
    pub(crate) count: usize,
    pub(crate) is_host: bool,
}

// SAFETY: see the documentation of the type (ort_value.h: std::shared_ptr; bfc_arena.cc locks).
unsafe impl Send for Value {}
// SAFETY: shared access only reads.
unsafe impl Sync for Value {}

impl Value {
    /// # Safety
    /// `raw` is an `OrtValue` that nobody else releases, and nothing else writes its memory.
    pub(crate) unsafe fn from_runtime(raw: NonNull<sys::OrtValue>) -> Self {
        Self {
            raw,
            identity: None,
            info: OnceLock::new(),
            backing: None,
            access: Access::Runtime,
        }
    }

    /// Wraps host memory without copying it.
    ///
    /// # Safety
    /// `data` points to `T::storage_len` of `shape`'s elements, which stay valid (and, unless lent, unaliased) as long
    /// as the value lives; `backing` keeps them, or the caller does.
    pub(crate) unsafe fn from_parts<T: TensorElement>(
        shape: &[usize],
        data: *mut T,
        backing: Option<Box<dyn Any + Send + Sync>>,
        access: Access,
    ) -> Result<Self> {
        let host = memory_info::MemoryInfo::shared_host()?.as_ptr();
        // SAFETY: by the contract of this function; the memory info is alive for the process.
        let (raw, info) = unsafe { wrap(host, shape, data, true) }?;
        Ok(Self {
            raw,
            identity: Some(Identity::new()),
            info,
            backing,
            access,
        })
    }

    /// Wraps device memory without copying it.
    ///
    /// # Safety
    /// `data` points to the elements of `shape` in the memory that `memory` describes, valid as long as the value lives, and
    /// unshared unless it is lent.
    pub(crate) unsafe fn from_device<T: TensorElement>(
        memory: &memory_info::CudaMemoryInfo,
        shape: &[usize],
        data: *mut T,
        access: Access,
    ) -> Result<Self> {
        // SAFETY: by the contract of this function.
        let (raw, info) = unsafe { wrap(memory.as_ptr(), shape, data, false) }?;
        Ok(Self {
            raw,
            identity: Some(Identity::new()),
            info,
            backing: None,
            access,
        })
    }

    /// # Safety
    /// As [`from_runtime`](Self::from_runtime); `allocator` keeps alive what the value frees its memory with.
    pub(crate) unsafe fn from_allocator(
        raw: NonNull<sys::OrtValue>,
        allocator: Box<dyn Any + Send + Sync>,
    ) -> Self {
        // SAFETY: by the contract of this function.
        let mut value = unsafe { Self::from_runtime(raw) };
        value.backing = Some(allocator);
        // It does not come anew from a step, so that it can be known again.
        value.identity = Some(Identity::new());
        value
    }

    /// A tensor in host memory that ONNX Runtime allocates; its contents are not set.
    pub(crate) fn allocate(element_type: ElementType, shape: &[usize]) -> Result<Self> {
        shape::element_count(shape)?;
        let dims = shape::to_i64(shape);
        let allocator = crate::text::default_allocator()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the allocator is static; dims are copied.
        unsafe {
            call!(ort.CreateTensorAsOrtValue(
                allocator,
                dims.as_ptr(),
                dims.len(),
                element_type.raw_enum(),
                &mut raw,
            ))?;
        }
        let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("CreateTensorAsOrtValue"))?;
        // SAFETY: new and ours.
        Ok(unsafe { Self::from_runtime(raw) })
    }

    /// The value itself, for calls of the C API that this crate does not wrap.
    ///
    /// It is valid as long as `self` and stays its property: it must not be released, and not be written to unless nothing
    /// else refers to `self` or to what it borrows.
    #[must_use]
    pub fn as_ptr(&self) -> *mut sys::OrtValue {
        self.raw.as_ptr()
    }

    /// None for what ONNX Runtime allocated: such a value comes anew from each step.
    #[inline]
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn take_backing(mut self) -> Option<Box<dyn Any + Send + Sync>> {
        // The OrtValue goes first (at the end of this function, as `self`'s remains); it does not touch the data.
        self.backing.take()
    }

    /// Reads type and shape from ONNX Runtime once.
    #[inline]
    pub(crate) fn info(&self) -> Result<&TensorInfo> {
        if let Some(info) = self.info.get() {
            return Ok(info);
        }
        // SAFETY: the value is alive.
        let info = unsafe { read_info(self.raw.as_ptr()) }?;
        Ok(self.info.get_or_init(|| Box::new(info)))
    }

    /// The type of the elements (wraps `OrtApi::GetTensorElementType`).
    ///
    /// # Errors
    /// The value is no tensor.
    pub fn element_type(&self) -> Result<ElementType> {
        Ok(self.info()?.element_type)
    }

    /// The dimensions, outermost first; empty for a scalar (wraps `OrtApi::GetDimensions`).
    ///
    /// # Errors
    /// The value is no tensor.
    pub fn shape(&self) -> Result<&[usize]> {
        Ok(&self.info()?.shape)
    }

    /// The number of elements (wraps `OrtApi::GetTensorShapeElementCount`).
    ///
    /// # Errors
    /// The value is no tensor.
    pub fn element_count(&self) -> Result<usize> {
        Ok(self.info()?.count)
    }

    /// Whether the host can read the memory (wraps `OrtApi::GetTensorMemoryInfo`).
    ///
    /// # Errors
    /// The value is no tensor.
    pub fn is_host(&self) -> Result<bool> {
        Ok(self.info()?.is_host)
    }

    fn typed_pointer<T: TensorElement>(&self) -> Result<(*mut T, usize)> {
        let info = self.info()?;
        if info.element_type != T::ELEMENT_TYPE {
            return Err(Error::invalid_argument(format!(
                "tensor access: expected element type {}, found {}",
                T::ELEMENT_TYPE,
                info.element_type
            )));
        }
        if !info.is_host {
            return Err(Error::invalid_argument(
                "tensor access: expected host memory, found device memory; copy it to the host first",
            ));
        }
        let len = T::storage_len(info.count);
        if len == 0 {
            return Ok((NonNull::dangling().as_ptr(), 0));
        }
        let mut data = std::ptr::null_mut();
        // SAFETY: a live tensor; the pointer is to its memory.
        unsafe { call!(ort.GetTensorMutableData(self.raw.as_ptr(), &mut data))? };
        let data: *mut T = data.cast();
        if data.is_null() || !data.is_aligned() {
            return Err(Error::invalid_argument(format!(
                "tensor access: expected memory aligned for {}, found {data:p}",
                T::ELEMENT_TYPE
            )));
        }
        // SAFETY: the memory holds `len` items, initialised by whoever wrote the tensor.
        if self.access == Access::Runtime && !unsafe { T::is_valid(data, len) } {
            return Err(Error::invalid_argument(format!(
                "tensor access: found bytes that are no {}",
                T::ELEMENT_TYPE
            )));
        }
        Ok((data, len))
    }

    /// The elements in row-major order (wraps `OrtApi::GetTensorMutableData`).
    ///
    /// # Errors
    /// Another element type; device memory; a bool tensor with bytes other than 0 and 1.
    pub fn data<T: TensorElement>(&self) -> Result<&[T]> {
        let (data, len) = self.typed_pointer::<T>()?;
        // SAFETY: `len` valid items that live as long as `self` and are not written while it is borrowed: ONNX Runtime
        // writes a value only when it is passed as an output, which takes it mutably.
        Ok(unsafe { std::slice::from_raw_parts(data, len) })
    }

    /// The elements for writing, in row-major order (wraps `OrtApi::GetTensorMutableData`).
    ///
    /// # Errors
    /// As [`data`](Self::data); memory that was lent for reading.
    pub fn data_mut<T: TensorElement>(&mut self) -> Result<&mut [T]> {
        if self.access == Access::Lent {
            return Err(Error::invalid_argument(
                "tensor access: expected memory that may be written, found memory lent for reading",
            ));
        }
        let (data, len) = self.typed_pointer::<T>()?;
        // SAFETY: as in `data`; the memory belongs to this value alone, which is borrowed mutably.
        Ok(unsafe { std::slice::from_raw_parts_mut(data, len) })
    }

    /// The single element.
    ///
    /// # Errors
    /// As [`data`](Self::data); more or fewer elements than one.
    pub fn scalar<T: TensorElement>(&self) -> Result<T> {
        let info = self.info()?;
        if info.count != 1 {
            return Err(Error::invalid_argument(format!(
                "scalar: expected a tensor with one element, found shape {}",
                Dimensions(&info.shape)
            )));
        }
        Ok(self.data::<T>()?[0])
    }

    /// Where the element is, if it is a single float32 in host memory.
    pub(crate) fn host_f32_place(&self) -> Option<NonNull<f32>> {
        match self.typed_pointer::<f32>() {
            Ok((place, 1)) => NonNull::new(place),
            _ => None,
        }
    }

    /// The element of a scalar, if it is one (rank 0), in one call (wraps `OrtApi::TensorAt`, which compares the rank).
    ///
    /// # Safety
    /// The elements are `T`, in host memory.
    pub(crate) unsafe fn host_scalar<T: TensorElement>(&self) -> Option<T> {
        let mut element = std::ptr::null_mut();
        // SAFETY: the value is alive; there are no coordinates to read.
        unsafe {
            call!(ort.TensorAt(self.raw.as_ptr(), std::ptr::null(), 0, &mut element)).ok()?;
        }
        // SAFETY: the address of an element, which is a `T` by the contract of this function.
        (!element.is_null()).then(|| unsafe { element.cast::<T>().read() })
    }

    /// The strings of a string tensor, in row-major order (wraps `OrtApi::GetStringTensorContent`).
    ///
    /// # Errors
    /// Another element type; strings that are not UTF-8.
    pub fn strings(&self) -> Result<Vec<String>> {
        let info = self.info()?;
        if info.element_type != ElementType::String {
            return Err(Error::invalid_argument(format!(
                "tensor access: expected element type string, found {}",
                info.element_type
            )));
        }
        if info.count == 0 {
            return Ok(Vec::new());
        }
        let mut total = 0;
        // SAFETY: a live string tensor.
        unsafe { call!(ort.GetStringTensorDataLength(self.raw.as_ptr(), &mut total))? };
        let mut bytes = vec![0u8; total];
        let mut offsets = vec![0usize; info.count];
        // SAFETY: both buffers have the sizes that are passed.
        unsafe {
            call!(ort.GetStringTensorContent(
                self.raw.as_ptr(),
                bytes.as_mut_ptr().cast(),
                total,
                offsets.as_mut_ptr(),
                offsets.len(),
            ))?;
        }
        (0..info.count)
            .map(|index| {
                let end = offsets.get(index + 1).copied().unwrap_or(total);
                let text = bytes.get(offsets[index]..end).unwrap_or_default();
                String::from_utf8(text.to_vec()).map_err(|_| {
                    Error::invalid_argument(format!("string tensor: element {index} is not UTF-8"))
                })
            })
            .collect()
    }

    /// Turns it into a tensor of `T` in host memory, without copying.
    ///
    /// # Errors
    /// Another element type; device memory; a bool tensor with bytes other than 0 and 1.
    pub fn into_tensor<T: TensorElement>(self) -> Result<Tensor<T>> {
        Tensor::from_value(self)
    }

    /// Turns it into a string tensor, without copying.
    ///
    /// # Errors
    /// Another element type.
    pub fn into_strings(self) -> Result<StringTensor> {
        StringTensor::from_value(self)
    }

    /// A copy in memory of its own, for values that may share memory with something else.
    #[cold]
    pub(crate) fn deep_copy(&self) -> Result<Self> {
        let info = self.info()?;
        if info.element_type == ElementType::String {
            let strings = self.strings()?;
            return Ok(StringTensor::new(&info.shape, &strings)?.into_value());
        }
        let bytes = info
            .element_type
            .byte_count(info.count)
            .filter(|_| info.is_host)
            .ok_or_else(|| {
                Error::invalid_argument(format!(
                    "copy: expected a host tensor of a known type, found {}",
                    info.element_type
                ))
            })?;
        let copy = Self::allocate(info.element_type, &info.shape)?;
        if bytes > 0 {
            let (mut from, mut to) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: two live host tensors of the same type and shape, in different memory.
            unsafe {
                call!(ort.GetTensorMutableData(self.raw.as_ptr(), &mut from))?;
                call!(ort.GetTensorMutableData(copy.raw.as_ptr(), &mut to))?;
                std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes);
            }
        }
        Ok(copy)
    }
}

/// A tensor over existing memory, and what is known of it.
///
/// # Safety
/// `memory` is alive, and `data` points to the elements of `shape` in the memory that it describes; they stay valid as
/// long as the value that is returned.
unsafe fn wrap<T: TensorElement>(
    memory: *const sys::OrtMemoryInfo,
    shape: &[usize],
    data: *mut T,
    is_host: bool,
) -> Result<(NonNull<sys::OrtValue>, OnceLock<Box<TensorInfo>>)> {
    let count = shape::element_count(shape)?;
    let dims = shape::to_i64(shape);
    let bytes = T::storage_len(count)
        .checked_mul(size_of::<T>())
        .ok_or_else(|| Error::invalid_argument("tensor larger than memory"))?;
    let mut raw = std::ptr::null_mut();
    // SAFETY: the memory info is alive; data and length by the contract of this function; dims are
    // copied by ONNX Runtime.
    unsafe {
        call!(ort.CreateTensorWithDataAsOrtValue(
            memory,
            data.cast(),
            bytes,
            dims.as_ptr(),
            dims.len(),
            T::ELEMENT_TYPE.raw_enum(),
            &mut raw,
        ))?;
    }
    let raw =
        NonNull::new(raw).ok_or_else(|| crate::api::missing("CreateTensorWithDataAsOrtValue"))?;
    let info = OnceLock::new();
    let _ = info.set(Box::new(TensorInfo {
        element_type: T::ELEMENT_TYPE,
        shape: shape.into(),
        count,
        is_host,
    }));
    Ok((raw, info))
}

/// # Safety
/// `value` is an `OrtValue` that is alive.
unsafe fn read_info(value: *const sys::OrtValue) -> Result<TensorInfo> {
    let mut is_tensor = 0;
    // SAFETY: by the contract of this function.
    unsafe { call!(ort.IsTensor(value, &mut is_tensor))? };
    if is_tensor == 0 {
        let mut kind = sys::ONNXType(0);
        // SAFETY: as above.
        unsafe { call!(ort.GetValueType(value, &mut kind))? };
        return Err(Error::invalid_argument(format!(
            "value: expected a tensor, found ONNX type {}",
            kind.0
        )));
    }
    let mut info = std::ptr::null_mut();
    // SAFETY: a live tensor; the info object is ours and released when the guard goes.
    unsafe { call!(ort.GetTensorTypeAndShape(value, &mut info))? };
    let info = TypeAndShape(info);
    let (element_type, shape) = info.read()?;
    let count = shape::element_count(&shape)?;
    // SAFETY: a live tensor.
    let is_host = unsafe { memory_info::is_host(value) }?;
    Ok(TensorInfo {
        element_type,
        shape: shape.into(),
        count,
        is_host,
    })
}

/// An `OrtTensorTypeAndShapeInfo` that is ours.
pub(crate) struct TypeAndShape(pub(crate) *mut sys::OrtTensorTypeAndShapeInfo);

impl TypeAndShape {
    pub(crate) fn read(&self) -> Result<(ElementType, Vec<usize>)> {
        let (element, dims) = unsafe {
            // SAFETY: the info object is alive.
            read_type_and_shape(self.0)?
        };
        let shape = dims
            .iter()
            .map(|&dimension| {
                usize::try_from(dimension).map_err(|_| {
                    Error::invalid_argument(format!("shape: found the dimension {dimension}"))
                })
            })
            .collect::<Result<_>>()?;
        Ok((element, shape))
    }
}

impl Drop for TypeAndShape {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { release!(ort.ReleaseTensorTypeAndShapeInfo(self.0)) };
    }
}

/// # Safety
/// `info` is alive.
pub(crate) unsafe fn read_type_and_shape(
    info: *const sys::OrtTensorTypeAndShapeInfo,
) -> Result<(ElementType, Vec<i64>)> {
    let mut element = sys::ONNXTensorElementDataType(0);
    let mut rank = 0;
    // SAFETY: by the contract of this function; the buffer has the length that is passed.
    unsafe {
        entry!(ort.GetTensorElementType).and_then(|f| crate::api::check(f(info, &mut element)))?;
        call!(ort.GetDimensionsCount(info, &mut rank))?;
        let mut dims = vec![0i64; rank];
        call!(ort.GetDimensions(info, dims.as_mut_ptr(), rank))?;
        Ok((ElementType::from_raw(element.0), dims))
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: ours, released once; the backing goes after this.
        unsafe { release!(ort.ReleaseValue(self.raw.as_ptr())) };
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Ok(info) => write!(
                f,
                "Value({} {})",
                info.element_type,
                Dimensions(&info.shape)
            ),
            Err(_) => f.write_str("Value(not a tensor)"),
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// What can be an input of a step: [`Tensor`], [`TensorRef`](crate::TensorRef), [`StringTensor`], [`Value`].
pub trait AsValue: sealed::Sealed {
    /// The value behind it.
    fn as_value(&self) -> &Value;
}

macro_rules! as_value {
    ($([$($generics:tt)*] $type:ty),*) => {$(
        impl<$($generics)*> sealed::Sealed for $type {}
        impl<$($generics)*> AsValue for $type {
            fn as_value(&self) -> &Value {
                self.value()
            }
        }
    )*};
}

as_value! {
    [T: TensorElement] Tensor<T>, [T: TensorElement] crate::tensor::TensorRef<'_, T>,
    [T: TensorElement] crate::cuda::DeviceTensor<'_, T>, [] StringTensor
}

impl sealed::Sealed for Value {}

impl AsValue for Value {
    fn as_value(&self) -> &Value {
        self
    }
}
