//! The CUDA toolkit and cuDNN that a CUDA build is configured with.
//!
//! `CUDA_HOME` (or `CUDA_PATH`, or `/usr/local/cuda`, or the `nvcc` on `PATH`) names the toolkit, `CUDNN_HOME` (or the
//! toolkit's folder, or `/usr`) cuDNN, and `ORT_TRAINING_CUDA_ARCHITECTURES` the GPUs to compile for (`90`, or `80;90`;
//! default: those of ONNX Runtime).

use std::path::{Path, PathBuf};

use crate::compiler::first_line;
use crate::error::{Error, Result};

/// A CUDA toolkit with cuDNN.
#[derive(Debug, Clone)]
pub struct Toolkit {
    /// The folder with `bin/nvcc`.
    pub cuda_home: PathBuf,
    /// The folder with cuDNN's `include` and `lib`.
    pub cudnn_home: PathBuf,
    /// Architectures for `CMAKE_CUDA_ARCHITECTURES`.
    pub architectures: Option<String>,
}

impl Toolkit {
    /// Looks for the toolkit and cuDNN.
    ///
    /// # Errors
    /// Says what was looked for and where when there is no `nvcc` or no `cudnn.h`.
    pub fn find() -> Result<Toolkit> {
        let var = |name| {
            std::env::var(name)
                .ok()
                .filter(|value: &String| !value.is_empty())
        };
        let named = var("CUDA_HOME")
            .or_else(|| var("CUDA_PATH"))
            .map(PathBuf::from);
        let candidates: Vec<PathBuf> = match &named {
            Some(home) => vec![home.clone()],
            None => std::iter::once(PathBuf::from("/usr/local/cuda"))
                .chain(nvcc_on_path())
                .collect(),
        };
        let has_nvcc = |home: &PathBuf| home.join("bin/nvcc").is_file();
        let Some(cuda_home) = candidates.iter().find(|home| has_nvcc(home)).cloned() else {
            return Err(Error::Setting {
                name: "CUDA_HOME".into(),
                expected:
                    "the folder of a CUDA toolkit (with bin/nvcc), since a CUDA build was asked for"
                        .into(),
                found: match named {
                    Some(home) => home.display().to_string(),
                    None => "no bin/nvcc in /usr/local/cuda nor on PATH".into(),
                },
            });
        };
        let named = var("CUDNN_HOME").map(PathBuf::from);
        let candidates = match &named {
            Some(home) => vec![home.clone()],
            None => vec![cuda_home.clone(), "/usr".into(), "/usr/local".into()],
        };
        let has_cudnn = |home: &PathBuf| {
            let include = home.join("include");
            include.join("cudnn.h").is_file()
                || include
                    .join(format!("{}-linux-gnu/cudnn.h", std::env::consts::ARCH))
                    .is_file()
        };
        let Some(cudnn_home) = candidates.iter().find(|home| has_cudnn(home)).cloned() else {
            let looked: Vec<_> = candidates.iter().map(|c| c.display().to_string()).collect();
            return Err(Error::Setting {
                name: "CUDNN_HOME".into(),
                expected:
                    "the folder of cuDNN 9 (with include/cudnn.h), since a CUDA build was asked for"
                        .into(),
                found: format!("no include/cudnn.h in {}", looked.join(", ")),
            });
        };
        Ok(Toolkit {
            cuda_home,
            cudnn_home,
            architectures: var("ORT_TRAINING_CUDA_ARCHITECTURES"),
        })
    }

    /// The version that cuDNN's header states, such as `9.13.0`.
    fn cudnn_version(&self) -> Option<String> {
        let include = self.cudnn_home.join("include");
        let text = [
            include.join("cudnn_version.h"),
            include.join(format!(
                "{}-linux-gnu/cudnn_version.h",
                std::env::consts::ARCH
            )),
        ]
        .iter()
        .find_map(|header| std::fs::read_to_string(header).ok())?;
        let number = |name: &str| {
            text.lines().find_map(|line| {
                let mut words = line.split_whitespace();
                (words.next() == Some("#define") && words.next() == Some(name))
                    .then(|| words.next())?
            })
        };
        Some(format!(
            "{}.{}.{}",
            number("CUDNN_MAJOR")?,
            number("CUDNN_MINOR")?,
            number("CUDNN_PATCHLEVEL")?
        ))
    }

    /// What CMake is told.
    pub(crate) fn cmake_args(&self) -> Vec<String> {
        let mut args = vec![
            "-Donnxruntime_USE_CUDA=ON".to_owned(),
            "-Donnxruntime_USE_FLASH_ATTENTION=OFF".to_owned(),
            "-Donnxruntime_USE_LEAN_ATTENTION=OFF".to_owned(),
            "-Donnxruntime_USE_MEMORY_EFFICIENT_ATTENTION=OFF".to_owned(),
            "-Donnxruntime_USE_CUDA_NHWC_OPS=OFF".to_owned(),
            "-Donnxruntime_NVCC_THREADS=1".to_owned(),
            format!("-Donnxruntime_CUDA_HOME={}", self.cuda_home.display()),
            format!("-Donnxruntime_CUDNN_HOME={}", self.cudnn_home.display()),
            format!("-DCUDAToolkit_ROOT={}", self.cuda_home.display()),
            format!(
                "-DCMAKE_CUDA_COMPILER={}",
                self.cuda_home.join("bin/nvcc").display()
            ),
        ];
        if let Some(architectures) = &self.architectures {
            args.push(format!("-DCMAKE_CUDA_ARCHITECTURES={architectures}"));
        }
        args
    }
}

fn nvcc_on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .find(|folder| folder.join("nvcc").is_file())
        .and_then(|bin| bin.parent().map(Path::to_owned))
}

/// What is hashed into the key of a CUDA build.
pub(crate) fn identity() -> String {
    match Toolkit::find() {
        Ok(toolkit) => {
            let nvcc = toolkit.cuda_home.join("bin/nvcc");
            let version = nvcc
                .to_str()
                .and_then(|nvcc| first_line(nvcc, "--version").map(|_| last_line(nvcc)))
                .unwrap_or_default();
            format!(
                "{version} cuDNN {} {}",
                toolkit.cudnn_version().unwrap_or_default(),
                toolkit.architectures.unwrap_or_default()
            )
        }
        Err(_) => "none".into(),
    }
}

/// `nvcc --version` names its build in the last line.
fn last_line(nvcc: &str) -> String {
    std::process::Command::new(nvcc)
        .arg("--version")
        .output()
        .map(|output| {
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned()
        })
        .unwrap_or_default()
}
