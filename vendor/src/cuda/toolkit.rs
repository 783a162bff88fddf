//! Finding a toolkit and cuDNN, and checking them against each other and the compiler.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::probe::{self, Version};
use super::{OFF, architectures};
use crate::cache::Cache;
use crate::compiler::Compiler;
use crate::error::{Error, Result};

/// The headers and libraries that the provider is compiled and linked with, by the part of the toolkit that has them.
const PARTS: &[(&str, &[&str], &[&str])] = &[
    ("the CUDA runtime", &["cuda_runtime_api.h"], &["cudart"]),
    (
        "cuBLAS",
        &["cublas_v2.h", "cublasLt.h"],
        &["cublas", "cublasLt"],
    ),
    ("cuFFT", &["cufft.h"], &["cufft"]),
    ("cuRAND", &["curand.h"], &["curand"]),
    ("cuSPARSE's headers", &["cusparse.h"], &[]),
    ("the profiler's headers", &["cuda_profiler_api.h"], &[]),
    ("NVTX", &["nvtx3/nvToolsExt.h"], &[]),
];

const INSTALL: &str =
    "`ci/setup-cuda` puts CUDA 13.0 with cuDNN 9 into the cache folder, without root";

/// The command that gives a toolkit the cuDNN that it lacks.
fn install_cudnn(cuda: Version) -> String {
    format!(
        "`ci/setup-cuda --cudnn {major}` puts cuDNN 9 for CUDA {major} into the cache folder, without root",
        major = cuda.0
    )
}

/// A CUDA toolkit with cuDNN.
#[derive(Debug, Clone)]
pub struct Toolkit {
    /// The folder with `bin/nvcc`.
    pub cuda_home: PathBuf,
    /// The folder with cuDNN's `include` and `lib`.
    pub cudnn_home: PathBuf,
    /// Architectures for `CMAKE_CUDA_ARCHITECTURES`.
    pub architectures: String,
    cuda: Version,
    cudnn: Version,
}

/// What the search goes by.
pub(super) struct Search<'a> {
    pub var: &'a dyn Fn(&str) -> Option<String>,
    /// Where toolkits are looked for when none is named.
    pub usual: Vec<PathBuf>,
    /// Where cuDNN is looked for besides in the toolkit.
    pub usual_cudnn: Vec<PathBuf>,
    /// Where `ci/setup-cuda --cudnn` puts cuDNN, in a folder for each CUDA.
    pub cudnn_of_setup: PathBuf,
}

impl Toolkit {
    /// Looks for the toolkit and cuDNN, and reads their versions.
    ///
    /// # Errors
    /// No toolkit, no cuDNN, or a version or architecture that does not serve: what was found, what is wanted, and the
    /// command that mends it.
    pub fn find(cache: &Cache) -> Result<Toolkit> {
        let mut usual = vec![PathBuf::from("/usr/local/cuda")];
        usual.extend(nvcc_on_path());
        usual.extend(of_setup(cache));
        Self::search(&Search {
            var: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
            usual,
            usual_cudnn: vec!["/usr".into(), "/usr/local".into()],
            cudnn_of_setup: cache.root().join("cuda"),
        })
    }

    pub(super) fn search(search: &Search<'_>) -> Result<Toolkit> {
        let (cuda_home, cuda) = cuda_home(search)?;
        let nvcc = cuda_home.join("bin/nvcc");
        let cudnn_home = cudnn_home(search, &cuda_home, cuda)?;
        let cudnn = probe::cudnn_version(&cudnn_home);
        let cudnn = match cudnn {
            Some(version) if version.0 == 9 => version,
            other => {
                return Err(Error::Setting {
                    name: "CUDNN_HOME".into(),
                    expected: format!(
                        "the folder of cuDNN 9, which ONNX Runtime 1.21 is written for; {}",
                        install_cudnn(cuda)
                    ),
                    found: format!(
                        "{} in {}",
                        other.map_or("no version in cudnn_version.h".to_owned(), |version| {
                            format!("version {version}")
                        }),
                        cudnn_home.display()
                    ),
                });
            }
        };
        let architectures = architectures::resolve(
            (search.var)(architectures::VARIABLE).as_deref(),
            cuda,
            &architectures::supported(&nvcc),
            architectures::native,
        )?;
        Ok(Toolkit {
            cuda_home,
            cudnn_home,
            architectures,
            cuda,
            cudnn,
        })
    }

