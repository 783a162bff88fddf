//! Tensors in device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::device::CudaDevice;
use super::driver::Address;
use super::stream::{Copy, copy, synchronize};
use crate::api::call;
use crate::element::TensorElement;
use crate::error::{Error, Result};
use crate::memory_info::CudaMemoryInfo;
use crate::shape::Dimensions;
use crate::tensor::Tensor;
use crate::value::{Access, Value};

/// A tensor in device memory (wraps `OrtValue`): it can be fed to a step, but the host cannot read it, so there is no
/// access to its elements; they are copied. It never outlives the memory it was made over (`'a`); those that
/// [`CudaAllocator`](crate::CudaAllocator) makes own theirs.
///
/// Any thread may use it, as for [`Value`]. Copies are done when the call returns, and what a step of a session wrote is
/// there for every copy after it: ONNX Runtime waits for its stream at the end of each step.
pub struct DeviceTensor<'a, T: TensorElement> {
    value: Value,
    device_id: u32,
    memory: PhantomData<&'a T>,
}

impl<'a, T: TensorElement> DeviceTensor<'a, T> {
    /// Wraps device memory for reading, without copying it (wraps `OrtApi::CreateTensorWithDataAsOrtValue`).
    ///
    /// # Safety
    /// `data` points to the elements of `shape`, row-major, in the device memory that `memory` describes; they stay valid
    /// for the lifetime that the caller chooses, and whatever writes them is done before a step reads them.
    ///
    /// # Errors
    /// The product of the shape overflows.
    pub unsafe fn from_device_pointer(
        memory: &CudaMemoryInfo,
        shape: impl AsRef<[usize]>,
        data: NonNull<T>,
    ) -> Result<Self> {
        // SAFETY: by the contract of this function.
        unsafe { Self::over(memory, shape.as_ref(), data.as_ptr(), Access::Lent) }
    }

