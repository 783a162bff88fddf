//! The files of this package that a build is made with, inside of the program: the running code and these files always
//! belong together, and an installed program is complete.

/// A list in the sources and not one that a build script makes: what a script writes names the folder that it ran in, which
/// may be gone when the target folder is used from another clone.
macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../", $name)))),*]
    };
}

/// `(path in the package, content)`, sorted by path; all files of these folders.
pub(crate) static FILES: &[(&str, &[u8])] = embedded![
    "cmake/after.cmake",
    "cmake/inject.cmake",
    "cmake/shims/eigen/CMakeLists.txt",
    "cmake/shims/mp11/CMakeLists.txt",
    "cmake/shims/utf8_range/CMakeLists.txt",
    "cmake/unity.cmake",
    "cuda/after.cmake",
    "cuda/include/cub/iterator/counting_input_iterator.cuh",
    "cuda/include/cub/iterator/discard_output_iterator.cuh",
    "cuda/include/ort_training_cuda_compat.h",
    "cuda/inject.cmake",
    "cuda/shims/cudnn-frontend/CMakeLists.txt",
    "patches/README.md",
    "reduced/after.cmake",
    "reduced/inject.cmake",
    "reduced/provider_host.cc",
    "shim/gradient_check.cc",
    "shim/gradient_check.h",
    "shim/ort_training_artifacts.cc",
    "shim/ort_training_artifacts.h",
    "shim/ort_training_artifacts.lds",
    "shim/pretraining_transformers.cc",
    "shim/pretraining_transformers.h",
    "shim/shim.cmake",
];
