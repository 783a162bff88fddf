//! ONNX models as protobuf messages: every field of ONNX 1.17's schema, so that nothing of a user's model is lost on
//! the way through, and helpers to make and read them.
//!
//! Tensor data is [`Bytes`]: a model decoded from [`Bytes`] shares its memory with the buffer it came from.

mod build;
mod data;
mod messages;
mod unknown;

pub(crate) use build::{
    attribute, initializer_f32, initializer_i64, node, scalar_f32, tensor_info,
};
pub(crate) use data::{TensorValues, element_size, type_name};
pub(crate) use unknown::unknown_fields;

pub use messages::*;

pub use prost::bytes::Bytes;
