//! Raw bindings to ONNX Runtime's C API and its training extension, generated at build time from the headers of the
//! very install that is linked.
//!
//! Everything starts at `OrtGetApiBase`: ask it for an `OrtApi`, and that for an `OrtTrainingApi`
//! (`OrtApi::GetTrainingApi`, NULL in a library built without training). The crate `ort-training` does this, checks
//! it, and puts ownership and lifetimes on top; use this crate for what that one does not cover.
//!
//! # Which ONNX Runtime
//!
//! First match wins:
//! 1. the folder in the environment variable `ORT_TRAINING_PREFIX` (with `include/` and `lib/`);
//! 2. with the feature `system`, what pkg-config knows as `libonnxruntime`;
//! 3. with the feature `vendored` (default), a build from pinned sources.
//!
//! # For build scripts of dependants
//!
//! `DEP_ONNXRUNTIME_TRAINING_ROOT`, `..._INCLUDE` (a path list), `..._LIB`, `..._VERSION` and `..._FEATURES` (comma separated)
//! describe the install. A program that cargo runs finds the library by itself; one that is started otherwise needs it on its library path, or a run path
//! (`onnxruntime_training_src::ship` puts the libraries beside a program):
//!
//! ```no_run
//! // build.rs of the program
//! if let Ok(lib) = std::env::var("DEP_ONNXRUNTIME_TRAINING_LIB") {
//!     println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
//! }
//! ```
//!
//! C enums are newtypes over integers, so that a value this header does not list is not undefined behaviour.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(clippy::all)]

#[cfg(not(ort_training_no_ort))]
mod bindings {
    #![allow(missing_docs, unused, unnecessary_transmutes, unsafe_op_in_unsafe_fn)]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
#[cfg(not(ort_training_no_ort))]
pub use bindings::*;

#[cfg(ort_training_no_ort)]
mod stand_in;
#[cfg(ort_training_no_ort)]
pub use stand_in::*;
