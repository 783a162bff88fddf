//! Properties: what a training loop notes down in its checkpoint.

use std::fmt;

/// The value of a checkpoint's property (wraps the three kinds of `OrtPropertyType`).
#[derive(Debug, Clone, PartialEq)]
pub enum Property {
    /// `OrtIntProperty`.
    Int(i64),
    /// `OrtFloatProperty`.
    Float(f32),
    /// `OrtStringProperty`.
    String(String),
}

/// The kind of a [`Property`] (wraps `OrtPropertyType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PropertyKind {
    /// A 64-bit integer.
    Int,
    /// A 32-bit float.
    Float,
    /// A string without NUL.
    String,
}

impl Property {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> PropertyKind {
        match self {
            Self::Int(_) => PropertyKind::Int,
            Self::Float(_) => PropertyKind::Float,
            Self::String(_) => PropertyKind::String,
        }
    }
}

impl fmt::Display for PropertyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int => "int",
            Self::Float => "float",
            Self::String => "string",
        })
    }
}

impl From<i64> for Property {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f32> for Property {
    fn from(value: f32) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Property {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<String> for Property {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}
