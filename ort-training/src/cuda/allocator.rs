//! Memory from ONNX Runtime's own allocators: on the device, and page-locked on the host.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use ort_training_sys as sys;

use super::options::CudaOptions;
use super::tensor::DeviceTensor;
use crate::api::{call, release};
use crate::element::{ElementType, TensorElement};
use crate::environment::Environment;
use crate::error::{Context, Error, Result};
use crate::inference_session::InferenceSession;
use crate::memory_info::{self, CudaMemoryInfo};
use crate::session_options::SessionOptions;
use crate::shape;
use crate::tensor::Tensor;
use crate::value::Value;

/// Makes tensors in a device's memory and in page-locked host memory, with ONNX Runtime's allocators
/// (wraps `OrtApi::CreateAllocator`).
///
/// ONNX Runtime hands out a session's allocators only, and none of a training session's. So this holds a session of its own
/// over a model of one operator, made with the options that are given: its arena and its limit are beside those of training
/// sessions. Tensors keep it alive. Any thread may use it: the arenas lock (bfc_arena.cc).
///
/// ```no_run
/// use ort_training::{CudaAllocator, CudaOptions, Environment};
/// let env = Environment::shared()?;
/// let memory = CudaAllocator::new(&env, &CudaOptions::device(0))?;
/// let mut images = memory.tensor::<f32>([32, 64])?;
/// let mut staging = memory.pinned::<f32>([32, 64])?;
/// staging.data_mut().fill(0.5);
/// images.copy_from_host(staging.data())?;
/// # Ok::<(), ort_training::Error>(())
/// ```
#[derive(Clone)]
pub struct CudaAllocator(Arc<Inner>);

struct Inner {
    /// Released before the session that they came from.
    device: RawAllocator,
    pinned: RawAllocator,
    device_id: u32,
    _session: InferenceSession,
}

impl CudaAllocator {
    /// Allocators of the options' device, with their limit and growth.
    ///
    /// # Errors
    /// As [`SessionOptions::with_cuda`].
    pub fn new(environment: &Environment, options: &CudaOptions) -> Result<Self> {
        const CALL: &str = "CUDA allocator";
        let device_id = options.device_id();
        let memory = CudaMemoryInfo::device(i32::try_from(device_id).map_err(|_| {
            Error::invalid_argument(format!(
                "CUDA device: expected a number of 31 bits, found {device_id}"
            ))
        })?)?;
        let session_options = SessionOptions::new()?
            .with_intra_op_threads(1)?
            .with_cuda(options)?;
        let session = InferenceSession::builder(environment)
            .options(session_options)
            .model_bytes(IDENTITY_MODEL)
            .build()
            .context(CALL)?;
        let pinned = memory_info::cuda_pinned()?;
        Ok(Self(Arc::new(Inner {
            device: RawAllocator::of(&session, memory.as_ptr()).context(CALL)?,
            pinned: RawAllocator::of(&session, pinned.as_ptr()).context(CALL)?,
            device_id,
            _session: session,
        })))
    }

    /// The number of the device.
    #[must_use]
    pub fn device_id(&self) -> u32 {
        self.0.device_id
    }

