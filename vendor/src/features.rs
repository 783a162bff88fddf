//! What an ONNX Runtime is built with, as data.

/// The parts of ONNX Runtime that a build has. Training and all CPU operators are always there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// The companion library that makes training artifacts with ONNX Runtime's own gradient builder.
    pub artifacts: bool,
    /// The CUDA execution provider with its training kernels.
    pub cuda: bool,
}

impl Default for Features {
    fn default() -> Self {
        Features {
            artifacts: true,
            cuda: false,
        }
    }
}

impl Features {
    /// The names as they stand in `BUILD-INFO.toml` and in `DEP_ONNXRUNTIME_TRAINING_FEATURES`, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        if self.artifacts {
            names.push("artifacts".to_owned());
        }
        if self.cuda {
            names.push("cuda".to_owned());
        }
        names.push("training".to_owned());
        names
    }

    /// The CMake arguments that switch them on. CUDA's are made by [`crate::cuda`], which looks for the toolkit.
    pub(crate) fn cmake_args(&self) -> Vec<String> {
        vec![
            "-Donnxruntime_ENABLE_TRAINING_APIS=ON".into(),
            format!("-DORT_TRAINING_ARTIFACTS={}", on_off(self.artifacts)),
        ]
    }
}

pub(crate) fn on_off(on: bool) -> &'static str {
    if on { "ON" } else { "OFF" }
}
