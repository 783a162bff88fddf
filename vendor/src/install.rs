//! A prefix with ONNX Runtime in it: ours, or one that somebody else made.

use std::fs;
use std::path::{Path, PathBuf};

use crate::elf;
use crate::error::{Error, Result};

/// The oldest C API (`ORT_API_VERSION`) whose training API the bindings can be made for.
pub const OLDEST_API_VERSION: u32 = 17;

/// The file in a prefix that says how it was made.
pub const BUILD_INFO: &str = "BUILD-INFO.toml";

/// The archive for programs that shall be a single file, in the folder of the shared library.
pub(crate) const STATIC_LIBRARY: &str = "libonnxruntime.a";

/// An ONNX Runtime that can be compiled and linked against.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Install {
    /// The folder that everything else lies in.
    pub root: PathBuf,
    /// The folders to give to the C compiler, so that `onnxruntime_training_c_api.h` and what it includes are found.
    pub include_dirs: Vec<PathBuf>,
    /// The folder with `libonnxruntime.so`.
    pub lib_dir: PathBuf,
    /// The shared library itself.
    pub library: PathBuf,
    /// The whole of ONNX Runtime as one archive, `libonnxruntime.a`, where the prefix has it.
    pub static_library: Option<PathBuf>,
    /// ONNX Runtime's version, such as `1.21.0`; only `1.N` where nothing but the header tells.
    pub version: String,
    /// `ORT_API_VERSION` of the headers.
    pub api_version: u32,
    /// What it was built with, as its `BUILD-INFO.toml` says (`training`, `artifacts`, `cuda`); empty for prefixes
    /// made by others.
    pub features: Vec<String>,
}

impl Install {
    /// Opens a prefix: an install of this crate, one made by `cmake --install`, an unpacked release archive, a
    /// distribution's `/usr`, or a source tree with its build folder's library copied into it.
    ///
    /// # Errors
    /// Says what was expected and what was found when the folder has no ONNX Runtime headers, headers without the
    /// training API, headers of an ONNX Runtime older than 1.17, no library, or a library that is cut off, made
    /// for another architecture, of another version than the headers, or none of ONNX Runtime. That the library was *built* with training can only be asked at run time
    /// (`OrtApi::GetTrainingApi` is not NULL).
    pub fn open(prefix: impl AsRef<Path>) -> Result<Install> {
        // Build scripts are told the target; elsewhere it is the machine that this runs on.
        let arch = std::env::var("CARGO_CFG_TARGET_ARCH")
            .unwrap_or_else(|_| std::env::consts::ARCH.to_owned());
        Self::open_for(prefix.as_ref(), &arch)
    }

