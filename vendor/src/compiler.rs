//! The C++ compiler: which it is, since another one makes another library.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A C and C++ compiler.
#[derive(Debug, Clone)]
pub(crate) struct Compiler {
    pub c: PathBuf,
    pub cxx: PathBuf,
    version: String,
    machine: String,
}

impl Compiler {
    /// `CXX` and `CC`, or the first pair on `PATH`.
    pub(crate) fn find() -> Option<Compiler> {
        let var = |name| {
            std::env::var(name)
                .ok()
                .filter(|value: &String| !value.is_empty())
        };
        let mut pairs: Vec<(String, String)> = Vec::new();
        match (var("CC"), var("CXX")) {
            (None, None) => {}
            (c, cxx) => pairs.push((
                c.unwrap_or_else(|| "cc".into()),
                cxx.unwrap_or_else(|| "c++".into()),
            )),
        }
        if pairs.is_empty() {
            for (c, cxx) in [("cc", "c++"), ("gcc", "g++"), ("clang", "clang++")] {
                pairs.push((c.into(), cxx.into()));
            }
        }
        pairs.into_iter().find_map(|(c, cxx)| {
            let version = first_line(&cxx, "--version")?;
            first_line(&c, "--version")?;
            let machine = first_line(&cxx, "-dumpmachine").unwrap_or_default();
            Some(Compiler {
                c: c.into(),
                cxx: cxx.into(),
                version,
                machine,
            })
        })
    }

    /// What is hashed and written down.
    pub(crate) fn identity(&self) -> String {
        format!("{} ({})", self.version, self.machine)
    }
}

/// The first line that a program prints, or nothing when it is not there or fails.
pub(crate) fn first_line(program: &str, arg: &str) -> Option<String> {
    let output = Command::new(program)
        .arg(arg)
        .stdin(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().next()?.trim().to_owned())
}
