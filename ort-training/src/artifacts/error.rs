//! What can go wrong while artifacts are made.

use std::fmt;
use std::path::PathBuf;

/// A failure to make training artifacts. Nothing is written when one is returned.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArtifactsError {
    /// The ONNX Runtime in this process cannot make artifacts.
    Unavailable(String),
    /// The bytes are not an ONNX model that this crate and ONNX Runtime can read.
    InvalidModel(String),
    /// Data that the model keeps in another file is missing, or not what the model says.
    ExternalData(String),
    /// A parameter, output or input of that name does not exist, or cannot be what it was asked to be.
    Name(String),
    /// The loss does not fit the output it is computed from.
    Loss(String),
    /// The optimizer cannot train these parameters, or a setting is out of its range.
    Optimizer(String),
    /// Operators between parameters and the loss cannot be differentiated.
    NotDifferentiable(Vec<RefusedNode>),
    /// A size that protobuf or the checkpoint format cannot hold.
    TooLarge(String),
    /// A message from ONNX Runtime itself.
    Runtime(String),
    /// A file could not be read or written.
    Io {
        /// What was done to which file.
        action: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A node that cannot be trained through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedNode {
    /// The operator's domain; empty for ONNX's own.
    pub domain: String,
    /// The operator.
    pub op_type: String,
    /// The node's name, or its first output when it has none.
    pub node: String,
    /// A parameter whose gradient would have to pass through it, when one is known.
    pub parameter: Option<String>,
    /// Why.
    pub reason: String,
}

/// The result of making artifacts.
pub type Result<T, E = ArtifactsError> = std::result::Result<T, E>;

impl ArtifactsError {
    pub(crate) fn io(action: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io {
            action: action.into(),
            source,
        }
    }

    pub(crate) fn reading(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::io(format!("reading {}", PathBuf::from(path).display()), source)
    }
}

impl fmt::Display for RefusedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op_type)?;
        if !self.domain.is_empty() {
            write!(f, " (domain {})", self.domain)?;
        }
        write!(f, " at node '{}'", self.node)?;
        if let Some(parameter) = &self.parameter {
            write!(f, ", on the way to parameter '{parameter}'")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl fmt::Display for ArtifactsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(text)
            | Self::InvalidModel(text)
            | Self::ExternalData(text)
            | Self::Name(text)
            | Self::Loss(text)
            | Self::Optimizer(text)
            | Self::TooLarge(text) => f.write_str(text),
            Self::Runtime(text) => write!(f, "ONNX Runtime: {text}"),
            Self::NotDifferentiable(nodes) => {
                f.write_str("the model cannot be differentiated")?;
                for node in nodes {
                    write!(f, "\n  {node}")?;
                }
                f.write_str(
                    "\nfreeze the parameters before these nodes, or replace the operators; \
                     differentiable_operators() lists those that have gradients",
                )
            }
            Self::Io { action, source } => write!(f, "{action}: {source}"),
        }
    }
}

impl std::error::Error for ArtifactsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
