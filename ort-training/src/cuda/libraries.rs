//! The CUDA execution provider's library, and the libraries that it needs.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::Library;
use object::read::elf::ElfFile64;
use object::{ReadCache, elf};

use crate::error::{Error, ErrorCode, Result};

pub(crate) const PROVIDER: &str = "libonnxruntime_providers_cuda.so";
const BRIDGE: &str = "libonnxruntime_providers_shared.so";
/// Folders with CUDA's libraries, separated by colons: looked at first.
const FOLDERS_VARIABLE: &str = "ORT_TRAINING_CUDA_LIBRARIES";

/// What a shared library says of itself.
#[derive(Debug)]
pub(crate) struct Dependencies {
    /// Names of the libraries that it needs.
    pub(crate) needed: Vec<String>,
    /// Folders where the loader looks for them.
    pub(crate) run_path: Vec<PathBuf>,
}

/// The folder of the `libonnxruntime` that is linked: where it looks for its providers (env.cc, `GetRuntimePath`).
pub(crate) fn runtime_folder() -> Result<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked for; the information is written when the answer is not 0, and its path belongs to
    // the loader's record of a library that is never unloaded.
    let path = unsafe {
        let address = ort_training_sys::OrtGetApiBase as *const libc::c_void;
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return Err(fail(
                "CUDA: expected the loader to know where libonnxruntime is, found that it does not",
            ));
        }
        PathBuf::from(OsStr::from_bytes(
            CStr::from_ptr(info.assume_init().dli_fname).to_bytes(),
        ))
    };
    // The loader knows it by its link, ONNX Runtime looks beside that too.
    Ok(path.parent().unwrap_or(Path::new(".")).to_owned())
}

fn fail(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::ExecutionProviderFail, message)
}

/// The provider's library in this folder, read.
pub(crate) fn provider(folder: &Path) -> Result<(PathBuf, Dependencies)> {
    let bridge = folder.join(BRIDGE);
    let path = folder.join(PROVIDER);
    for (file, what) in [
        (&path, "the CUDA execution provider"),
        (&bridge, "the providers' bridge"),
    ] {
        if !file.is_file() {
            return Err(Error::new(
                ErrorCode::NoSuchFile,
                format!(
                    "CUDA: expected {what} {} beside libonnxruntime, found no such file",
                    file.display()
                ),
            ));
        }
    }
    dependencies(&bridge)?;
    let dependencies = dependencies(&path)?;
    Ok((path, dependencies))
}

/// Reads what a shared library needs, without loading it: an initialiser of a provider that is loaded before ONNX Runtime
/// is ready for it would leave it unusable (provider_bridge_provider.cc takes the host's address once).
pub(crate) fn dependencies(path: &Path) -> Result<Dependencies> {
    let broken = |found: &dyn std::fmt::Display| {
        fail(format!(
            "CUDA: {}: expected a 64-bit ELF shared library, found a file that is none or is cut off: {found}",
            path.display()
        ))
    };
    let file = File::open(path).map_err(|error| Error::io(path.display(), &error))?;
    let data = ReadCache::new(file);
    let file = ElfFile64::<object::Endianness, _>::parse(&data).map_err(|error| broken(&error))?;
    let table = file.elf_dynamic_table().map_err(|error| broken(&error))?;
    if table.is_empty() {
        return Err(broken(&"it has no dynamic section"));
    }
    let origin = path.parent().unwrap_or(Path::new("."));
    let mut read = Dependencies {
        needed: Vec::new(),
        run_path: Vec::new(),
    };
    for entry in &table {
        let text = || table.string(entry).map_err(|error| broken(&error));
        if entry.tag == elf::DT_NEEDED {
            read.needed
                .push(String::from_utf8_lossy(text()?).into_owned());
        } else if entry.tag == elf::DT_RUNPATH || entry.tag == elf::DT_RPATH {
            let paths = String::from_utf8_lossy(text()?).into_owned();
            read.run_path.extend(
                paths
                    .split(':')
                    .filter(|path| !path.is_empty())
                    .map(|path| {
                        PathBuf::from(
                            path.replace("${ORIGIN}", "$ORIGIN")
                                .replace("$ORIGIN", &origin.to_string_lossy()),
                        )
                    }),
            );
        }
    }
    Ok(read)
}

/// Loads the libraries that the provider needs, each from where it is found first, and keeps them: the loader takes a
/// library that is loaded already for every later one that needs its name. Answers in the order of the names.
pub(crate) fn load(provider: &Dependencies) -> Vec<(String, std::result::Result<PathBuf, String>)> {
    let names = provider.needed.iter().filter(|name| !is_ours(name));
    let mut folders = Vec::new();
    let mut answers: Vec<(String, std::result::Result<PathBuf, String>)> = names
        .map(|name| (name.clone(), load_by_name(name)))
        .collect();
    if answers.iter().any(|(_, answer)| answer.is_err()) {
        folders = search_folders(&provider.run_path);
    }
    // A library may need one that comes later in the list: again, as long as that finds more.
    loop {
        let mut found = false;
        for (name, answer) in answers.iter_mut().filter(|(_, answer)| answer.is_err()) {
            for path in folders.iter().map(|folder: &PathBuf| folder.join(&*name)) {
                if !path.is_file() {
                    continue;
                }
                *answer = load_path(&path);
                if answer.is_ok() {
                    found = true;
                    break;
                }
            }
        }
        if !found {
            return answers;
        }
    }
}