    /// A tensor of zeros in the device's memory (wraps `OrtApi::CreateTensorAsOrtValue`).
    ///
    /// # Errors
    /// The shape overflows; the device's memory or the limit is used up.
    pub fn tensor<T: TensorElement>(
        &self,
        shape: impl AsRef<[usize]>,
    ) -> Result<DeviceTensor<'static, T>> {
        let value = self.allocate(&self.0.device, T::ELEMENT_TYPE, shape.as_ref())?;
        let mut tensor = DeviceTensor::from_value(value, self.0.device_id);
        tensor.fill_zero()?;
        Ok(tensor)
    }

    /// A tensor in the device's memory with these elements.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); the number of elements is not the product of the shape.
    pub fn tensor_from<T: TensorElement>(
        &self,
        shape: impl AsRef<[usize]>,
        elements: &[T],
    ) -> Result<DeviceTensor<'static, T>> {
        let value = self.allocate(&self.0.device, T::ELEMENT_TYPE, shape.as_ref())?;
        let mut tensor = DeviceTensor::from_value(value, self.0.device_id);
        tensor.copy_from_host(elements)?;
        Ok(tensor)
    }

    /// A tensor of zeros in page-locked host memory (ONNX Runtime's `CudaPinned`), from and to which copies are fast and run
    /// beside the host. It is a [`Tensor`] like any other.
    ///
    /// # Errors
    /// The shape overflows; the system locks no more memory.
    pub fn pinned<T: TensorElement>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>> {
        let value = self.allocate(&self.0.pinned, T::ELEMENT_TYPE, shape.as_ref())?;
        let bytes = T::storage_len(value.element_count()?) * size_of::<T>();
        if bytes > 0 {
            let mut data = std::ptr::null_mut();
            // SAFETY: a new tensor in host memory of so many bytes; for every element type zero bytes are a value.
            unsafe {
                call!(ort.GetTensorMutableData(value.as_ptr(), &mut data))?;
                std::ptr::write_bytes(data.cast::<u8>(), 0, bytes);
            }
        }
        value.into_tensor()
    }

    fn allocate(
        &self,
        allocator: &RawAllocator,
        element_type: ElementType,
        shape: &[usize],
    ) -> Result<Value> {
        shape::element_count(shape)?;
        let dims = shape::to_i64(shape);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the allocator is alive, and the value keeps it so; dims are copied.
        unsafe {
            call!(ort.CreateTensorAsOrtValue(
                allocator.0.as_ptr(),
                dims.as_ptr(),
                dims.len(),
                element_type.raw_enum(),
                &mut raw,
            ))?;
        }
        let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("CreateTensorAsOrtValue"))?;
        // SAFETY: new and ours.
        Ok(unsafe { Value::from_allocator(raw, Box::new(Arc::clone(&self.0))) })
    }
}

impl fmt::Debug for CudaAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaAllocator")
            .field("device_id", &self.0.device_id)
            .finish_non_exhaustive()
    }
}

struct RawAllocator(NonNull<sys::OrtAllocator>);

// SAFETY: the arenas behind them lock (bfc_arena.cc).
unsafe impl Send for RawAllocator {}
// SAFETY: as above.
unsafe impl Sync for RawAllocator {}

impl RawAllocator {
    fn of(session: &InferenceSession, memory: *const sys::OrtMemoryInfo) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: session and description are alive; `raw` receives an object that is ours.
        unsafe { call!(ort.CreateAllocator(session.as_ptr(), memory, &mut raw))? };
        NonNull::new(raw)
            .map(Self)
            .ok_or_else(|| crate::api::missing("CreateAllocator"))
    }
}

impl Drop for RawAllocator {
    fn drop(&mut self) {
        // SAFETY: ours, released once, after every value that it made (they hold what holds this).
        unsafe { release!(ort.ReleaseAllocator(self.0.as_ptr())) };
    }
}

/// An ONNX model (IR version 8, operator set 13) with one node, `y = Identity(x)`, on one float32.
const IDENTITY_MODEL: &[u8] = b"\
    \x08\x08\
    \x3a\x37\
        \x0a\x10\x0a\x01x\x12\x01y\x22\x08Identity\
        \x12\x01g\
        \x5a\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01\
        \x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01\
    \x42\x02\x10\x0d";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_behind_the_allocators_runs() {
        let session = InferenceSession::builder(&Environment::shared().unwrap())
            .model_bytes(IDENTITY_MODEL)
            .build()
            .unwrap();
        let x = Tensor::from_vec([1], vec![2.5f32]).unwrap();
        let y = session.run(&[&x]).unwrap();
        assert_eq!(y.get("y").unwrap().data::<f32>().unwrap(), [2.5]);
        // A session without CUDA has host memory to give, and neither device nor page-locked memory.
        let host = memory_info::MemoryInfo::host().unwrap();
        assert!(RawAllocator::of(&session, host.as_ptr()).is_ok());
        let device = CudaMemoryInfo::device(0).unwrap();
        assert!(RawAllocator::of(&session, device.as_ptr()).is_err());
        let pinned = memory_info::cuda_pinned().unwrap();
        assert!(RawAllocator::of(&session, pinned.as_ptr()).is_err());
    }
}
