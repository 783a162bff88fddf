//! Memory shared with `cudarc`, without copying.

use std::ptr::NonNull;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr};

use super::tensor::DeviceTensor;
use crate::element::TensorElement;
use crate::error::{Error, ErrorCode, Result};
use crate::memory_info::CudaMemoryInfo;
use crate::shape::{Dimensions, element_count};

fn check<T: TensorElement>(shape: &[usize], slice: &CudaSlice<T>) -> Result<CudaMemoryInfo> {
    let wanted = T::storage_len(element_count(shape)?);
    if wanted != slice.len() {
        return Err(Error::invalid_argument(format!(
            "device tensor of shape {}: expected a slice of {wanted} {}, found one of {}",
            Dimensions(shape),
            T::ELEMENT_TYPE,
            slice.len()
        )));
    }
    CudaMemoryInfo::device(i32::try_from(slice.ordinal()).unwrap_or(-1))
}

/// Waits for what was queued on the slice's stream, and for what cudarc made that stream wait for when it gave the address:
/// ONNX Runtime has streams of its own, which wait for nothing of cudarc's.
fn wait(stream: &CudaStream) -> Result<()> {
    stream.synchronize().map_err(|error| {
        Error::new(
            ErrorCode::ExecutionProviderFail,
            format!("CUDA: waiting for the slice's stream: {error}"),
        )
    })
}

fn address<T>(address: u64) -> NonNull<T> {
    NonNull::new(address as *mut T).unwrap_or(NonNull::dangling())
}

impl<'a, T: TensorElement + DeviceRepr> DeviceTensor<'a, T> {
    /// Lends the memory of a `cudarc` slice as an input, without copying it. The slice's stream is waited for first; writes
    /// that kernels on other streams do must be done too.
    ///
    /// # Errors
    /// The number of elements is not the product of the shape; the stream failed.
    pub fn from_cuda_slice(shape: impl AsRef<[usize]>, slice: &'a CudaSlice<T>) -> Result<Self> {
        let memory = check(shape.as_ref(), slice)?;
        let (pointer, _reading) = slice.device_ptr(slice.stream());
        wait(slice.stream())?;
        // SAFETY: the elements are in the memory of this device, as many as the shape has, and borrowed as long as the
        // tensor lives.
        unsafe { Self::from_device_pointer(&memory, shape, address(pointer)) }
    }

    /// Lends the memory of a `cudarc` slice for writing, without copying it: what a step writes to this
    /// ([`train_step_to_device`](crate::TrainingSession::train_step_to_device)) is in the slice when the step has returned
    /// and the tensor is dropped.
    ///
    /// # Errors
    /// As [`from_cuda_slice`](Self::from_cuda_slice).
    pub fn from_cuda_slice_mut(
        shape: impl AsRef<[usize]>,
        slice: &'a mut CudaSlice<T>,
    ) -> Result<Self> {
        let memory = check(shape.as_ref(), slice)?;
        let stream = slice.stream().clone();
        let pointer = {
            let (pointer, _writing) = slice.device_ptr_mut(&stream);
            pointer
        };
        wait(&stream)?;
        // SAFETY: as above, and borrowed mutably.
        unsafe { Self::from_device_pointer_mut(&memory, shape, address(pointer)) }
    }
}
