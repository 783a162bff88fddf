//! The tools that a build needs, named all at once when they are missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::builder::Build;
use crate::cache::Cache;
use crate::compiler::{Compiler, first_line};
use crate::cuda;
use crate::error::{Error, Result};

/// ONNX Runtime 1.21 asks for this CMake.
const CMAKE_MIN: (u32, u32) = (3, 28);
/// The generated code of ONNX's messages must be made by the `protoc` of the pinned protobuf.
const PROTOC: (u32, u32) = (3, 21);

/// The tools that were found.
#[derive(Debug)]
pub(crate) struct Tools {
    pub compiler: Compiler,
    pub cmake: PathBuf,
    pub ninja: PathBuf,
    pub python: PathBuf,
    /// Not there when protobuf's own is built.
    pub protoc: Option<PathBuf>,
    pub cuda: Option<cuda::Toolkit>,
}

/// Something that is not there, or is not of the right version.
#[derive(Debug, PartialEq)]
struct Lack {
    what: String,
    /// Debian packages.
    apt: &'static [&'static str],
    /// PyPI packages, where these do.
    pip: Option<&'static str>,
}

pub(crate) fn check(build: &Build) -> Result<Tools> {
    let cache = &build.cache;
    let mut lacks = Vec::new();
    let compiler = Compiler::find();
    if compiler.is_none() {
        lacks.push(Lack {
            what: "a C++ compiler (found no c++, g++ or clang++; CXX and CC name others)".into(),
            apt: &["g++"],
            pip: None,
        });
    }
    let cmake = find(cache, "CMAKE", "cmake", |version| {
        (version >= CMAKE_MIN).then_some(())
    });
    let cmake = noting(cmake, &mut lacks, |found| Lack {
        what: format!(
            "CMake of version {}.{} or newer ({found})",
            CMAKE_MIN.0, CMAKE_MIN.1
        ),
        apt: &[],
        pip: Some("\"cmake>=3.28,<4\""),
    });
    let ninja = noting(
        find(cache, "NINJA", "ninja", |_| Some(())),
        &mut lacks,
        |found| Lack {
            what: format!("ninja ({found})"),
            apt: &[],
            pip: Some("ninja"),
        },
    );
    let python = noting(
        find(cache, "PYTHON", "python3", |version| {
            (version.0 == 3).then_some(())
        }),
        &mut lacks,
        |found| Lack {
            what: format!("Python 3 ({found})"),
            apt: &["python3"],
            pip: None,
        },
    );
    let protoc = if build.own_protoc {
        None
    } else {
        noting(
            find(cache, "PROTOC", "protoc", |version| {
                (version == PROTOC).then_some(())
            }),
            &mut lacks,
            |found| Lack {
                what: format!(
                    "protoc of version {}.{} ({found}; ORT_TRAINING_BUILD_PROTOC=1 builds it instead, about \
                     8 CPU-minutes more)",
                    PROTOC.0, PROTOC.1
                ),
                apt: &["protobuf-compiler"],
                pip: None,
            },
        )
    };
    if build.need_libclang && libclang_dir(cache).is_none() {
        lacks.push(Lack {
            what: "libclang, for the bindings (LIBCLANG_PATH names the folder of another)".into(),
            apt: &[],
            pip: Some("libclang"),
        });
    }
    let cuda = if build.features.cuda {
        let toolkit = cuda::Toolkit::find(cache)?;
        if let Some(compiler) = &compiler {
            toolkit.check(compiler)?;
        }
        Some(toolkit)
    } else {
        None
    };
    match (compiler, cmake, ninja, python) {
        (Some(compiler), Some(cmake), Some(ninja), Some(python)) if lacks.is_empty() => Ok(Tools {
            compiler,
            cmake,
            ninja,
            python,
            protoc,
            cuda,
        }),
        _ => Err(Error::Tools(message(&lacks, cache, has_venv()))),
    }
}

