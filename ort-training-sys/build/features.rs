//! Whether the features that were asked for and an install go together.
//!
//! Cargo turns on, for one copy of this crate, what any crate of the tree asks for: what does not go together is often
//! wanted by two that do not know of one another, and so the message says how to find them.

use std::path::PathBuf;

use onnxruntime_training_src::Install;

/// The features that decide how an install is linked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Link ONNX Runtime into the program.
    pub in_program: bool,
    /// With the CUDA execution provider.
    pub cuda: bool,
}

impl Wanted {
    /// Before there is an install, so that nobody waits an hour for one that cannot be used.
    pub(crate) fn check(self) -> Result<(), String> {
        if self.in_program && self.cuda {
            return Err(
                "features `static` and `cuda` are both on, perhaps each wanted by another crate of this tree (`cargo tree \
                 -e features -i ort-training-sys` tells): expected one of them, since the CUDA provider is a shared \
                 library that only the shared ONNX Runtime can load"
                    .into(),
            );
        }
        Ok(())
    }

    /// `cuda` needs an install with CUDA.
    pub(crate) fn check_cuda(self, install: &Install) -> Result<(), String> {
        if !self.cuda || install.has_feature("cuda") {
            return Ok(());
        }
        if !install.features.is_empty() {
            return Err(format!(
                "feature `cuda`: expected an ONNX Runtime built with CUDA, found {} with {}",
                install.root.display(),
                install.features.join(", ")
            ));
        }
        // Made by others, who wrote no list of features: the provider is a library of its own.
        let provider = install.lib_dir.join("libonnxruntime_providers_cuda.so");
        if provider.is_file() {
            return Ok(());
        }
        Err(format!(
            "feature `cuda`: expected an ONNX Runtime built with CUDA, found {} without {}",
            install.root.display(),
            provider.display()
        ))
    }

    /// The archive to link, for `static`.
    pub(crate) fn archive(self, install: &Install) -> Result<Option<PathBuf>, String> {
        if !self.in_program {
            return Ok(None);
        }
        match &install.static_library {
            Some(archive) => Ok(Some(archive.clone())),
            None => Err(format!(
                "feature `static`: expected {}, found no such file; the vendored build makes one, and \
                 `onnxruntime-training-src build` an install with it",
                install.lib_dir.join("libonnxruntime.a").display()
            )),
        }
    }
}
