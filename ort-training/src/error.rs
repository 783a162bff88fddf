//! What can go wrong, in ONNX Runtime's terms plus ours.

use std::fmt;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure it was: ONNX Runtime's `OrtErrorCode`.
///
/// Checks that this crate makes before it calls ONNX Runtime use the same codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// `ORT_FAIL`: a failure without a more precise code.
    Fail,
    /// `ORT_INVALID_ARGUMENT`: an argument that does not fit.
    InvalidArgument,
    /// `ORT_NO_SUCHFILE`: a file that is not there.
    NoSuchFile,
    /// `ORT_NO_MODEL`: no model was loaded.
    NoModel,
    /// `ORT_ENGINE_ERROR`.
    EngineError,
    /// `ORT_RUNTIME_EXCEPTION`: a C++ exception, caught at the C boundary.
    RuntimeException,
    /// `ORT_INVALID_PROTOBUF`: bytes that are not the model format.
    InvalidProtobuf,
    /// `ORT_MODEL_LOADED`: a model was loaded already.
    ModelLoaded,
    /// `ORT_NOT_IMPLEMENTED`: this build of ONNX Runtime cannot do it.
    NotImplemented,
    /// `ORT_INVALID_GRAPH`: a model whose graph is not valid.
    InvalidGraph,
    /// `ORT_EP_FAIL`: an execution provider failed.
    ExecutionProviderFail,
    /// A code that this crate does not know.
    Unknown(u32),
}

impl ErrorCode {
    /// The code of an `OrtErrorCode` value.
    #[must_use]
    pub const fn from_raw(code: u32) -> Self {
        match code {
            1 => Self::Fail,
            2 => Self::InvalidArgument,
            3 => Self::NoSuchFile,
            4 => Self::NoModel,
            5 => Self::EngineError,
            6 => Self::RuntimeException,
            7 => Self::InvalidProtobuf,
            8 => Self::ModelLoaded,
            9 => Self::NotImplemented,
            10 => Self::InvalidGraph,
            11 => Self::ExecutionProviderFail,
            other => Self::Unknown(other),
        }
    }

    /// The value of `OrtErrorCode` for this code.
    #[must_use]
    pub const fn as_raw(self) -> u32 {
        match self {
            Self::Fail => 1,
            Self::InvalidArgument => 2,
            Self::NoSuchFile => 3,
            Self::NoModel => 4,
            Self::EngineError => 5,
            Self::RuntimeException => 6,
            Self::InvalidProtobuf => 7,
            Self::ModelLoaded => 8,
            Self::NotImplemented => 9,
            Self::InvalidGraph => 10,
            Self::ExecutionProviderFail => 11,
            Self::Unknown(other) => other,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail => f.write_str("fail"),
            Self::InvalidArgument => f.write_str("invalid argument"),
            Self::NoSuchFile => f.write_str("no such file"),
            Self::NoModel => f.write_str("no model"),
            Self::EngineError => f.write_str("engine error"),
            Self::RuntimeException => f.write_str("runtime exception"),
            Self::InvalidProtobuf => f.write_str("invalid protobuf"),
            Self::ModelLoaded => f.write_str("model loaded"),
            Self::NotImplemented => f.write_str("not implemented"),
            Self::InvalidGraph => f.write_str("invalid graph"),
            Self::ExecutionProviderFail => f.write_str("execution provider failure"),
            Self::Unknown(code) => write!(f, "unknown error code {code}"),
        }
    }
}

/// A failure: its code, the message of whoever found it, and what was being done (wraps `OrtStatus`).
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: ErrorCode,
    message: String,
    context: Option<String>,
    from_onnx_runtime: bool,
}

impl Error {
    /// A failure that this crate found itself.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            context: None,
            from_onnx_runtime: false,
        }))
    }

    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    /// A failure that ONNX Runtime reported.
    pub(crate) fn from_ort(code: u32, message: String) -> Self {
        Self(Box::new(Inner {
            code: ErrorCode::from_raw(code),
            message,
            context: None,
            from_onnx_runtime: true,
        }))
    }

    /// A failure of the operating system, about `subject` (mostly a path).
    pub(crate) fn io(subject: impl fmt::Display, error: &std::io::Error) -> Self {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorCode::NoSuchFile,
            _ => ErrorCode::Fail,
        };
        Self::new(code, format!("{subject}: {error}"))
    }

    /// Says what was being done, outermost first.
    #[must_use]
    pub(crate) fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.context = Some(match self.0.context.take() {
            Some(inner) => format!("{context}: {inner}"),
            None => context.to_string(),
        });
        self
    }

    /// The kind of failure.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// The message of whoever found it; ONNX Runtime's own words, unchanged, when it was ONNX Runtime.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What was being done when it failed, where that says more than the message.
    #[must_use]
    pub fn context_text(&self) -> Option<&str> {
        self.0.context.as_deref()
    }

    /// Whether ONNX Runtime reported it (otherwise a check of this crate did, before the call).
    #[must_use]
    pub fn is_from_onnx_runtime(&self) -> bool {
        self.0.from_onnx_runtime
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(context) = &self.0.context {
            write!(f, "{context}: ")?;
        }
        if self.0.from_onnx_runtime {
            write!(f, "ONNX Runtime: {}: {}", self.0.code, self.0.message)
        } else {
            f.write_str(&self.0.message)
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {self})", self.0.code)
    }
}

impl std::error::Error for Error {}

/// Adds what was being done to a failure.
pub(crate) trait Context<T> {
    fn context(self, context: impl fmt::Display) -> Result<T>;
    fn with_context<D: fmt::Display>(self, context: impl FnOnce() -> D) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    #[inline]
    fn context(self, context: impl fmt::Display) -> Result<T> {
        self.map_err(|error| error.context(context))
    }

    fn with_context<D: fmt::Display>(self, context: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.context(context()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_go_both_ways() {
        for raw in 1..20 {
            assert_eq!(ErrorCode::from_raw(raw).as_raw(), raw);
        }
        assert_eq!(ErrorCode::from_raw(4711), ErrorCode::Unknown(4711));
    }

    #[test]
    fn context_is_outermost_first() {
        let error = Error::invalid_argument("expected 2, found 3")
            .context("input x")
            .context("training step");
        assert_eq!(
            error.to_string(),
            "training step: input x: expected 2, found 3"
        );
        assert!(!error.is_from_onnx_runtime());
    }

    #[test]
    fn errors_cross_threads() {
        fn check<T: Send + Sync + std::error::Error + 'static>() {}
        check::<Error>();
    }
}
