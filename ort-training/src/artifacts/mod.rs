//! Training artifacts from a forward ONNX model, without Python.
//!
//! [`ArtifactsBuilder`] takes a model and makes what a training session starts from: `training_model.onnx` (forward,
//! loss, gradients), `eval_model.onnx`, `optimizer_model.onnx` and `checkpoint`, as ONNX Runtime's Python package
//! `onnxruntime-training` did. The gradients are ONNX Runtime's own: the library has to be built with the artifact
//! maker (feature `artifacts`), and [`is_available`] says whether it is.
//!
//! Everything here may be used from several threads at once.

mod analysis;
mod assemble;
mod builder;
mod error;
mod evaluation;
mod loss;
mod model;
mod names;
mod native;
pub mod onnx;
mod optimizer;
mod output;
mod parameters;
mod report;
mod rewrite;
mod session;
mod training;

pub use builder::{
    ArtifactsBuilder, BatchNorm, check_model, differentiable_operators, is_available,
};
pub use error::{ArtifactsError, RefusedNode, Result};
pub use evaluation::{evaluation_form, without_dropout};
pub use loss::{BceWithLogits, CrossEntropy, Loss, Reduction};
pub use optimizer::{AdamW, AdamWVariant, Optimizer};
pub use output::{ArtifactBytes, ArtifactPaths, Artifacts};
pub use report::{Report, Rewrite};
