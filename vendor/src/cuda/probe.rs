//! What a folder holds of CUDA: versions, headers, libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A version: major, minor and what follows, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub u32, pub u32, pub u32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// What `nvcc --version` says, or what was wrong with running it.
pub(super) fn nvcc_version(nvcc: &Path) -> Result<Version, String> {
    let output = Command::new(nvcc)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("it does not run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Cuda compilation tools, release 13.0, V13.0.88
    text.rsplit_once(", V")
        .and_then(|(_, rest)| {
            let mut numbers = rest
                .split(|c: char| !c.is_ascii_digit())
                .map(|number| number.parse().ok());
            Some(Version(
                numbers.next()??,
                numbers.next()??,
                numbers.next()??,
            ))
        })
        .ok_or_else(|| format!("`nvcc --version` names no version: {}", text.trim()))
}

/// The folders below `home` that hold headers.
fn include_folders(home: &Path) -> [PathBuf; 3] {
    [
        home.join("include"),
        home.join(format!("targets/{}-linux/include", std::env::consts::ARCH)),
        home.join(format!("include/{}-linux-gnu", std::env::consts::ARCH)),
    ]
}

/// The folders below `home` that hold libraries.
fn library_folders(home: &Path) -> [PathBuf; 4] {
    [
        home.join("lib64"),
        home.join("lib"),
        home.join(format!("targets/{}-linux/lib", std::env::consts::ARCH)),
        home.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH)),
    ]
}

/// The header of that name.
pub(super) fn header(home: &Path, name: &str) -> Option<PathBuf> {
    include_folders(home)
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// The library to link `-lNAME` with.
pub(super) fn library(home: &Path, name: &str) -> Option<PathBuf> {
    library_folders(home)
        .into_iter()
        .map(|folder| folder.join(format!("lib{name}.so")))
        .find(|path| path.is_file())
}

/// The number that a header defines `name` as.
pub(super) fn defined(header: &Path, name: &str) -> Option<u32> {
    let text = fs::read_to_string(header).ok()?;
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("#define") && words.next() == Some(name))
            .then(|| words.next()?.parse().ok())?
    })
}

/// The version that cuDNN's header states.
pub(super) fn cudnn_version(home: &Path) -> Option<Version> {
    let header = header(home, "cudnn_version.h")?;
    let number = |name| defined(&header, name);
    Some(Version(
        number("CUDNN_MAJOR")?,
        number("CUDNN_MINOR")?,
        number("CUDNN_PATCHLEVEL")?,
    ))
}

/// The newest gcc that the toolkit's headers let through: `#if __GNUC__ > 15` in `crt/host_config.h`.
pub(super) fn newest_gcc(home: &Path) -> Option<u32> {
    let text = fs::read_to_string(header(home, "crt/host_config.h")?).ok()?;
    text.lines().find_map(|line| {
        line.trim()
            .strip_prefix("#if __GNUC__ > ")?
            .trim()
            .parse()
            .ok()
    })
}

/// The major version of a compiler that is gcc.
pub(super) fn gcc_major(cxx: &Path) -> Option<u32> {
    let run = |arg: &str| {
        let output = Command::new(cxx)
            .arg(arg)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // clang answers -dumpversion too.
    if run("--version")?.contains("clang") {
        return None;
    }
    run("-dumpversion")?.trim().split('.').next()?.parse().ok()
}