    /// Checks all that can be checked before an hour of compiling: the toolkit's parts, cuDNN's library, and that `nvcc`
    /// compiles for each architecture with this compiler.
    pub(crate) fn check(&self, compiler: &Compiler) -> Result<()> {
        let missing: Vec<String> = PARTS
            .iter()
            .flat_map(|(part, headers, libraries)| {
                let headers = headers
                    .iter()
                    .filter(|name| probe::header(&self.cuda_home, name).is_none())
                    .map(move |name| format!("{name} ({part})"));
                let libraries = libraries
                    .iter()
                    .filter(|name| probe::library(&self.cuda_home, name).is_none())
                    .map(move |name| format!("lib{name}.so ({part})"));
                headers.chain(libraries)
            })
            .collect();
        let incomplete = |expected: String, found: String| Error::Setting {
            name: "CUDA_HOME".into(),
            expected,
            found,
        };
        if !missing.is_empty() {
            return Err(incomplete(
                format!("a whole CUDA {} toolkit; {INSTALL}", self.cuda),
                format!(
                    "{}, which lacks {}",
                    self.cuda_home.display(),
                    missing.join(", ")
                ),
            ));
        }
        let is_other = |major: &u32| *major != self.cuda.0;
        if let Some(major) = probe::runtime_major(&self.cuda_home).filter(is_other) {
            return Err(incomplete(
                format!(
                    "headers of CUDA {}, as nvcc is; name a folder that holds one toolkit, or: {INSTALL}",
                    self.cuda.0
                ),
                format!(
                    "cuda_runtime_api.h of CUDA {major} beside nvcc {} in {}",
                    self.cuda,
                    self.cuda_home.display()
                ),
            ));
        }
        if self.cudnn_library().is_none() {
            return Err(Error::Setting {
                name: "CUDNN_HOME".into(),
                expected: format!(
                    "the folder of cuDNN 9 with its libraries; {}",
                    install_cudnn(self.cuda)
                ),
                found: format!("no libcudnn.so in {}", self.cudnn_home.display()),
            });
        }
        if let Some(major) = probe::cudnn_made_for(&self.cudnn_home).filter(is_other) {
            return Err(Error::Setting {
                name: "CUDNN_HOME".into(),
                expected: format!(
                    "cuDNN 9 for CUDA {}, such as `pip install nvidia-cudnn-cu{}` unpacks; or: {}",
                    self.cuda.0,
                    self.cuda.0,
                    install_cudnn(self.cuda)
                ),
                found: format!(
                    "cuDNN {} for CUDA {major} (it asks for libcublasLt.so.{major}) in {}",
                    self.cudnn,
                    self.cudnn_home.display()
                ),
            });
        }
        let newest = probe::newest_gcc(&self.cuda_home);
        if let Some((newest, gcc)) = newest
            .zip(probe::gcc_major(&compiler.cxx))
            .filter(|(newest, gcc)| gcc > newest)
        {
            return Err(Error::Setting {
                name: "CXX".into(),
                expected: format!(
                    "gcc {newest} or older, the newest that CUDA {} compiles with; \
                     install g++-{newest} and set CC=gcc-{newest} CXX=g++-{newest}",
                    self.cuda
                ),
                found: format!("gcc {gcc} ({})", compiler.cxx.display()),
            });
        }
        self.compile_something(compiler).map_err(|said| {
            incomplete(
                format!("a toolkit whose nvcc compiles a kernel; {INSTALL}"),
                format!("{}: {said}", self.cuda_home.display()),
            )
        })
    }

