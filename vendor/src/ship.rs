//! For build scripts of programs: ONNX Runtime's libraries beside the program, and the program told to look there.
//!
//! A dependency's build script cannot give link arguments to the programs that depend on it (cargo's rule), so this is one
//! line in the program's own:
//!
//! ```no_run
//! // build.rs
//! onnxruntime_training_src::ship::beside_programs().unwrap();
//! ```
//!
//! ```toml
//! # Cargo.toml
//! [build-dependencies]
//! onnxruntime-training-src = { version = "0.1", default-features = false }
//! ```
//!
//! After `cargo build --release`, `target/release/` holds the program and the libraries; these files, in one folder, are
//! what is to be shipped. They run wherever the folder lies, with no environment variable, and need nothing of the
//! cache folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The variable that `ort-training` and `ort-training-sys` give to the build scripts of packages that depend on them.
const LIB_VARIABLES: [&str; 2] = ["DEP_ORT_TRAINING_LIB", "DEP_ONNXRUNTIME_TRAINING_LIB"];

/// Puts the libraries of the ONNX Runtime that `ort-training` (or `ort-training-sys`) uses beside the programs and the
/// examples of the package whose build script calls this, and gives them `$ORIGIN` as their run path. Does nothing for an
/// ONNX Runtime that is linked statically.
///
/// Returns the files, as they lie beside the programs.
///
/// # Errors
/// It is not called from a build script; the package depends on neither crate directly; a file cannot be written.
pub fn beside_programs() -> Result<Vec<PathBuf>> {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    for name in LIB_VARIABLES {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let out_dir = var("OUT_DIR").ok_or_else(|| Error::Setting {
        name: "OUT_DIR".into(),
        expected: "the folder that cargo gives a build script, which is where this is called from"
            .into(),
        found: String::new(),
    })?;
    let Some(lib) = LIB_VARIABLES.into_iter().find_map(var) else {
        return Err(Error::Setting {
            name: LIB_VARIABLES.join(" or "),
            expected: "the folder of ONNX Runtime's libraries, which cargo sets when the package itself depends on \
                       ort-training or ort-training-sys"
                .into(),
            found: String::new(),
        });
    };
    let programs = programs_folder(Path::new(&out_dir)).ok_or_else(|| Error::Setting {
        name: "OUT_DIR".into(),
        expected: "a folder such as target/release/build/NAME/out".into(),
        found: out_dir.clone(),
    })?;
    let linkage = |name: &str| var(&name.replace("_LIB", "_LINKAGE"));
    if LIB_VARIABLES.into_iter().find_map(linkage).as_deref() == Some("static") {
        return Ok(Vec::new());
    }
    let files = put(Path::new(&lib), &programs)?;
    // Examples are linked one folder below.
    let examples = programs.join("examples");
    if examples.is_dir() {
        put(Path::new(&lib), &examples)?;
    }
    println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN");
    Ok(files)
}

/// `target/release` of `target/release/build/NAME-HASH/out`.
fn programs_folder(out_dir: &Path) -> Option<PathBuf> {
    let build = out_dir
        .ancestors()
        .find(|folder| folder.ends_with("build"))?;
    Some(build.parent()?.to_owned())
}

/// The libraries that a program needs at run time, under the names that it asks for: of `libonnxruntime.so`, `.so.1` and
/// `.so.1.21.0` only the one in the middle.
fn needed_at_run_time(name: &str) -> bool {
    name == "libonnxruntime.so.1"
        || (name.starts_with("libonnxruntime_providers_") && name.ends_with(".so"))
        || (name.starts_with("libonnxruntime") && name.ends_with(".dylib"))
}

fn put(lib: &Path, programs: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(lib).map_err(Error::io(format!("reading {}", lib.display())))?;
    let mut names: Vec<_> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| needed_at_run_time(name))
        .collect();
    names.sort();
    let mut files = Vec::new();
    for name in names {
        let (from, to) = (lib.join(&name), programs.join(&name));
        println!("cargo::rerun-if-changed={}", from.display());
        // Beside it first: a program that runs keeps the file that it has mapped.
        let new = programs.join(format!(".{name}.{}", std::process::id()));
        fs::copy(&from, &new)
            .and_then(|_| fs::rename(&new, &to))
            .map_err(Error::io(format!(
                "copying {} to {}",
                from.display(),
                to.display()
            )))?;
        files.push(to);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_programs_is_found() {
        let folder = |out: &str| programs_folder(Path::new(out));
        let release = Some(PathBuf::from("/w/target/release"));
        assert_eq!(folder("/w/target/release/build/app-1f/out"), release);
        assert_eq!(folder("/w/target/release/out"), None);
    }

    #[test]
    fn what_programs_ask_for_is_put_there_whole() {
        let (lib, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let real = lib.path().join("libonnxruntime.so.1.21.0");
        fs::write(&real, "library").unwrap();
        for link in ["libonnxruntime.so.1", "libonnxruntime.so"] {
            std::os::unix::fs::symlink("libonnxruntime.so.1.21.0", lib.path().join(link)).unwrap();
        }
        fs::write(lib.path().join("libonnxruntime_providers_shared.so"), "p").unwrap();
        fs::write(lib.path().join("libother.so"), "o").unwrap();
        fs::write(programs.path().join("libonnxruntime.so.1"), "an old one").unwrap();
        let files = put(lib.path(), programs.path()).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap()).collect();
        assert_eq!(
            names,
            ["libonnxruntime.so.1", "libonnxruntime_providers_shared.so"]
        );
        assert_eq!(fs::read_dir(programs.path()).unwrap().count(), 2);
        assert!(!files[0].is_symlink());
        assert_eq!(fs::read_to_string(&files[0]).unwrap(), "library");
    }
}
