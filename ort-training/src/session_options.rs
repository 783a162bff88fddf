//! Settings of sessions.

use std::fmt;
use std::path::Path;
use std::ptr::NonNull;

use ort_training_sys as sys;

use crate::api::{call, entry, release};
use crate::cuda::{CudaOptions, CudaStream};
use crate::environment::{Environment, LogSeverity};
use crate::error::{Error, Result};
use crate::text::{c_path, c_string};

/// How far a session rewrites its graph (wraps `GraphOptimizationLevel`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GraphOptimizationLevel {
    /// Not at all.
    DisableAll,
    /// Redundant nodes, constant folding.
    Basic,
    /// And fusions of nodes.
    Extended,
    /// And layouts (ONNX Runtime's default).
    All,
}

/// Settings of a session (wraps `OrtSessionOptions`).
///
/// May move between threads. It is not shared between them: building a training session changes the options it is given
/// (module.cc turns prepacking off in place), so builders work on a clone.
pub struct SessionOptions {
    raw: NonNull<sys::OrtSessionOptions>,
    has_device: bool,
    uses_environment_allocators: bool,
    /// What providers that were added run on.
    streams: Vec<CudaStream>,
}

// SAFETY: OrtSessionOptions is a plain C++ object without ties to a thread (abi_session_options_impl.h).
unsafe impl Send for SessionOptions {}