    /// Compiles an empty kernel for the architectures; what was said when that fails.
    fn compile_something(&self, compiler: &Compiler) -> std::result::Result<(), String> {
        let folder = std::env::temp_dir().join(format!("ort-training-nvcc-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let source = folder.join("kernel.cu");
        let result = fs::write(
            &source,
            "__global__ void kernel(float* x) { x[threadIdx.x] *= 2; }\n",
        )
        .map_err(|error| error.to_string())
        .and_then(|()| {
            let mut nvcc = Command::new(self.cuda_home.join("bin/nvcc"));
            for item in self.architectures.split(';') {
                let number = item.trim_end_matches("-real").trim_end_matches("-virtual");
                nvcc.arg(format!("-gencode=arch=compute_{number},code=sm_{number}"));
            }
            nvcc.arg("-ccbin")
                .arg(&compiler.cxx)
                .arg("-c")
                .arg(&source)
                .arg("-o")
                .arg(folder.join("kernel.o"))
                .stdin(Stdio::null());
            let output = nvcc.output().map_err(|error| error.to_string())?;
            if output.status.success() {
                return Ok(());
            }
            let text = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
            Err(format!(
                "nvcc says: {}",
                lines[..lines.len().min(5)].join("\n")
            ))
        });
        let _ = fs::remove_dir_all(&folder);
        result
    }

    pub(super) fn identity(&self) -> String {
        format!(
            "CUDA {} cuDNN {} for {}",
            self.cuda, self.cudnn, self.architectures
        )
    }

    /// The library of cuDNN to link with; cuDNN's headers may lie apart from it, in `/usr`.
    fn cudnn_library(&self) -> Option<PathBuf> {
        [&self.cudnn_home, &self.cuda_home]
            .into_iter()
            .find_map(|home| probe::cudnn_library(home, "cudnn"))
    }

    /// What CMake is told.
    pub(crate) fn cmake_args(&self, compiler: &Compiler) -> Vec<String> {
        let mut args = vec![
            "-Donnxruntime_USE_CUDA=ON".to_owned(),
            "-Donnxruntime_NVCC_THREADS=1".to_owned(),
            format!("-Donnxruntime_CUDA_HOME={}", self.cuda_home.display()),
            format!("-Donnxruntime_CUDNN_HOME={}", self.cudnn_home.display()),
            format!("-DCUDAToolkit_ROOT={}", self.cuda_home.display()),
            format!(
                "-DCMAKE_CUDA_COMPILER={}",
                self.cuda_home.join("bin/nvcc").display()
            ),
            format!("-DCMAKE_CUDA_ARCHITECTURES={}", self.architectures),
        ];
        // ONNX Runtime's search for cuDNN does not look at CUDNN_HOME, and takes a libcudnn.so anywhere before the
        // libcudnn.so.9 of the folder that was named. What was checked is what is linked with.
        let header = probe::header(&self.cudnn_home, "cudnn.h");
        if let Some(folder) = header.as_deref().and_then(Path::parent) {
            args.push(format!("-DCUDNN_INCLUDE_DIR={}", folder.display()));
        }
        if let Some(library) = self.cudnn_library() {
            args.push(format!("-Dcudnn_LIBRARY={}", library.display()));
        }
        args.extend(OFF.iter().map(|option| format!("-D{option}=OFF")));
        // nvcc takes g++ by itself.
        let usual = [Path::new("c++"), Path::new("g++")];
        if !usual.contains(&compiler.cxx.as_path()) {
            args.push(format!(
                "-DCMAKE_CUDA_HOST_COMPILER={}",
                compiler.cxx.display()
            ));
        }
        args
    }
}

/// The toolkit's folder and version: the one that is named, or the first in the usual places that serves.
fn cuda_home(search: &Search<'_>) -> Result<(PathBuf, Version)> {
    let named = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .find_map(|name| Some((PathBuf::from((search.var)(name)?), name)));
    let (homes, name) = match named {
        Some((home, name)) => (vec![home], name),
        None => (search.usual.clone(), "CUDA_HOME"),
    };
    // An old toolkit of the distribution's does not hide a newer one.
    let mut first_problem = None;
    for home in homes.iter().filter(|home| home.join("bin/nvcc").is_file()) {
        match serving_version(home, name) {
            Ok(version) => return Ok((home.clone(), version)),
            Err(problem) => {
                first_problem.get_or_insert(problem);
            }
        }
    }
    Err(first_problem.unwrap_or_else(|| Error::Setting {
        name: name.into(),
        expected: format!(
            "the folder of a CUDA toolkit (with bin/nvcc), since a CUDA build was asked for; {INSTALL}"
        ),
        found: format!(
            "no bin/nvcc in {}{}",
            list(&homes),
            if (search.var)(name).is_some() { "" } else { ", nor on PATH" }
        ),
    }))
}

/// The version of the toolkit in `home`, if ONNX Runtime 1.21 compiles with it.
fn serving_version(home: &Path, name: &str) -> Result<Version> {
    let nvcc = home.join("bin/nvcc");
    let wrong = |expected: String, found: String| Error::Setting {
        name: name.into(),
        expected,
        found,
    };
    let cuda = probe::nvcc_version(&nvcc).map_err(|problem| {
        wrong(
            format!("the folder of a CUDA toolkit whose nvcc runs; {INSTALL}"),
            format!("{}: {problem}", nvcc.display()),
        )
    })?;
    if (12..=13).contains(&cuda.0) {
        return Ok(cuda);
    }
    Err(wrong(
        format!(
            "a CUDA toolkit of version 12 or 13, for which ONNX Runtime 1.21 is known to compile; {INSTALL}"
        ),
        format!("version {cuda} in {}", home.display()),
    ))
}

fn cudnn_home(search: &Search<'_>, cuda_home: &Path, cuda: Version) -> Result<PathBuf> {
    let candidates = match (search.var)("CUDNN_HOME") {
        Some(home) => vec![PathBuf::from(home)],
        None => {
            let mut usual = vec![cuda_home.to_owned()];
            usual.extend(search.usual_cudnn.iter().cloned());
            usual.push(search.cudnn_of_setup.join(format!("cudnn-cu{}", cuda.0)));
            // A distribution's toolkit is in `/usr`.
            let mut seen = HashSet::new();
            usual.retain(|home| seen.insert(home.clone()));
            usual
        }
    };
    candidates
        .iter()
        .find(|home| probe::header(home, "cudnn.h").is_some())
        .cloned()
        .ok_or_else(|| Error::Setting {
            name: "CUDNN_HOME".into(),
            expected: format!(
                "the folder of cuDNN 9 (with include/cudnn.h), since a CUDA build was asked for; {}",
                install_cudnn(cuda)
            ),
            found: format!("no include/cudnn.h in {}", list(&candidates)),
        })
}

fn list(folders: &[PathBuf]) -> String {
    let names: Vec<_> = folders.iter().map(|f| f.display().to_string()).collect();
    names.join(", ")
}

fn nvcc_on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let nvcc = std::env::split_paths(&path)
        .map(|folder| folder.join("nvcc"))
        .find(|nvcc| nvcc.is_file())?;
    // A link in a folder of programs leads to the toolkit.
    let nvcc = nvcc.canonicalize().unwrap_or(nvcc);
    Some(nvcc.parent()?.parent()?.to_owned())
}

/// The toolkits that `ci/setup-cuda` made, newest first.
fn of_setup(cache: &Cache) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(cache.root().join("cuda"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    found.sort();
    found.reverse();
    found
}
