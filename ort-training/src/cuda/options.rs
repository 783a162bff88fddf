//! Settings of the CUDA execution provider.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr::NonNull;

use ort_training_sys as sys;

use super::status::CudaStatus;
use super::stream::CudaStream;
use crate::api::{call, release};
use crate::error::{Context, Error, ErrorCode, Result};
use crate::text::{allocated_string, c_string};

/// How the arena of device memory grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArenaExtendStrategy {
    /// By doubling (the default).
    NextPowerOfTwo,
    /// By what is asked for.
    SameAsRequested,
}

/// How cuDNN's convolution algorithms are chosen (wraps `OrtCudnnConvAlgoSearch`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CudnnConvAlgoSearch {
    /// By timing all of them for each new shape (the default).
    Exhaustive,
    /// By cuDNN's rules of thumb.
    Heuristic,
    /// Always the same one.
    Default,
}

/// Settings of the CUDA execution provider (wraps `OrtCUDAProviderOptionsV2`). Making them needs no device; adding them
/// to a session does.
#[derive(Debug, Clone)]
#[must_use]
pub struct CudaOptions {
    device_id: u32,
    entries: BTreeMap<String, String>,
    stream: Option<NonNull<c_void>>,
    kept_stream: Option<CudaStream>,
}

// SAFETY: the stream is only passed on; whoever gave it promised that it may be used with the session, from its thread.
unsafe impl Send for CudaOptions {}

const CUDA_GRAPH: &str = "enable_cuda_graph";

impl CudaOptions {
    /// The device with this number, with ONNX Runtime's defaults.
    pub fn device(device_id: u32) -> Self {
        Self {
            device_id,
            entries: BTreeMap::new(),
            stream: None,
            kept_stream: None,
        }
    }

    /// The number of the device.
    #[must_use]
    pub fn device_id(&self) -> u32 {
        self.device_id
    }

    /// The most device memory the arena may take, in bytes (`gpu_mem_limit`; no limit by default). Each of a training
    /// session's models shares the one arena of its provider.
    pub fn memory_limit(self, bytes: usize) -> Self {
        self.entry("gpu_mem_limit", bytes.to_string())
    }

    /// How the arena grows (`arena_extend_strategy`).
    pub fn arena_extend_strategy(self, strategy: ArenaExtendStrategy) -> Self {
        let name = match strategy {
            ArenaExtendStrategy::NextPowerOfTwo => "kNextPowerOfTwo",
            ArenaExtendStrategy::SameAsRequested => "kSameAsRequested",
        };
        self.entry("arena_extend_strategy", name)
    }

    /// How cuDNN's convolution algorithms are chosen (`cudnn_conv_algo_search`). Timing them makes the first step with a
    /// shape slow, and two runs may choose differently and so round differently.
    pub fn cudnn_conv_algo_search(self, search: CudnnConvAlgoSearch) -> Self {
        let name = match search {
            CudnnConvAlgoSearch::Exhaustive => "EXHAUSTIVE",
            CudnnConvAlgoSearch::Heuristic => "HEURISTIC",
            CudnnConvAlgoSearch::Default => "DEFAULT",
        };
        self.entry("cudnn_conv_algo_search", name)
    }

    /// Whether float32 products may be computed in TF32, with 10 bits of mantissa (`use_tf32`; on by default).
    pub fn use_tf32(self, allowed: bool) -> Self {
        self.entry("use_tf32", if allowed { "1" } else { "0" })
    }

    /// Any setting that the CUDA execution provider knows (wraps `OrtApi::UpdateCUDAProviderOptions`). A later value for a
    /// key replaces an earlier one.
    ///
    /// `enable_cuda_graph` is refused when the options are used: a captured training step would repeat the value that
    /// `lazy_reset_grad` had when it was captured and the addresses of inputs that are new in every step, and so compute
    /// wrong gradients without a word.
    pub fn entry(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        match value.parse() {
            Ok(device_id) if key == "device_id" => {
                self.device_id = device_id;
                self.entries.remove("device_id");
            }
            _ => {
                self.entries.insert(key, value);
            }
        }
        self
    }

    /// Runs everything on this stream (wraps `OrtApi::UpdateCUDAProviderOptionsWithValue`); the sessions keep it alive.
    pub fn stream(mut self, stream: &CudaStream) -> Self {
        self.stream = NonNull::new(stream.as_ptr());
        self.kept_stream = Some(stream.clone());
        self
    }

    /// Runs everything on a stream of the caller's (wraps `OrtApi::UpdateCUDAProviderOptionsWithValue`).
    ///
    /// # Safety
    /// `stream` is a `cudaStream_t` of the device that stays alive until the last session made with these options is
    /// dropped, and may be used from the threads that use these sessions.
    pub unsafe fn user_compute_stream(mut self, stream: NonNull<c_void>) -> Self {
        self.stream = Some(stream);
        self.kept_stream = None;
        self
    }

