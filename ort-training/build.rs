//! Hands on what `ort-training-sys` says of its ONNX Runtime, to the build scripts of those who depend on this crate:
//! cargo gives them the words of direct dependencies only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(linked_artifact_maker)");
    let said =
        |name: &str| std::env::var(format!("DEP_ONNXRUNTIME_TRAINING_{name}")).unwrap_or_default();
    // In a shared library the artifact maker is looked up by name; linked into a program, it has no name to look up.
    if said("LINKAGE") == "static" && said("FEATURES").split(',').any(|name| name == "artifacts") {
        println!("cargo::rustc-cfg=linked_artifact_maker");
    }
    for name in ["ROOT", "INCLUDE", "LIB", "VERSION", "FEATURES", "LINKAGE"] {
        let variable = format!("DEP_ONNXRUNTIME_TRAINING_{name}");
        println!("cargo::rerun-if-env-changed={variable}");
        if let Ok(value) = std::env::var(&variable) {
            println!("cargo::metadata={}={value}", name.to_lowercase());
        }
    }
}