fn noting(
    found: std::result::Result<PathBuf, String>,
    lacks: &mut Vec<Lack>,
    lack: impl FnOnce(String) -> Lack,
) -> Option<PathBuf> {
    found.map_err(|found| lacks.push(lack(found))).ok()
}

/// The tool that the variable names, the one in the cache's tools, or the first on `PATH`, that has a right version.
fn find(
    cache: &Cache,
    variable: &str,
    name: &str,
    right: impl Fn((u32, u32)) -> Option<()>,
) -> std::result::Result<PathBuf, String> {
    let named = std::env::var_os(variable).filter(|value| !value.is_empty());
    let candidates: Vec<PathBuf> = match named {
        Some(named) => vec![named.into()],
        None => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::iter::once(cache.tools().join("bin"))
                .chain(std::env::split_paths(&path))
                .map(|folder| folder.join(name))
                .filter(|program| program.is_file())
                .collect()
        }
    };
    let mut wrong = String::from("found none");
    for candidate in candidates {
        let Some(version) = version(&candidate) else {
            wrong = format!("found {}, which does not run", candidate.display());
            continue;
        };
        if right(version).is_some() {
            return Ok(candidate);
        }
        wrong = format!(
            "found {}.{} at {}",
            version.0,
            version.1,
            candidate.display()
        );
    }
    Err(wrong)
}

fn version(program: &Path) -> Option<(u32, u32)> {
    parse_version(&first_line(program.to_str()?, "--version")?)
}

/// The first `N.N` of a line such as `cmake version 3.31.6` or `libprotoc 3.21.12`.
fn parse_version(line: &str) -> Option<(u32, u32)> {
    line.split_whitespace().find_map(|word| {
        let mut parts = word.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

/// The folder of a `libclang` that bindgen can load, for `LIBCLANG_PATH`: what the variable says, the cache's tools,
/// a distribution's LLVM, the linker's folders, or a Python package's.
pub fn libclang_dir(cache: &Cache) -> Option<PathBuf> {
    let has = |folder: &Path| {
        std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| {
                let name = entry.file_name();
                is_libclang(&name.to_string_lossy())
            })
    };
    if let Some(path) = std::env::var_os("LIBCLANG_PATH").filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        if path.is_file() {
            return path.parent().map(Path::to_owned);
        }
        return has(&path).then_some(path);
    }
    let mut folders = Vec::new();
    let pythons = std::fs::read_dir(cache.tools().join("lib"));
    for python in pythons.into_iter().flatten().flatten() {
        folders.push(python.path().join("site-packages/clang/native"));
    }
    let mut llvms: Vec<PathBuf> = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("llvm-"))
        })
        .map(|path| path.join("lib"))
        .collect();
    llvms.sort();
    llvms.reverse();
    folders.extend(llvms);
    for folder in ["/usr/lib64", "/usr/lib", "/usr/local/lib"] {
        folders.push(folder.into());
    }
    folders.push(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH).into());
    folders.into_iter().find(|folder| has(folder)).or_else(|| {
        let output = Command::new("python3")
            .args([
                "-c",
                "import clang, os; print(os.path.join(os.path.dirname(clang.__file__), 'native'))",
            ])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        has(&folder).then_some(folder)
    })
}

/// Whether a file is libclang itself: `libclang.so`, `libclang.so.1`, `libclang-14.so.1`. `libclang-cpp.so.14`, which other
/// packages bring along, is another library.
fn is_libclang(name: &str) -> bool {
    name.starts_with("libclang.so")
        || name.strip_prefix("libclang-").is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains(".so")
        })
}

/// Debian's Python makes no virtual environments without one more package.
fn has_venv() -> bool {
    Command::new("python3")
        .args(["-c", "import venv, ensurepip"])
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success())
}

