//! Embeds the files that a build of ONNX Runtime is made with (CMake files, patches, the C++ of the artifacts
//! library), so that the running code and these files always belong together and an installed binary is complete.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let mut files = Vec::new();
    for folder in ["cmake", "cuda", "patches", "reduced", "shim"] {
        println!("cargo::rerun-if-changed={folder}");
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    let mut code = String::from("static FILES: &[(&str, &[u8])] = &[\n");
    for file in files {
        let name = file
            .strip_prefix(&root)
            .expect("below the root")
            .to_str()
            .expect("UTF-8 names");
        writeln!(code, "    ({name:?}, include_bytes!({file:?})),").expect("writing to a string");
    }
    code.push_str("];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    fs::write(out.join("assets.rs"), code).expect("writing assets.rs");
    println!(
        "cargo::rustc-env=ORT_TRAINING_HOST_TARGET={}",
        env::var("TARGET").expect("set by cargo")
    );
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
