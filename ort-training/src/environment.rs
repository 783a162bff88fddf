//! The environment that every session lives in.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use ort_training_sys as sys;

use crate::api::call;
use crate::error::Result;
use crate::text::c_string;

/// How grave a line of ONNX Runtime's log is (wraps `OrtLoggingLevel`).
///
/// In the `log` crate: verbose is trace, info is info, warning is warn, error and fatal are error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum LogSeverity {
    /// `ORT_LOGGING_LEVEL_VERBOSE`.
    Verbose = 0,
    /// `ORT_LOGGING_LEVEL_INFO`.
    Info = 1,
    /// `ORT_LOGGING_LEVEL_WARNING`.
    Warning = 2,
    /// `ORT_LOGGING_LEVEL_ERROR`.
    Error = 3,
    /// `ORT_LOGGING_LEVEL_FATAL`.
    Fatal = 4,
}

impl LogSeverity {
    pub(crate) fn raw(self) -> sys::OrtLoggingLevel {
        sys::OrtLoggingLevel(self as u32)
    }

    /// The gravest level that the `log` crate lets through, as a severity.
    fn of_log_crate() -> Self {
        match log::max_level() {
            log::LevelFilter::Trace => Self::Verbose,
            log::LevelFilter::Debug | log::LevelFilter::Info => Self::Info,
            log::LevelFilter::Warn => Self::Warning,
            log::LevelFilter::Error => Self::Error,
            log::LevelFilter::Off => Self::Fatal,
        }
    }
}

/// ONNX Runtime's process-wide environment (wraps `OrtEnv`): one per process, shared, and never released, so that it
/// outlives every session, checkpoint and value.
///
/// ONNX Runtime keeps a single `OrtEnv` per process and hands it out again for every later `CreateEnv`; the first one
/// decides its name and logger. So does this: building a second one returns the first. Its log goes to the [`log`]
/// crate: the target is `onnxruntime`, file and line are those of ONNX Runtime's source, and the message starts
/// with ONNX Runtime's category in brackets.
///
/// Any thread may use it: `OrtEnv` guards itself with a lock (ort_env.cc), and sessions only read it.
#[derive(Clone, Copy)]
pub struct Environment {
    raw: NonNull<sys::OrtEnv>,
}

// SAFETY: OrtEnv is a process-wide singleton made for use from every thread (ort_env.cc locks; sessions take it const).
unsafe impl Send for Environment {}
// SAFETY: as above.
unsafe impl Sync for Environment {}

static SHARED: Mutex<Option<Environment>> = Mutex::new(None);

impl Environment {
    /// Starts an environment whose log lines carry `name`.
    ///
    /// ```
    /// use ort_training::Environment;
    /// let env = Environment::builder("digits").build()?;
    /// # Ok::<(), ort_training::Error>(())
    /// ```
    pub fn builder(name: &str) -> EnvironmentBuilder {
        EnvironmentBuilder {
            name: name.to_owned(),
            severity: None,
        }
    }

    /// The environment of this process, made with default settings if there is none yet.
    ///
    /// # Errors
    /// The loaded library is too old, or cannot start.
    pub fn shared() -> Result<Self> {
        Self::builder("ort-training").build()
    }

    /// Sets from which severity on ONNX Runtime logs, for the whole process and sessions built from now on
    /// (wraps `OrtApi::UpdateEnvWithCustomLogLevel`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn set_log_severity(&self, severity: LogSeverity) -> Result<()> {
        // SAFETY: the environment is never released.
        unsafe { call!(ort.UpdateEnvWithCustomLogLevel(self.raw.as_ptr(), severity.raw())) }
    }

    pub(crate) fn as_ptr(&self) -> *const sys::OrtEnv {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

/// Settings of an [`Environment`].
#[derive(Debug, Clone)]
#[must_use]
pub struct EnvironmentBuilder {
    name: String,
    severity: Option<LogSeverity>,
}

impl EnvironmentBuilder {
    /// From which severity on ONNX Runtime logs. Default: what the `log` crate lets through at this moment.
    pub fn log_severity(mut self, severity: LogSeverity) -> Self {
        self.severity = Some(severity);
        self
    }

    /// Makes the environment (wraps `OrtApi::CreateEnvWithCustomLogger`), or returns the one that the process has; then
    /// only an explicit severity is taken over.
    ///
    /// # Errors
    /// The name holds a NUL; the loaded library is too old, or cannot start.
    pub fn build(self) -> Result<Environment> {
        let name: CString = c_string("environment name", &self.name)?;
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(environment) = *shared {
            if let Some(severity) = self.severity {
                environment.set_log_severity(severity)?;
            }
            return Ok(environment);
        }
        let severity = self.severity.unwrap_or_else(LogSeverity::of_log_crate);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the function lives as long as the process and takes no parameter; `raw` receives the environment.
        unsafe {
            call!(ort.CreateEnvWithCustomLogger(
                Some(log_line),
                std::ptr::null_mut(),
                severity.raw(),
                name.as_ptr(),
                &mut raw,
            ))?;
        }
        let Some(raw) = NonNull::new(raw) else {
            return Err(crate::api::missing("CreateEnvWithCustomLogger"));
        };
        Ok(*shared.insert(Environment { raw }))
    }
}

/// Receives every line of ONNX Runtime's log, from any of its threads.
unsafe extern "C" fn log_line(
    _parameter: *mut c_void,
    severity: sys::OrtLoggingLevel,
    category: *const c_char,
    log_id: *const c_char,
    location: *const c_char,
    message: *const c_char,
) {
    let text = |pointer: *const c_char| {
        if pointer.is_null() {
            return std::borrow::Cow::Borrowed("");
        }
        // SAFETY: ONNX Runtime passes terminated strings that live through this call.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy()
    };
    // A logger that panics must not unwind into C++.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let level = match severity.0 {
            0 => log::Level::Trace,
            1 => log::Level::Info,
            2 => log::Level::Warn,
            _ => log::Level::Error,
        };
        let metadata = log::Metadata::builder()
            .level(level)
            .target(LOG_TARGET)
            .build();
        if level > log::max_level() || !log::logger().enabled(&metadata) {
            return;
        }
        let location = text(location);
        let (file, line) = split_location(&location);
        let category = text(category);
        let log_id = text(log_id);
        let separator = if log_id.is_empty() { "" } else { " " };
        let message = text(message);
        let mut record = log::Record::builder();
        record.metadata(metadata).file(Some(file)).line(line);
        log::logger().log(
            &record
                .args(format_args!(
                    "[{category}{separator}{log_id}] {message} ({location})"
                ))
                .build(),
        );
    }));
}

const LOG_TARGET: &str = "onnxruntime";

/// ONNX Runtime writes a location as `file.cc:123 function`.
fn split_location(location: &str) -> (&str, Option<u32>) {
    let place = location
        .split_once(' ')
        .map_or(location, |(place, _)| place);
    match place.rsplit_once(':') {
        Some((file, line)) => match line.parse() {
            Ok(line) => (file, Some(line)),
            Err(_) => (place, None),
        },
        None => (place, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        assert_eq!(
            split_location("graph.cc:42 Resolve"),
            ("graph.cc", Some(42))
        );
        assert_eq!(split_location("graph.cc"), ("graph.cc", None));
        assert_eq!(split_location("a:b c"), ("a:b", None));
    }
}