    /// As [`from_device_pointer`](Self::from_device_pointer), for reading and writing.
    ///
    /// # Safety
    /// As there, and nothing else reads or writes the memory meanwhile.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn from_device_pointer_mut(
        memory: &CudaMemoryInfo,
        shape: impl AsRef<[usize]>,
        data: NonNull<T>,
    ) -> Result<Self> {
        // SAFETY: by the contract of this function.
        unsafe { Self::over(memory, shape.as_ref(), data.as_ptr(), Access::Owned) }
    }

    /// # Safety
    /// As [`from_device_pointer`](Self::from_device_pointer), or its mutable form for [`Access::Owned`].
    unsafe fn over(
        memory: &CudaMemoryInfo,
        shape: &[usize],
        data: *mut T,
        access: Access,
    ) -> Result<Self> {
        let device_id = u32::try_from(memory.device_id()?).unwrap_or(0);
        // SAFETY: by the contract of this function.
        let value = unsafe { Value::from_device::<T>(memory, shape, data, access) }?;
        Ok(Self::from_value(value, device_id))
    }

    pub(crate) fn from_value(value: Value, device_id: u32) -> Self {
        Self {
            value,
            device_id,
            memory: PhantomData,
        }
    }

    /// The dimensions, outermost first; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.value.shape().unwrap_or_default()
    }

    /// The number of the device that it lies on.
    #[must_use]
    pub fn device_id(&self) -> u32 {
        self.device_id
    }

    /// The number of elements (of items, for types that pack several elements into one).
    #[must_use]
    pub fn len(&self) -> usize {
        T::storage_len(self.value.element_count().unwrap_or_default())
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the elements lie on the device (a `CUdeviceptr`), for calls that this crate does not wrap; not an address that
    /// the host can use (wraps `OrtApi::GetTensorMutableData`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn address(&self) -> Result<u64> {
        let mut data = std::ptr::null_mut();
        // SAFETY: the value is alive.
        unsafe { call!(ort.GetTensorMutableData(self.value.as_ptr(), &mut data))? };
        Ok(data as Address)
    }

    pub(crate) fn ensure_writable(&self) -> Result<()> {
        if self.value.access() == Access::Lent {
            return Err(Error::invalid_argument(
                "device tensor: expected memory that may be written, found memory lent for reading",
            ));
        }
        Ok(())
    }

    pub(crate) fn address_mut(&mut self) -> Result<Address> {
        self.ensure_writable()?;
        self.address()
    }

    pub(crate) fn ensure_len(&self, call: &str, found: usize) -> Result<()> {
        if self.len() == found {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "{call}: expected {} elements for {} {}, found {found}",
            self.len(),
            T::ELEMENT_TYPE,
            Dimensions(self.shape())
        )))
    }

    /// Queues on the default stream and waits.
    fn copy_now(&self, what: Copy, bytes: usize) -> Result<()> {
        let device = CudaDevice::open(self.device_id)?;
        copy(device, std::ptr::null_mut(), what, bytes)?;
        synchronize(device, std::ptr::null_mut())
    }

    /// Copies elements in.
    ///
    /// # Errors
    /// Another number of elements; memory lent for reading; the driver refuses.
    pub fn copy_from_host(&mut self, source: &[T]) -> Result<()> {
        self.ensure_len("copy to the device", source.len())?;
        let address = self.address_mut()?;
        self.copy_now(
            Copy::ToDevice(address, source.as_ptr().cast()),
            size_of_val(source),
        )
    }

    /// Copies the elements out.
    ///
    /// # Errors
    /// Another number of elements; a bool tensor with bytes other than 0 and 1; the driver refuses.
    pub fn copy_to_host(&self, destination: &mut [T]) -> Result<()> {
        self.ensure_len("copy to the host", destination.len())?;
        if T::ELEMENT_TYPE == crate::ElementType::Bool {
            // Looked at before they become bools.
            destination.copy_from_slice(&self.to_vec()?);
            return Ok(());
        }
        self.copy_now(
            Copy::ToHost(destination.as_mut_ptr().cast(), self.address()?),
            size_of_val(destination),
        )
    }

    /// The elements, copied to the host, in row-major order.
    ///
    /// # Errors
    /// As [`copy_to_host`](Self::copy_to_host).
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let len = self.len();
        let mut items: Vec<T> = Vec::with_capacity(len);
        self.copy_now(
            Copy::ToHost(items.as_mut_ptr().cast(), self.address()?),
            len * size_of::<T>(),
        )?;
        // SAFETY: `len` items were written, if bytes came at all.
        if len > 0 && !unsafe { T::is_valid(items.as_ptr(), len) } {
            return Err(Error::invalid_argument(format!(
                "copy to the host: found bytes that are no {}",
                T::ELEMENT_TYPE
            )));
        }
        // SAFETY: as above, and they are valid.
        unsafe { items.set_len(len) };
        Ok(items)
    }

    /// A copy in host memory.
    ///
    /// # Errors
    /// As [`copy_to_host`](Self::copy_to_host).
    pub fn to_tensor(&self) -> Result<Tensor<T>> {
        Tensor::from_vec(self.shape(), self.to_vec()?)
    }

    /// Copies another tensor's elements on the device.
    ///
    /// # Errors
    /// Another number of elements or another device; memory lent for reading; the driver refuses.
    pub fn copy_from_device(&mut self, source: &DeviceTensor<'_, T>) -> Result<()> {
        self.ensure_len("copy on the device", source.len())?;
        if self.device_id != source.device_id {
            return Err(Error::invalid_argument(format!(
                "copy on the device: expected a tensor on device {}, found one on device {}",
                self.device_id, source.device_id
            )));
        }
        let address = self.address_mut()?;
        self.copy_now(
            Copy::OnDevice(address, source.address()?),
            source.len() * size_of::<T>(),
        )
    }

    /// Sets all bytes to zero.
    ///
    /// # Errors
    /// Memory lent for reading; the driver refuses.
    pub fn fill_zero(&mut self) -> Result<()> {
        let address = self.address_mut()?;
        self.copy_now(Copy::Fill(address, 0), self.len() * size_of::<T>())
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    pub(crate) fn into_raw_value(self) -> Value {
        self.value
    }
}

impl<T: TensorElement> fmt::Debug for DeviceTensor<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DeviceTensor({} {} on CUDA device {})",
            T::ELEMENT_TYPE,
            Dimensions(self.shape()),
            self.device_id
        )
    }
}
