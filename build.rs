//! Compiles the C half of the parity tests against the headers of the ONNX Runtime that the bindings use.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    // ort-training-sys tells where its ONNX Runtime is (`links = "onnxruntime_training"`). Without one, when only documentation
    // is built, there is nothing to compile against and nothing that would be run.
    println!("cargo:rerun-if-env-changed=DOCS_RS");
    if env::var_os("DOCS_RS").is_some() {
        return Ok(());
    }
    let include = env::var_os("DEP_ONNXRUNTIME_TRAINING_INCLUDE")
        .ok_or("ort-training-sys gave no include folder")?;
    let folders: Vec<PathBuf> = env::split_paths(&include).collect();
    let header = folders
        .iter()
        .map(|folder| folder.join("onnxruntime_training_c_api.h"))
        .find(|header| header.is_file())
        .ok_or_else(|| format!("onnxruntime_training_c_api.h is in none of {folders:?}"))?;
    println!("cargo:rustc-env=ORT_TRAINING_HEADER={}", header.display());
    println!("cargo:rerun-if-changed={}", header.display());
    let prefix = env::var("DEP_ONNXRUNTIME_TRAINING_ROOT")?;
    println!("cargo:rustc-env=ORT_TRAINING_TEST_PREFIX={prefix}");

    println!("cargo:rerun-if-changed=tests/c");
    let mut build = cc::Build::new();
    build
        .includes(&folders)
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true);
    for entry in fs::read_dir("tests/c")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            build.file(path);
        }
    }
    build.try_compile("parity")?;

    // What cargo runs finds the library by itself; a debugger or valgrind that is given a test binary needs the path.
    if let Some(lib) = env::var_os("DEP_ONNXRUNTIME_TRAINING_LIB") {
        println!(
            "cargo:rustc-link-arg=-Wl,-rpath,{}",
            PathBuf::from(lib).display()
        );
    }
    Ok(())
}
