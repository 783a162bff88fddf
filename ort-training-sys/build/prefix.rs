//! Finding and checking an installed ONNX Runtime: what the build script links, and why it refuses what it refuses.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The oldest `ORT_API_VERSION` whose training functions the safe layer relies on.
pub const OLDEST_API_VERSION: u32 = 17;

/// An ONNX Runtime that can be linked.
#[derive(Debug, Clone)]
pub struct Prefix {
    pub root: PathBuf,
    pub include_dirs: Vec<PathBuf>,
    pub lib_dir: PathBuf,
    pub version: String,
    pub features: Vec<String>,
}

/// Why a folder cannot serve as an ONNX Runtime install.
#[derive(Debug)]
pub struct PrefixError(String);

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PrefixError {}

impl Prefix {
    /// Opens `root`, a folder with `include/` and `lib/`.
    pub fn open(root: &Path) -> Result<Self, PrefixError> {
        if !root.is_dir() {
            return Err(PrefixError(format!(
                "{}: expected a folder holding an ONNX Runtime install (include/ and lib/), found {}",
                root.display(),
                if root.exists() { "a file" } else { "nothing" }
            )));
        }
        let lib_dir = ["lib", "lib64"]
            .iter()
            .map(|name| root.join(name))
            .find(|dir| shared_library(dir).is_some())
            .ok_or_else(|| {
                PrefixError(format!(
                    "{}: expected lib/{} (or lib64/), found no such file: not an ONNX Runtime install",
                    root.display(),
                    LIBRARY
                ))
            })?;
        Self::from_parts(
            root,
            vec![root.join("include/onnxruntime"), root.join("include")],
            lib_dir,
        )
    }

    /// The same checks for folders that something else (pkg-config) named.
    pub fn from_parts(
        root: &Path,
        include_dirs: Vec<PathBuf>,
        lib_dir: PathBuf,
    ) -> Result<Self, PrefixError> {
        let include_dirs: Vec<PathBuf> =
            include_dirs.into_iter().filter(|dir| dir.is_dir()).collect();
        let header = find(&include_dirs, "onnxruntime_c_api.h").ok_or_else(|| {
            PrefixError(format!(
                "{}: expected include/onnxruntime/onnxruntime_c_api.h, found no such file: \
                 not an ONNX Runtime install, or one without its headers",
                root.display()
            ))
        })?;
        let api_version = api_version(&header)?;
        if api_version < OLDEST_API_VERSION {
            return Err(PrefixError(format!(
                "{}: ONNX Runtime too old: expected ORT_API_VERSION {OLDEST_API_VERSION} or newer \
                 (1.{OLDEST_API_VERSION}), found {api_version} in {}",
                root.display(),
                header.display()
            )));
        }
        if find(&include_dirs, "onnxruntime_training_c_api.h").is_none() {
            return Err(PrefixError(format!(
                "{}: expected include/onnxruntime/onnxruntime_training_c_api.h, found no such file: \
                 this ONNX Runtime was built without training \
                 (it needs onnxruntime_ENABLE_TRAINING_APIS=ON)",
                root.display()
            )));
        }
        let mut features = vec!["training".to_owned()];
        if lib_dir.join(provider_library("cuda")).exists() {
            features.push("cuda".to_owned());
        }
        let version =
            library_version(&lib_dir).unwrap_or_else(|| format!("1.{api_version}"));
        Ok(Self { root: root.to_owned(), include_dirs, lib_dir, version, features })
    }

    /// Every file of the library itself and of its execution providers.
    pub fn libraries(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.lib_dir) else { return Vec::new() };
        let mut found: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.starts_with("libonnxruntime")
                    && (name.contains(".so") || name.ends_with(".dylib"))
            })
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }
}

#[cfg(target_os = "macos")]
const LIBRARY: &str = "libonnxruntime.dylib";
#[cfg(not(target_os = "macos"))]
const LIBRARY: &str = "libonnxruntime.so";

fn provider_library(name: &str) -> String {
    LIBRARY.replace("libonnxruntime", &format!("libonnxruntime_providers_{name}"))
}

fn shared_library(dir: &Path) -> Option<PathBuf> {
    let path = dir.join(LIBRARY);
    path.exists().then_some(path)
}

fn find(dirs: &[PathBuf], name: &str) -> Option<PathBuf> {
    dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Reads `#define ORT_API_VERSION n`.
fn api_version(header: &Path) -> Result<u32, PrefixError> {
    let text = fs::read_to_string(header)
        .map_err(|error| PrefixError(format!("{}: {error}", header.display())))?;
    text.lines()
        .find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("#define") && words.next() == Some("ORT_API_VERSION"))
                .then(|| words.next())?
        })
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| {
            PrefixError(format!(
                "{}: expected a line `#define ORT_API_VERSION <number>`, found none: not ONNX Runtime's header",
                header.display()
            ))
        })
}

/// The version is in the name of the real file behind the link, `libonnxruntime.so.1.21.0`.
fn library_version(lib_dir: &Path) -> Option<String> {
    let real = fs::canonicalize(shared_library(lib_dir)?).ok()?;
    let name = real.file_name()?.to_str()?;
    let version = match name.split_once(".so.") {
        Some((_, version)) => version,
        None => name.strip_prefix("libonnxruntime.")?.strip_suffix(".dylib")?,
    };
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
}
