//! What a CUDA build is configured with: a toolkit, cuDNN, and the GPUs to compile for. All of it is looked for and checked
//! before anything is compiled, since the first file of the CUDA provider comes late in a long build.
//!
//! `CUDA_HOME` (or `CUDA_PATH`) names the toolkit; else it is `/usr/local/cuda`, the one of the `nvcc` on `PATH`, or what
//! `ci/setup-cuda` put into the cache folder. `CUDNN_HOME` names cuDNN; else it is looked for in the toolkit's folder and in
//! `/usr`. `ORT_TRAINING_CUDA_ARCHITECTURES` names the GPUs.

mod architectures;
mod probe;
mod toolkit;

pub use toolkit::Toolkit;

use crate::cache::Cache;

/// What is hashed into the key of a CUDA build: versions, and not the folders that they lie in.
pub(crate) fn identity(cache: &Cache) -> String {
    match Toolkit::find(cache) {
        Ok(toolkit) => toolkit.identity(),
        Err(_) => "none".into(),
    }
}

/// What ONNX Runtime makes with CUDA besides the operators, and how long each takes to compile, is for the user to say
/// (`ORT_TRAINING_CMAKE_ARGS=-Donnxruntime_USE_FLASH_ATTENTION=ON`); training uses none of it.
pub(crate) const OFF: &[&str] = &[
    "onnxruntime_USE_FLASH_ATTENTION",
    "onnxruntime_USE_LEAN_ATTENTION",
    "onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION",
    "onnxruntime_USE_CUDA_NHWC_OPS",
    "onnxruntime_USE_NCCL",
];

#[cfg(test)]
mod tests;
