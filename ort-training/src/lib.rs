//! Safe, thin bindings to ONNX Runtime's training C API: train, evaluate, save, resume and export models from Rust.
//!
//! Training starts from four files, the *artifacts*: `training_model.onnx`, `eval_model.onnx`, `optimizer_model.onnx` and
//! `checkpoint`. Names follow the C API, ownership follows Rust; every item says which C function it wraps.
//!
//! ```no_run
//! use ort_training::{Environment, OptimizerState, Tensor, TrainingSession};
//!
//! # fn batches() -> Vec<(Tensor<f32>, Tensor<i64>)> { Vec::new() }
//! let env = Environment::builder("digits").build()?;
//! let mut session = TrainingSession::builder(&env)
//!     .artifacts("artifacts/")?
//!     .build()?;
//! session.set_learning_rate(1e-3)?;
//! for (images, labels) in batches() {
//!     let loss: f32 = session.train_step(&[&images, &labels])?.loss()?;
//!     session.optimizer_step()?;
//!     session.lazy_reset_grad()?;
//! }
//! session.save_checkpoint("digits.ckpt", OptimizerState::Include)?;
//! session.export_for_inference("digits.onnx", &["logits"])?;
//! # Ok::<(), ort_training::Error>(())
//! ```
//!
//! # What the types carry
//!
//! - A [`Checkpoint`] goes into a [`TrainingSession`] and comes out of it with
//!   [`into_checkpoint`](TrainingSession::into_checkpoint): it outlives the session, as ONNX Runtime requires.
//! - Inputs are checked against the model before ONNX Runtime sees them; errors name the input, what the model wants and
//!   what was found.
//! - Files are looked at first: a truncated or mutated checkpoint or model is an error in words, not a crash. What cannot
//!   be seen beforehand is listed, each with a test, in `docs/hazards.md` of the repository.
//! - Host access to device memory does not compile: [`DeviceTensor`] has none.
//! - Each type says whether threads may share it, and why.
//!
//! # Features
//!
//! - `vendored` (default): build ONNX Runtime from pinned sources when `ORT_TRAINING_PREFIX` names no install.
//! - `system`: ask pkg-config for an installed ONNX Runtime.
//! - `cuda`: configure the vendored build with CUDA.
//! - `cudarc`: device memory shared with the crate `cudarc`, without copying.
//! - `artifacts`: make training artifacts from ONNX models (module `artifacts`).
//! - `ndarray`: conversions from and to `ndarray` arrays.
//! - `safetensors`: parameters from and to safetensors files.
//! - `static`: link ONNX Runtime into the program.

#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
mod artifact_check;
#[cfg(feature = "artifacts")]
pub mod artifacts;
mod atomic_file;
mod checkpoint;
mod checkpoint_format;
mod class_labels;
mod cuda;
mod element;
mod environment;
mod error;
mod exported_data;
mod flat;
mod inference_session;
mod memory_info;
mod model_io;
mod model_trust;
#[cfg(feature = "ndarray")]
mod ndarray_support;
mod onnx_model;
mod outputs;
mod parameters;
mod prepacking;
mod property;
mod run_options;
mod session_options;
mod session_parts;
mod shape;
mod sparse_tensor;
mod step_binding;
mod tensor;
mod tensor_data;
mod text;
mod training_builder;
mod training_session;
mod value;
#[cfg(feature = "safetensors")]
mod weights;

pub use api::{api_version, ensure_training, onnx_runtime_version, set_seed};
pub use artifact_check::ParameterSlot;
pub use checkpoint::{Checkpoint, CheckpointMut, OptimizerState};
pub use checkpoint_format::{CheckpointSummary, ParameterInfo};
pub use cuda::{
    ArenaExtendStrategy, CopyScope, CudaAllocator, CudaChoice, CudaDevice, CudaLibrary,
    CudaOptions, CudaStatus, CudaStream, CudnnConvAlgoSearch, DeviceMemory, DeviceOutput,
    DeviceTensor, MemoryMeter, MemoryReport,
};
pub use element::{
    ElementType, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, Int4x2, TensorElement, Uint4x2,
};
pub use environment::{Environment, EnvironmentBuilder, LogSeverity};
pub use error::{Error, ErrorCode, Result};
pub use half;
pub use inference_session::{InferenceSession, InferenceSessionBuilder};
pub use memory_info::{CudaMemoryInfo, MemoryInfo};
pub use model_io::{Dimension, IoInfo};
pub use ort_training_sys as sys;
pub use outputs::Outputs;
pub use parameters::ParameterSet;
pub use property::{Property, PropertyKind};
pub use run_options::RunOptions;
pub use session_options::{GraphOptimizationLevel, SessionOptions, available_providers};
pub use step_binding::{BoundInput, StepBinding};
pub use tensor::{StringTensor, Tensor, TensorRef};
pub use training_builder::TrainingSessionBuilder;
pub use training_session::TrainingSession;
pub use value::{AsValue, Value};
#[cfg(feature = "safetensors")]
pub use weights::{Strictness, WeightsReport};
