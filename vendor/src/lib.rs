//! Fetches, builds and installs ONNX Runtime **with training** from pinned sources, as `openssl-src` does for OpenSSL.
//!
//! ONNX Runtime's training C API ships in no binary package since 1.20; this crate makes a prefix that has it:
//! headers, `libonnxruntime.so`, pkg-config and CMake files, licences, and a `BUILD-INFO.toml` that says how it was
//! made. Prefixes live in a cache folder, keyed by everything that decides their content, so that `cargo clean`,
//! another profile or another workspace never costs a build.
//!
//! * [`Build`] describes a build; [`Build::find_installed`] finds what is there and [`Build::build`] makes it.
//! * [`Install`] is a prefix; [`Install::open`] checks one that somebody else made.
//!
//! * [`ship`] puts the libraries beside a program, from its build script.
//!
//! Without the default feature `fetch-build` there are only [`Install`] and [`ship`], with no dependencies.
//!
//! The command line `onnxruntime-training-src` (feature `cli`) is the same code with live progress.
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

mod elf;
mod error;
mod install;
pub mod ship;

pub use error::{Error, Result};
pub use install::{BUILD_INFO, Install, OLDEST_API_VERSION};

#[cfg(feature = "fetch-build")]
mod building {
    pub use crate::builder::{Build, Launcher};
    pub use crate::cache::{CACHE_DIR, Cache};
    pub use crate::features::Features;
    pub use crate::fetch::OriginKind;
    pub use crate::hash::Hash;
    pub use crate::manifest::{Manifest, Origin, Source};
    pub use crate::reduced::Operators;
    pub use crate::settings::VARIABLES;
}
#[cfg(feature = "fetch-build")]
pub use building::*;

#[cfg(feature = "fetch-build")]
mod assets;
#[cfg(feature = "fetch-build")]
mod builder;
#[cfg(feature = "fetch-build")]
mod cache;
#[cfg(feature = "fetch-build")]
mod compile;
#[cfg(feature = "fetch-build")]
mod compiler;
#[cfg(feature = "fetch-build")]
mod configure;
#[cfg(feature = "fetch-build")]
pub mod cuda;
#[cfg(feature = "fetch-build")]
mod embedded;
#[cfg(feature = "fetch-build")]
mod features;
#[cfg(feature = "fetch-build")]
mod fetch;
#[cfg(feature = "fetch-build")]
mod hash;
#[cfg(feature = "fetch-build")]
mod manifest;
#[cfg(feature = "fetch-build")]
mod ninja_log;
#[cfg(feature = "fetch-build")]
pub mod notices;
#[cfg(feature = "fetch-build")]
pub mod pack;
#[cfg(feature = "fetch-build")]
mod package;
#[cfg(feature = "fetch-build")]
mod patch;
#[cfg(feature = "fetch-build")]
pub mod progress;
#[cfg(feature = "fetch-build")]
mod reduced;
#[cfg(feature = "fetch-build")]
mod settings;
#[cfg(feature = "fetch-build")]
mod sources;
#[cfg(feature = "fetch-build")]
mod static_library;
#[cfg(feature = "fetch-build")]
pub mod tools;
#[cfg(feature = "fetch-build")]
mod unity;
#[cfg(feature = "fetch-build")]
mod unpack;
#[cfg(feature = "fetch-build")]
mod workload;

#[cfg(all(test, feature = "fetch-build"))]
mod pipeline_tests;
