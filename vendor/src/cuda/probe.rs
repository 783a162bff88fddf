//! What a folder holds of CUDA: versions, headers, libraries.

use std::fs;
use std::io::Read;
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
    library_file(home, &format!("lib{name}.so"))
}

/// A library of cuDNN 9. NVIDIA's packages on PyPI have it under the name that programs ask for alone, `libcudnn.so.9`.
pub(super) fn cudnn_library(home: &Path, name: &str) -> Option<PathBuf> {
    library(home, name).or_else(|| library_file(home, &format!("lib{name}.so.9")))
}

fn library_file(home: &Path, file: &str) -> Option<PathBuf> {
    library_folders(home)
        .into_iter()
        .map(|folder| folder.join(file))
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

/// The major version of CUDA that the runtime's headers are of.
pub(super) fn runtime_major(home: &Path) -> Option<u32> {
    let version = defined(&header(home, "cuda_runtime_api.h")?, "CUDART_VERSION")?;
    Some(version / 1000)
}

/// The major version of CUDA that cuDNN is made for, by the name under which it asks for cuBLAS: cuDNN 9 comes for 12 and
/// for 13, and neither its headers nor its own name tell. Reads up to a hundred megabytes.
pub(super) fn cudnn_made_for(home: &Path) -> Option<u32> {
    let file = fs::File::open(cudnn_library(home, "cudnn_adv")?).ok()?;
    number_after(file, b"libcublasLt.so.")
}

/// The number that follows the first `text` in what is read.
fn number_after(mut from: impl Read, text: &[u8]) -> Option<u32> {
    let mut window = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        let read = from.read(&mut chunk).ok()?;
        window.extend_from_slice(&chunk[..read]);
        let mut at = 0;
        // Step from one first letter to the next: comparing at every byte takes seconds without optimisation.
        while let Some(step) = window[at..].iter().position(|byte| *byte == text[0]) {
            at += step;
            if window[at..].starts_with(text) {
                let rest = &window[at + text.len()..];
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                if digits < rest.len() || read == 0 {
                    return std::str::from_utf8(&rest[..digits]).ok()?.parse().ok();
                }
                break;
            }
            at += 1;
        }
        if read == 0 {
            return None;
        }
        // What may be the beginning of the text, or a number that goes on, is kept for the next round.
        let kept = (text.len() + 10).min(window.len());
        window.drain(..window.len() - kept);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out a few bytes at a time, as a file may.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn numbers_are_found_wherever_the_reads_end() {
        let long = [
            &[b'l'; 3000],
            &b"\0libcublas.so.7\0libcublasLt.so.13\0libcublasLt.so.12"[..],
        ]
        .concat();
        for step in [1, 2, 7, 13, 997, 1 << 20] {
            let of = |bytes| number_after(Slow(bytes, step), b"libcublasLt.so.");
            assert_eq!(of(&long), Some(13), "{step}");
            assert_eq!(of(b"libcublasLt.so.12"), Some(12), "{step}");
            assert_eq!(of(b"libcublasLt.so libcublasLt.s"), None, "{step}");
        }
    }
}
