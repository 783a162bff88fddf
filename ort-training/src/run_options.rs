//! Settings of a single run.

use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use ort_training_sys as sys;

use crate::api::{call, release};
use crate::environment::LogSeverity;
use crate::error::{Error, ErrorCode, Result};
use crate::text::c_string;

/// Settings of a run (wraps `OrtRunOptions`): a tag for the log, a log severity, and the flag that ends runs early from
/// another thread.
///
/// # What ONNX Runtime does with them
///
/// [`InferenceSession`](crate::InferenceSession) honours all of them: a run looks at the flag between operators. The
/// training calls of ONNX Runtime 1.17 to 1.21 take run options and **ignore** them (training_session.cc drops the
/// argument), so a step that has begun cannot be ended. This crate looks at the flag before each training,
/// evaluation and optimizer step: a step that is asked for after [`terminate`](Self::terminate) fails and changes nothing.
///
/// Any thread may call [`terminate`](Self::terminate); share the options by reference or in an `Arc`.
pub struct RunOptions {
    raw: NonNull<sys::OrtRunOptions>,
    terminated: AtomicBool,
}

// SAFETY: OrtRunOptions is a plain C++ object (run_options.h) without ties to a thread.
unsafe impl Send for RunOptions {}
// SAFETY: through a shared reference only the flag changes, which the C API is made to set from another thread
// (RunOptionsSetTerminate: "will be terminated as soon as possible"); everything else needs a mutable one.
unsafe impl Sync for RunOptions {}

impl RunOptions {
    /// ONNX Runtime's defaults (wraps `OrtApi::CreateRunOptions`).
    ///
    /// # Errors
    /// The loaded library is too old.
    pub fn new() -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` receives an object that is ours.
        unsafe { call!(ort.CreateRunOptions(&mut raw))? };
        let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("CreateRunOptions"))?;
        Ok(Self {
            raw,
            terminated: AtomicBool::new(false),
        })
    }

    /// Sets the tag that the run's log lines carry (wraps `OrtApi::RunOptionsSetRunTag`).
    ///
    /// # Errors
    /// A NUL in the tag.
    pub fn set_tag(&mut self, tag: &str) -> Result<()> {
        let tag = c_string("run tag", tag)?;
        // SAFETY: the options are alive; the tag is copied.
        unsafe { call!(ort.RunOptionsSetRunTag(self.raw.as_ptr(), tag.as_ptr())) }
    }

    /// The tag (wraps `OrtApi::RunOptionsGetRunTag`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn tag(&self) -> Result<String> {
        let mut tag = std::ptr::null();
        // SAFETY: the options are alive; the string belongs to them and is copied here.
        unsafe {
            call!(ort.RunOptionsGetRunTag(self.raw.as_ptr(), &mut tag))?;
            Ok(CStr::from_ptr(tag).to_string_lossy().into_owned())
        }
    }

    /// From which severity on the run logs (wraps `OrtApi::RunOptionsSetRunLogSeverityLevel`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn set_log_severity(&mut self, severity: LogSeverity) -> Result<()> {
        // SAFETY: the options are alive.
        unsafe { call!(ort.RunOptionsSetRunLogSeverityLevel(self.raw.as_ptr(), severity as i32)) }
    }

    /// The number of the severity from which on the run logs, -1 unless it was set
    /// (wraps `OrtApi::RunOptionsGetRunLogSeverityLevel`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn log_severity(&self) -> Result<i32> {
        let mut severity = 0;
        // SAFETY: the options are alive.
        unsafe {
            call!(ort.RunOptionsGetRunLogSeverityLevel(self.raw.as_ptr(), &mut severity))?;
        }
        Ok(severity)
    }

    /// Ends the runs that use these options as soon as they notice, and keeps later ones from beginning
    /// (wraps `OrtApi::RunOptionsSetTerminate`). See the type for what notices it.
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn terminate(&self) -> Result<()> {
        self.terminated.store(true, Ordering::Release);
        // SAFETY: the options are alive; the C API allows this while they are in use.
        unsafe { call!(ort.RunOptionsSetTerminate(self.raw.as_ptr())) }
    }

    /// Takes [`terminate`](Self::terminate) back (wraps `OrtApi::RunOptionsUnsetTerminate`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn unset_terminate(&self) -> Result<()> {
        self.terminated.store(false, Ordering::Release);
        // SAFETY: as above.
        unsafe { call!(ort.RunOptionsUnsetTerminate(self.raw.as_ptr())) }
    }

    /// Whether [`terminate`](Self::terminate) was called.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.terminated.load(Ordering::Acquire)
    }

    /// Fails if the flag is set: what the training calls do instead of ONNX Runtime.
    pub(crate) fn ensure_running(options: Option<&Self>, call: &str) -> Result<()> {
        match options {
            Some(options) if options.is_terminated() => Err(Error::new(
                ErrorCode::Fail,
                format!("{call}: not begun, because the terminate flag of its run options is set"),
            )),
            _ => Ok(()),
        }
    }

    /// The pointer, or NULL for none.
    pub(crate) fn pointer(options: Option<&Self>) -> *const sys::OrtRunOptions {
        options.map_or(std::ptr::null(), |options| options.raw.as_ptr())
    }
}

impl Drop for RunOptions {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { release!(ort.ReleaseRunOptions(self.raw.as_ptr())) };
    }
}

impl fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("tag", &self.tag().unwrap_or_default())
            .field("is_terminated", &self.is_terminated())
            .finish()
    }
}
