//! Hands on what `ort-training-sys` says of its ONNX Runtime, to the build scripts of those who depend on this crate:
//! cargo gives them the words of direct dependencies only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["ROOT", "INCLUDE", "LIB", "VERSION", "FEATURES"] {
        let variable = format!("DEP_ONNXRUNTIME_TRAINING_{name}");
        println!("cargo::rerun-if-env-changed={variable}");
        if let Ok(value) = std::env::var(&variable) {
            println!("cargo::metadata={}={value}", name.to_lowercase());
        }
    }
}