impl SessionOptions {
    /// ONNX Runtime's defaults (wraps `OrtApi::CreateSessionOptions`).
    ///
    /// # Errors
    /// The loaded library is too old.
    pub fn new() -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` receives an object that is ours.
        unsafe { call!(ort.CreateSessionOptions(&mut raw))? };
        let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("CreateSessionOptions"))?;
        Ok(Self {
            raw,
            has_device: false,
            uses_environment_allocators: false,
            streams: Vec::new(),
        })
    }

    /// A copy (wraps `OrtApi::CloneSessionOptions`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn try_clone(&self) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the options are alive; `raw` receives an object that is ours.
        unsafe { call!(ort.CloneSessionOptions(self.raw.as_ptr(), &mut raw))? };
        let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("CloneSessionOptions"))?;
        Ok(Self {
            raw,
            has_device: self.has_device,
            uses_environment_allocators: self.uses_environment_allocators,
            streams: self.streams.clone(),
        })
    }

    /// Threads that work inside of one operator; 0 lets ONNX Runtime choose (wraps `OrtApi::SetIntraOpNumThreads`).
    ///
    /// # Errors
    /// A number beyond 32 bits.
    pub fn with_intra_op_threads(self, threads: usize) -> Result<Self> {
        let threads = thread_count(threads)?;
        // SAFETY: the options are alive.
        unsafe { call!(ort.SetIntraOpNumThreads(self.raw.as_ptr(), threads))? };
        Ok(self)
    }

    /// Threads that run operators beside each other, with parallel execution only; 0 lets ONNX Runtime choose
    /// (wraps `OrtApi::SetInterOpNumThreads`).
    ///
    /// # Errors
    /// A number beyond 32 bits.
    pub fn with_inter_op_threads(self, threads: usize) -> Result<Self> {
        let threads = thread_count(threads)?;
        // SAFETY: the options are alive.
        unsafe { call!(ort.SetInterOpNumThreads(self.raw.as_ptr(), threads))? };
        Ok(self)
    }

    /// Whether operators may run beside each other (wraps `OrtApi::SetSessionExecutionMode`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn with_parallel_execution(self, parallel: bool) -> Result<Self> {
        let mode = sys::ExecutionMode(u32::from(parallel));
        // SAFETY: the options are alive; 0 and 1 are the two modes.
        unsafe { call!(ort.SetSessionExecutionMode(self.raw.as_ptr(), mode))? };
        Ok(self)
    }

    /// How far the graph is rewritten (wraps `OrtApi::SetSessionGraphOptimizationLevel`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn with_graph_optimization_level(self, level: GraphOptimizationLevel) -> Result<Self> {
        let level = sys::GraphOptimizationLevel(match level {
            GraphOptimizationLevel::DisableAll => 0,
            GraphOptimizationLevel::Basic => 1,
            GraphOptimizationLevel::Extended => 2,
            GraphOptimizationLevel::All => 99,
        });
        // SAFETY: the options are alive.
        unsafe { call!(ort.SetSessionGraphOptimizationLevel(self.raw.as_ptr(), level))? };
        Ok(self)
    }

    /// Whether kernels must be deterministic where they have a choice (wraps `OrtApi::SetDeterministicCompute`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn with_deterministic_compute(self, deterministic: bool) -> Result<Self> {
        // SAFETY: the options are alive.
        unsafe { call!(ort.SetDeterministicCompute(self.raw.as_ptr(), deterministic))? };
        Ok(self)
    }

    /// Whether host memory comes from an arena, the default (wraps `OrtApi::EnableCpuMemArena`, `DisableCpuMemArena`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn with_cpu_memory_arena(self, arena: bool) -> Result<Self> {
        // SAFETY: the options are alive.
        unsafe {
            if arena {
                call!(ort.EnableCpuMemArena(self.raw.as_ptr()))?;
            } else {
                call!(ort.DisableCpuMemArena(self.raw.as_ptr()))?;
            }
        }
        Ok(self)
    }

    /// Whether memory use is planned for input shapes seen before, the default (wraps `OrtApi::EnableMemPattern`,
    /// `DisableMemPattern`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn with_memory_pattern(self, pattern: bool) -> Result<Self> {
        // SAFETY: the options are alive.
        unsafe {
            if pattern {
                call!(ort.EnableMemPattern(self.raw.as_ptr()))?;
            } else {
                call!(ort.DisableMemPattern(self.raw.as_ptr()))?;
            }
        }
        Ok(self)
    }

    /// Any setting of `onnxruntime_session_options_config_keys.h` (wraps `OrtApi::AddSessionConfigEntry`).
    ///
    /// # Errors
    /// A NUL in key or value; an empty or overlong key.
    pub fn with_config_entry(mut self, key: &str, value: &str) -> Result<Self> {
        let c_key = c_string("config key", key)?;
        let c_value = c_string("config value", value)?;
        if self.config_entry(key)?.is_some() {
            // ONNX Runtime warns of a value that is replaced, and ends the process where there is no logger yet to warn
            // with (config_options.cc, `AddConfigEntry`, is `noexcept`).
            Environment::shared()?;
        }
        // SAFETY: the options are alive; both strings are copied.
        unsafe {
            call!(ort.AddSessionConfigEntry(self.raw.as_ptr(), c_key.as_ptr(), c_value.as_ptr()))?;
        }
        if key == "session.use_env_allocators" {
            self.uses_environment_allocators = value == "1";
        }
        Ok(self)
    }

    /// The value of a setting (wraps `OrtApi::GetSessionConfigEntry`), none if it is not set.
    ///
    /// # Errors
    /// A NUL in the key.
    pub fn config_entry(&self, key: &str) -> Result<Option<String>> {
        let key = c_string("config key", key)?;
        let mut present = 0;
        // SAFETY: the options are alive; the first call with no buffer asks for the length, terminator included.
        unsafe {
            call!(ort.HasSessionConfigEntry(self.raw.as_ptr(), key.as_ptr(), &mut present))?;
            if present == 0 {
                return Ok(None);
            }
            let mut size = 0;
            call!(ort.GetSessionConfigEntry(
                self.raw.as_ptr(),
                key.as_ptr(),
                std::ptr::null_mut(),
                &mut size,
            ))?;
            let mut text = vec![0u8; size];
            call!(ort.GetSessionConfigEntry(
                self.raw.as_ptr(),
                key.as_ptr(),
                text.as_mut_ptr().cast(),
                &mut size,
            ))?;
            text.truncate(size.saturating_sub(1));
            Ok(Some(String::from_utf8_lossy(&text).into_owned()))
        }
    }

    /// A fixed length for every dimension of the model that has this name
    /// (wraps `OrtApi::AddFreeDimensionOverrideByName`).
    ///
    /// # Errors
    /// A NUL in the name; a length beyond 63 bits.
    pub fn with_free_dimension(self, name: &str, length: usize) -> Result<Self> {
        let name = c_string("dimension name", name)?;
        let length = i64::try_from(length).map_err(|_| {
            Error::invalid_argument(format!(
                "dimension: expected a 63-bit length, found {length}"
            ))
        })?;
        // SAFETY: the options are alive; the name is copied.
        unsafe {
            call!(ort.AddFreeDimensionOverrideByName(self.raw.as_ptr(), name.as_ptr(), length))?;
        }
        Ok(self)
    }

    /// From which severity on the session logs (wraps `OrtApi::SetSessionLogSeverityLevel`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn with_log_severity(self, severity: LogSeverity) -> Result<Self> {
        // SAFETY: the options are alive.
        unsafe { call!(ort.SetSessionLogSeverityLevel(self.raw.as_ptr(), severity as i32))? };
        Ok(self)
    }

    /// What the session's log lines carry as their id (wraps `OrtApi::SetSessionLogId`).
    ///
    /// # Errors
    /// A NUL in the id.
    pub fn with_log_id(self, id: &str) -> Result<Self> {
        let id = c_string("log id", id)?;
        // SAFETY: the options are alive; the id is copied.
        unsafe { call!(ort.SetSessionLogId(self.raw.as_ptr(), id.as_ptr()))? };
        Ok(self)
    }

    /// Writes a profile of the session's runs to files that begin with `prefix` (wraps `OrtApi::EnableProfiling`).
    ///
    /// # Errors
    /// A NUL in the path.
    pub fn with_profiling(self, prefix: impl AsRef<Path>) -> Result<Self> {
        let prefix = c_path(prefix.as_ref())?;
        // SAFETY: the options are alive; the path is copied.
        unsafe { call!(ort.EnableProfiling(self.raw.as_ptr(), prefix.as_ptr()))? };
        Ok(self)
    }

    /// Writes the rewritten graph to `path` (wraps `OrtApi::SetOptimizedModelFilePath`).
    ///
    /// # Errors
    /// A NUL in the path.
    pub fn with_optimized_model_path(self, path: impl AsRef<Path>) -> Result<Self> {
        let path = c_path(path.as_ref())?;
        // SAFETY: the options are alive; the path is copied.
        unsafe { call!(ort.SetOptimizedModelFilePath(self.raw.as_ptr(), path.as_ptr()))? };
        Ok(self)
    }

    /// Runs on a CUDA device what it can (wraps `OrtApi::SessionOptionsAppendExecutionProvider_CUDA_V2`).
    ///
    /// # Errors
    /// As [`CudaStatus::ensure`](crate::CudaStatus::ensure): what is missing; settings that the provider refuses.
    pub fn with_cuda(mut self, options: &CudaOptions) -> Result<Self> {
        options.append_to(self.raw.as_ptr())?;
        self.has_device = true;
        self.streams.extend(options.kept_stream().cloned());
        Ok(self)
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::OrtSessionOptions {
        self.raw.as_ptr()
    }

    /// Whether an execution provider with memory of its own was added.
    pub(crate) fn has_device(&self) -> bool {
        self.has_device
    }

    pub(crate) fn streams(&self) -> &[CudaStream] {
        &self.streams
    }

    pub(crate) fn uses_environment_allocators(&self) -> bool {
        self.uses_environment_allocators
    }
}

fn thread_count(threads: usize) -> Result<i32> {
    i32::try_from(threads).map_err(|_| {
        Error::invalid_argument(format!(
            "threads: expected at most {}, found {threads}",
            i32::MAX
        ))
    })
}

impl Drop for SessionOptions {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { release!(ort.ReleaseSessionOptions(self.raw.as_ptr())) };
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions").finish_non_exhaustive()
    }
}

/// The execution providers that this ONNX Runtime was built with, in order of preference
/// (wraps `OrtApi::GetAvailableProviders`).
///
/// # Errors
/// The loaded library is too old.
pub fn available_providers() -> Result<Vec<String>> {
    let mut names = std::ptr::null_mut();
    let mut count = 0;
    // SAFETY: ONNX Runtime allocates the list; it is copied, then given back once.
    unsafe {
        call!(ort.GetAvailableProviders(&mut names, &mut count))?;
        let providers = (0..usize::try_from(count).unwrap_or(0))
            .map(|index| {
                std::ffi::CStr::from_ptr(*names.add(index))
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        let release = entry!(ort.ReleaseAvailableProviders)?;
        crate::api::check(release(names, count))?;
        Ok(providers)
    }
}