    pub(crate) fn kept_stream(&self) -> Option<&CudaStream> {
        self.kept_stream.as_ref()
    }

    /// All settings as the provider takes them, its defaults included (wraps `OrtApi::GetCUDAProviderOptionsAsString`).
    ///
    /// # Errors
    /// As [`CudaStatus::ensure`]; a setting that the provider does not know or accept.
    pub fn effective(&self) -> Result<BTreeMap<String, String>> {
        let options = self.create()?;
        let text = allocated_string("CUDA options", |allocator, out| {
            // SAFETY: the options are alive; the string is ours.
            unsafe { call!(ort.GetCUDAProviderOptionsAsString(options.0, allocator, out)) }
        })?;
        Ok(parse(&text))
    }

    /// Refuses what training cannot use, without needing a device.
    fn check(&self) -> Result<()> {
        let is_on = |value: &&String| !matches!(value.as_str(), "0" | "false" | "False");
        if let Some(value) = self.entries.get(CUDA_GRAPH).filter(is_on) {
            return Err(Error::invalid_argument(format!(
                "CUDA options: {CUDA_GRAPH}: expected \"0\", found {value:?}: a captured step would repeat the flag that resets \
                 gradients, and the addresses of its inputs"
            )));
        }
        let stream = self.kept_stream.as_ref();
        let elsewhere = stream
            .map(|stream| stream.device().ordinal())
            .filter(|device| *device != self.device_id);
        if let Some(device) = elsewhere {
            return Err(Error::invalid_argument(format!(
                "CUDA options: expected a stream of device {}, found one of device {device}",
                self.device_id
            )));
        }
        Ok(())
    }

    fn create(&self) -> Result<RawOptions> {
        const CALL: &str = "CUDA options";
        self.check()?;
        CudaStatus::probe().ensure(self.device_id)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` receives an object that is ours until the guard releases it.
        unsafe { call!(ort.CreateCUDAProviderOptions(&mut raw)).context(CALL)? };
        let options = RawOptions(raw);
        let mut keys: Vec<CString> = vec![c"device_id".to_owned()];
        let mut values: Vec<CString> = vec![c_string("CUDA device", &self.device_id.to_string())?];
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
            .context(CALL)?;
            if let Some(stream) = self.stream {
                call!(ort.UpdateCUDAProviderOptionsWithValue(
                    options.0,
                    c"user_compute_stream".as_ptr(),
                    stream.as_ptr(),
                ))
                .context("CUDA options: user_compute_stream")?;
            }
        }
        Ok(options)
    }

    pub(crate) fn append_to(&self, session_options: *mut sys::OrtSessionOptions) -> Result<()> {
        let options = self.create()?;
        // SAFETY: both are alive; ONNX Runtime copies the settings.
        unsafe {
            call!(ort.SessionOptionsAppendExecutionProvider_CUDA_V2(session_options, options.0))
        }
        .map_err(|error| {
            let code = error.code();
            let error = error.context("CUDA execution provider");
            if code == ErrorCode::Fail {
                // ONNX Runtime says why in its log only.
                return error.context(
                    "the provider's library was found with all that it needs, and ONNX Runtime's log says more",
                );
            }
            error
        })
    }
}

/// ONNX Runtime joins keys and values with `=` and `;`.
fn parse(text: &str) -> BTreeMap<String, String> {
    text.split(';')
        .filter_map(|entry| entry.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

struct RawOptions(*mut sys::OrtCUDAProviderOptionsV2);

impl Drop for RawOptions {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { release!(ort.ReleaseCUDAProviderOptions(self.0)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back() {
        let read = parse("device_id=1;gpu_mem_limit=18446744073709551615;use_tf32=0");
        assert_eq!(read.len(), 3);
        assert_eq!(read["device_id"], "1");
        assert_eq!(read["use_tf32"], "0");
    }

    #[test]
    fn captured_graphs_are_refused() {
        for value in ["1", "true", "2"] {
            let error = CudaOptions::device(0)
                .entry(CUDA_GRAPH, value)
                .check()
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(CUDA_GRAPH) && error.contains(value),
                "{error}"
            );
        }
        CudaOptions::device(0)
            .entry(CUDA_GRAPH, "0")
            .check()
            .unwrap();
    }

    #[test]
    fn the_device_may_be_given_as_a_setting() {
        let options = CudaOptions::device(0).entry("device_id", "3");
        assert_eq!(options.device_id(), 3);
        assert!(options.entries.is_empty());
    }
}