fn is_ours(name: &str) -> bool {
    name == BRIDGE
}

fn load_by_name(name: &str) -> std::result::Result<PathBuf, String> {
    load_path(Path::new(name))
}

fn load_path(path: &Path) -> std::result::Result<PathBuf, String> {
    // SAFETY: a library that ONNX Runtime's provider needs and that the loader would load with it.
    match unsafe { Library::new(path) } {
        Ok(library) => {
            // Stays loaded; see `load`.
            let _ = ManuallyDrop::new(library);
            Ok(path.to_owned())
        }
        Err(error) => Err(reason(&error)),
    }
}

/// What the loader says, which `libloading` keeps behind its own words.
pub(crate) fn reason(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// Where CUDA's libraries may lie besides the loader's own places.
fn search_folders(run_path: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(paths) = std::env::var_os(FOLDERS_VARIABLE) {
        folders.extend(std::env::split_paths(&paths));
    }
    folders.extend_from_slice(run_path);
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDNN_HOME"] {
        if let Some(home) = std::env::var_os(variable) {
            folders.extend(["lib64", "lib"].map(|name| Path::new(&home).join(name)));
        }
    }
    folders.push("/usr/local/cuda/lib64".into());
    // NVIDIA's packages on PyPI unpack to `nvidia/<package>/lib` in a folder of packages.
    for packages in package_folders() {
        let nvidia = packages.join("nvidia");
        folders.extend(
            subfolders(&nvidia)
                .into_iter()
                .map(|package| package.join("lib")),
        );
    }
    folders
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

/// Where Python's packages are: of the virtual environment, the user, the machine.
fn package_folders() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from)
        .collect();
    if let Some(home) = std::env::var_os("HOME") {
        prefixes.push(Path::new(&home).join(".local"));
    }
    prefixes.extend(["/usr/local".into(), "/usr".into()]);
    prefixes
        .iter()
        .flat_map(|prefix| subfolders(&prefix.join("lib")))
        .filter(|folder| {
            folder
                .file_name()
                .is_some_and(|name| name.as_bytes().starts_with(b"python3"))
        })
        .flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)))
        .collect()
}

/// What a library is, and how it is got, for the message that it is missing.
pub(crate) fn describe(name: &str) -> String {
    let version = name
        .split(".so.")
        .nth(1)
        .map(|version| format!(" {version}"));
    let version = version.as_deref().unwrap_or("");
    let (what, package) = match name.split(".so").next().unwrap_or(name) {
        "libcuda" => return "NVIDIA's driver".to_owned(),
        "libcudnn" => ("cuDNN", "nvidia-cudnn-cu13"),
        "libcublas" | "libcublasLt" => ("cuBLAS", "nvidia-cublas"),
        "libcufft" => ("cuFFT", "nvidia-cufft"),
        "libcurand" => ("cuRAND", "nvidia-curand"),
        "libcudart" => ("the CUDA runtime", "nvidia-cuda-runtime"),
        "libnvrtc" => ("CUDA's run-time compiler", "nvidia-cuda-nvrtc"),
        _ => return "a library of the system".to_owned(),
    };
    // The packages without a suffix are CUDA 13's; those of CUDA 12 end in its name.
    let package = match (what, version.trim()) {
        ("cuDNN", _) => "nvidia-cudnn-cu13` or `nvidia-cudnn-cu12".to_owned(),
        (_, "12") => format!("{package}-cu12"),
        ("cuFFT", "11") => format!("{package}-cu12"),
        _ => package.to_owned(),
    };
    format!("{what}{version}: part of CUDA, or `pip install {package}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_says_what_it_needs() {
        let folder = runtime_folder().unwrap();
        let read = dependencies(&folder.join("libonnxruntime.so.1")).unwrap();
        assert!(
            read.needed.iter().any(|name| name == "libc.so.6"),
            "{read:?}"
        );
    }

    #[test]
    fn libraries_are_described() {
        assert!(describe("libcublasLt.so.13").contains("cuBLAS 13"));
        assert!(describe("libcublasLt.so.13").contains("pip install nvidia-cublas`"));
        assert!(describe("libcufft.so.11").contains("nvidia-cufft-cu12"));
        assert!(describe("libcudnn.so.9").contains("cuDNN 9"));
        assert_eq!(describe("libcuda.so.1"), "NVIDIA's driver");
    }

    #[test]
    fn what_is_loaded_and_what_is_not() {
        let answers = load(&Dependencies {
            needed: vec![
                "libc.so.6".into(),
                BRIDGE.into(),
                "libno_such_library.so.7".into(),
            ],
            run_path: vec![],
        });
        assert_eq!(answers.len(), 2, "{answers:?}");
        assert!(answers[0].1.is_ok());
        let message = answers[1].1.as_ref().unwrap_err();
        assert!(message.contains("libno_such_library.so.7"), "{message}");
    }
}