fn message(lacks: &[Lack], cache: &Cache, has_venv: bool) -> String {
    let mut text = String::from("missing tools:");
    for lack in lacks {
        text.push_str("\n  - ");
        text.push_str(&lack.what);
    }
    let mut apt: Vec<&str> = lacks.iter().flat_map(|lack| lack.apt).copied().collect();
    let pip: Vec<&str> = lacks.iter().filter_map(|lack| lack.pip).collect();
    let tools = cache.tools();
    let mut commands = Vec::new();
    if !pip.is_empty() && !has_venv {
        apt.push("python3-venv");
    }
    if !apt.is_empty() {
        commands.push(format!("sudo apt-get install -y {}", apt.join(" ")));
    }
    let venv = format!(
        "python3 -m venv {0} && {0}/bin/pip install {1}",
        tools.display(),
        pip.join(" ")
    );
    if !pip.is_empty() {
        commands.push(venv.clone());
    }
    text.push_str("\nOn Debian and Ubuntu this installs them:\n  ");
    text.push_str(&commands.join(" && "));
    if !pip.is_empty() {
        text.push_str("\nThe part with pip needs no root: tools in ");
        text.push_str(&tools.join("bin").display().to_string());
        text.push_str(" are found without being on PATH.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_is_told_from_its_sibling() {
        for name in [
            "libclang.so",
            "libclang.so.1",
            "libclang-14.so.1",
            "libclang-14.0.6.so",
        ] {
            assert!(is_libclang(name), "{name}");
        }
        for name in [
            "libclang-cpp.so.14",
            "libclang-cpp.so",
            "libclang-14",
            "libclangAST.a",
        ] {
            assert!(!is_libclang(name), "{name}");
        }
    }

    #[test]
    fn versions_are_read_from_what_the_tools_print() {
        assert_eq!(parse_version("cmake version 3.31.6"), Some((3, 31)));
        assert_eq!(parse_version("libprotoc 3.21.12"), Some((3, 21)));
        assert_eq!(
            parse_version("1.11.1.git.kitware.jobserver-1"),
            Some((1, 11))
        );
        assert_eq!(parse_version("Python 3.11.2"), Some((3, 11)));
        assert_eq!(parse_version("no number"), None);
    }

    #[test]
    fn the_message_names_all_and_one_command() {
        let cache = Cache::new("/c").unwrap();
        let lack = |what: &str, apt, pip| Lack {
            what: what.into(),
            apt,
            pip,
        };
        let text = message(
            &[
                lack("a C++ compiler", &["g++"], None),
                lack(
                    "CMake 3.28 (found 3.25 at /usr/bin/cmake)",
                    &[],
                    Some("cmake"),
                ),
                lack("ninja (found none)", &[], Some("ninja")),
                lack("protoc 3.21", &["protobuf-compiler"], None),
            ],
            &cache,
            false,
        );
        for part in [
            "C++ compiler",
            "found 3.25 at /usr/bin/cmake",
            "ninja",
            "protoc 3.21",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.contains(
            "\n  sudo apt-get install -y g++ protobuf-compiler python3-venv && \
             python3 -m venv /c/tools && /c/tools/bin/pip install cmake ninja\n"
        ));
    }

    #[test]
    fn only_apt_is_named_when_that_is_enough() {
        let cache = Cache::new("/c").unwrap();
        let text = message(
            &[Lack {
                what: "protoc".into(),
                apt: &["protobuf-compiler"],
                pip: None,
            }],
            &cache,
            true,
        );
        assert!(
            text.ends_with("\n  sudo apt-get install -y protobuf-compiler"),
            "{text}"
        );
    }

    #[test]
    fn a_tool_of_the_wrong_version_is_said_with_its_version_and_place() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path()).unwrap();
        let bin = cache.tools().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let tool = bin.join("tool-of-this-test");
        std::fs::write(&tool, "#!/bin/sh\necho tool 3.25.1\n").unwrap();
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        let newer = find(&cache, "NO_SUCH_VARIABLE", "tool-of-this-test", |v| {
            (v >= (3, 28)).then_some(())
        });
        assert_eq!(newer, Err(format!("found 3.25 at {}", tool.display())));
        let older = find(&cache, "NO_SUCH_VARIABLE", "tool-of-this-test", |v| {
            (v >= (3, 20)).then_some(())
        });
        assert_eq!(older, Ok(tool));
    }
}
