//! The CUDA execution provider and tensors in its memory.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use ort_training_sys as sys;

use crate::api::{call, release};
use crate::element::TensorElement;
use crate::error::{Context, Error, ErrorCode, Result};
use crate::memory_info::CudaMemoryInfo;
use crate::session_options::available_providers;
use crate::shape::Dimensions;
use crate::text::c_string;
use crate::value::Value;

/// How the arena of device memory grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArenaExtendStrategy {
    /// By doubling.
    NextPowerOfTwo,
    /// By what is asked for.
    SameAsRequested,
}

/// Settings of the CUDA execution provider (wraps `OrtCUDAProviderOptionsV2`). Making them needs no device; adding them
/// to a session does.
#[derive(Debug, Clone)]
#[must_use]
pub struct CudaOptions {
    entries: BTreeMap<String, String>,
    stream: Option<NonNull<c_void>>,
}

// SAFETY: the stream is only passed on; whoever gave it promised that it may be used with the session, from its thread.
unsafe impl Send for CudaOptions {}

impl CudaOptions {
    /// The device with this number, with ONNX Runtime's defaults.
    pub fn device(device_id: u32) -> Self {
        Self {
            entries: BTreeMap::new(),
            stream: None,
        }
        .entry("device_id", device_id.to_string())
    }

    /// The most device memory the arena may take, in bytes.
    pub fn memory_limit(self, bytes: usize) -> Self {
        self.entry("gpu_mem_limit", bytes.to_string())
    }

    /// How the arena grows.
    pub fn arena_extend_strategy(self, strategy: ArenaExtendStrategy) -> Self {
        let name = match strategy {
            ArenaExtendStrategy::NextPowerOfTwo => "kNextPowerOfTwo",
            ArenaExtendStrategy::SameAsRequested => "kSameAsRequested",
        };
        self.entry("arena_extend_strategy", name)
    }

    /// Any setting that the CUDA execution provider knows (wraps `OrtApi::UpdateCUDAProviderOptions`). A later value for a
    /// key replaces an earlier one.
    pub fn entry(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.entries.insert(key.into(), value.into());
        self
    }

    /// Runs everything on a stream of the caller's (wraps `OrtApi::UpdateCUDAProviderOptionsWithValue`).
    ///
    /// # Safety
    /// `stream` is a `cudaStream_t` of the device that stays alive until the last session made with these options is
    /// dropped, and may be used from the threads that use these sessions.
    pub unsafe fn user_compute_stream(mut self, stream: NonNull<c_void>) -> Self {
        self.stream = Some(stream);
        self
    }

    pub(crate) fn append_to(&self, session_options: *mut sys::OrtSessionOptions) -> Result<()> {
        let providers = available_providers()?;
        if !providers.iter().any(|name| name == "CUDAExecutionProvider") {
            return Err(Error::new(
                ErrorCode::NotImplemented,
                format!(
                    "CUDA: expected an ONNX Runtime built with the CUDA execution provider, found one with {}",
                    providers.join(", ")
                ),
            ));
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` receives an object that is ours until the guard releases it.
        unsafe { call!(ort.CreateCUDAProviderOptions(&mut raw)).context("CUDA options")? };
        let options = RawOptions(raw);
        let mut keys: Vec<CString> = Vec::new();
        let mut values: Vec<CString> = Vec::new();
        for (key, value) in &self.entries {
            keys.push(c_string("CUDA option", key)?);
            values.push(c_string("CUDA option value", value)?);
        }
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|text| text.as_ptr()).collect()
        };
        let (key_pointers, value_pointers) = (pointers(&keys), pointers(&values));
        // SAFETY: the options are alive, both lists have the length that is passed, and the strings are copied.
        unsafe {
            call!(ort.UpdateCUDAProviderOptions(
                options.0,
                key_pointers.as_ptr(),
                value_pointers.as_ptr(),
                key_pointers.len(),
            ))
            .context("CUDA options")?;
            if let Some(stream) = self.stream {
                call!(ort.UpdateCUDAProviderOptionsWithValue(
                    options.0,
                    c"user_compute_stream".as_ptr(),
                    stream.as_ptr(),
                ))
                .context("CUDA options: user_compute_stream")?;
            }
            call!(ort.SessionOptionsAppendExecutionProvider_CUDA_V2(session_options, options.0))
                .context("CUDA execution provider")
        }
    }
}

struct RawOptions(*mut sys::OrtCUDAProviderOptionsV2);

impl Drop for RawOptions {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { release!(ort.ReleaseCUDAProviderOptions(self.0)) };
    }
}

/// A tensor in device memory (wraps `OrtValue`): it can be fed to a step, but the host cannot read it, so there is no
/// access to its elements. It never outlives the memory it was made over.
pub struct DeviceTensor<'a, T: TensorElement> {
    value: Value,
    memory: PhantomData<&'a T>,
}

impl<T: TensorElement> DeviceTensor<'_, T> {
    /// Wraps device memory without copying it (wraps `OrtApi::CreateTensorWithDataAsOrtValue`).
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
        // SAFETY: by the contract of this function; the elements are lent.
        let value = unsafe { Value::from_device::<T>(memory, shape.as_ref(), data.as_ptr()) }?;
        Ok(Self {
            value,
            memory: PhantomData,
        })
    }

    /// The dimensions, outermost first; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.value.shape().unwrap_or_default()
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }
}

impl<T: TensorElement> fmt::Debug for DeviceTensor<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DeviceTensor({} {})",
            T::ELEMENT_TYPE,
            Dimensions(self.shape())
        )
    }
}
