//! What the tests of CUDA share: small libraries compiled for one test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a shared library of this name and soname, which needs the libraries that are given.
pub fn compile(
    folder: &Path,
    name: &str,
    source: &Path,
    needs: &[&Path],
    flags: &[&str],
) -> PathBuf {
    let library = folder.join(name);
    let status = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .arg(&library)
        .arg(format!("-Wl,-soname,{name}"))
        .args(["-x", "c"])
        .arg(source)
        .args(["-x", "none", "-Wl,--no-as-needed"])
        .args(needs)
        .args(flags)
        .status()
        .expect("the C compiler");
    assert!(status.success(), "{name} was not compiled");
    library
}

/// Compiles a library without contents.
pub fn compile_empty(folder: &Path, name: &str, needs: &[&Path], flags: &[&str]) -> PathBuf {
    compile(folder, name, Path::new("/dev/null"), needs, flags)
}