    pub(crate) fn open_for(prefix: &Path, arch: &str) -> Result<Install> {
        if !prefix.is_dir() {
            let found = if prefix.exists() {
                "a file"
            } else {
                "nothing at that path"
            };
            return Err(Error::prefix(
                prefix,
                "a folder with include/ and lib/",
                found,
            ));
        }
        let root = std::path::absolute(prefix)
            .map_err(Error::io(format!("resolving {}", prefix.display())))?;
        let (include_dirs, core_header) = find_headers(&root)?;
        let header = fs::read_to_string(&core_header)
            .map_err(Error::io(format!("reading {}", core_header.display())))?;
        let api_version = api_version(&header).ok_or_else(|| {
            Error::prefix(
                &root,
                format!(
                    "a line \"#define ORT_API_VERSION N\" in {}",
                    core_header.display()
                ),
                "none",
            )
        })?;
        if api_version < OLDEST_API_VERSION {
            return Err(Error::prefix(
                &root,
                format!("ONNX Runtime 1.{OLDEST_API_VERSION} or newer"),
                format!("ORT_API_VERSION {api_version} in {}", core_header.display()),
            ));
        }
        let library = find_library(&root, arch)?;
        if let Some(problem) = elf::problem(&library, arch)
            .map_err(Error::io(format!("reading {}", library.display())))?
        {
            return Err(Error::prefix(
                &root,
                format!("a shared library for {arch} at {}", library.display()),
                problem,
            ));
        }
        let names = elf::dynamic_names(&library)
            .map_err(Error::io(format!("reading {}", library.display())))?;
        let own_version = match names.as_deref().map(library_version) {
            Some(None) => {
                return Err(Error::prefix(
                    &root,
                    format!("ONNX Runtime at {}", library.display()),
                    "a library without its function OrtGetApiBase",
                ));
            }
            Some(Some(version)) => version,
            None => None,
        };
        let lib_dir = library.parent().expect("a file has a folder").to_owned();
        let static_library = Some(lib_dir.join(STATIC_LIBRARY)).filter(|path| path.is_file());
        let info = fs::read_to_string(root.join(BUILD_INFO)).unwrap_or_default();
        let version =
            own_version.unwrap_or_else(|| find_version(&root, &lib_dir, &info, api_version));
        if minor(&version) != Some(api_version) {
            return Err(Error::prefix(
                &root,
                format!(
                    "headers and library of one version (headers have ORT_API_VERSION {api_version})"
                ),
                format!("a library of version {version}"),
            ));
        }
        Ok(Install {
            root,
            include_dirs,
            lib_dir,
            library,
            static_library,
            version,
            api_version,
            features: info_list(&info, "features"),
        })
    }

    /// Whether it was built with a feature, as far as its `BUILD-INFO.toml` says.
    pub fn has_feature(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }

    /// The text of `BUILD-INFO.toml`, for prefixes that this crate made.
    pub fn build_info(&self) -> Option<String> {
        fs::read_to_string(self.root.join(BUILD_INFO)).ok()
    }
}

const CORE_HEADER: &str = "onnxruntime_c_api.h";
const TRAINING_HEADER: &str = "onnxruntime_training_c_api.h";

/// The folders that installs, release archives, distributions and the source tree keep the headers in.
const INCLUDE_DIRS: &[&str] = &[
    "include/onnxruntime",
    "include/onnxruntime/core/session",
    "include",
    "include/core/session",
    "orttraining/orttraining/training_api/include",
    "include/onnxruntime/orttraining/orttraining/training_api/include",
    "",
];

fn find_headers(root: &Path) -> Result<(Vec<PathBuf>, PathBuf)> {
    let with = |header: &str| {
        INCLUDE_DIRS
            .iter()
            .map(|dir| {
                if dir.is_empty() {
                    root.to_owned()
                } else {
                    root.join(dir)
                }
            })
            .find(|dir| dir.join(header).is_file())
    };
    let looked = "include/onnxruntime, include/onnxruntime/core/session, include";
    let core = with(CORE_HEADER).ok_or_else(|| {
        Error::prefix(
            root,
            format!("{CORE_HEADER} in one of {looked}"),
            "no such file (is it an ONNX Runtime install with headers?)",
        )
    })?;
    let training = with(TRAINING_HEADER).ok_or_else(|| {
        Error::prefix(
            root,
            format!("{TRAINING_HEADER} in one of {looked}"),
            format!(
                "{CORE_HEADER} without it: an ONNX Runtime installed without training \
                 (onnxruntime_ENABLE_TRAINING_APIS=ON makes one with)"
            ),
        )
    })?;
    let core_header = core.join(CORE_HEADER);
    let mut dirs = vec![training];
    if !dirs.contains(&core) {
        dirs.push(core);
    }
    Ok((dirs, core_header))
}

fn find_library(root: &Path, arch: &str) -> Result<PathBuf> {
    let multiarch = format!("lib/{arch}-linux-gnu");
    let dirs = ["lib", "lib64", multiarch.as_str(), ""];
    let name = "libonnxruntime.so";
    for dir in dirs {
        let dir = if dir.is_empty() {
            root.to_owned()
        } else {
            root.join(dir)
        };
        let library = dir.join(name);
        if library.is_file() {
            return Ok(library);
        }
        if library.is_symlink() {
            return Err(Error::prefix(
                root,
                format!("a library at {}", library.display()),
                "a link to a file that is not there",
            ));
        }
        let static_library = dir.join("libonnxruntime_session.a");
        if static_library.is_file() {
            return Err(Error::prefix(
                root,
                format!("{name} (onnxruntime_BUILD_SHARED_LIB=ON)"),
                "static libraries only",
            ));
        }
    }
    Err(Error::prefix(
        root,
        format!("{name} in lib, lib64, {multiarch} or the folder itself"),
        "no such file",
    ))
}

fn api_version(header: &str) -> Option<u32> {
    header.lines().find_map(|line| {
        line.strip_prefix("#define ORT_API_VERSION")
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse().ok())
    })
}

/// From the names in a library: nothing when it does not export ONNX Runtime's one function, else the version that its
/// linker script names its symbols by (`VERS_1.21.0`), if it has one. File names and other files can tell another.
fn library_version(names: &[u8]) -> Option<Option<String>> {
    let names = || names.split(|byte| *byte == 0);
    names().find(|name| *name == b"OrtGetApiBase")?;
    Some(
        names()
            .find_map(|name| name.strip_prefix(b"VERS_"))
            .and_then(|version| std::str::from_utf8(version).ok())
            .filter(|version| minor(version).is_some())
            .map(str::to_owned),
    )
}

/// The full version: from what our build wrote, ONNX Runtime's own VERSION_NUMBER, pkg-config's file, or the name
/// that the library's link leads to. The header alone has but the minor number.
fn find_version(root: &Path, lib_dir: &Path, info: &str, api_version: u32) -> String {
    let from_info = info_value(info, "version");
    let from_file = || {
        fs::read_to_string(root.join("VERSION_NUMBER"))
            .ok()
            .and_then(|text| text.lines().next().map(|line| line.trim().to_owned()))
    };
    let from_pc = || {
        fs::read_to_string(lib_dir.join("pkgconfig/libonnxruntime.pc"))
            .ok()
            .and_then(|text| {
                text.lines()
                    .find_map(|line| line.strip_prefix("Version:").map(|v| v.trim().to_owned()))
            })
    };
    let from_name = || {
        fs::read_dir(lib_dir).ok().and_then(|entries| {
            entries
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter_map(|name| name.strip_prefix("libonnxruntime.so.").map(str::to_owned))
                .find(|version| version.split('.').count() == 3)
        })
    };
    from_info
        .or_else(from_file)
        .or_else(from_pc)
        .or_else(from_name)
        .filter(|version| minor(version).is_some())
        .unwrap_or_else(|| format!("1.{api_version}"))
}

fn minor(version: &str) -> Option<u32> {
    let mut parts = version.split('.');
    let major: u32 = parts.next()?.parse().ok()?;
    (major == 1).then_some(())?;
    parts.next()?.parse().ok()
}

// BUILD-INFO.toml is written by this crate, one value a line; reading the two that matter here without a TOML
// parser keeps builds against an own prefix free of dependencies.
fn info_value(info: &str, key: &str) -> Option<String> {
    info_line(info, key).map(|value| value.trim_matches('"').to_owned())
}

fn info_list(info: &str, key: &str) -> Vec<String> {
    info_line(info, key)
        .and_then(|value| value.strip_prefix('[')?.strip_suffix(']'))
        .map(|list| {
            list.split(',')
                .map(|item| item.trim().trim_matches('"').to_owned())
                .filter(|item| !item.is_empty())
                .collect()
        })
        .unwrap_or_default()
}

fn info_line<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    info.lines()
        .take_while(|line| !line.starts_with('['))
        .find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then_some(value.trim())
        })
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;
