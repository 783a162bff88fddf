//! Says which machine the crate is compiled for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!(
        "cargo::rustc-env=ORT_TRAINING_HOST_TARGET={}",
        std::env::var("TARGET").expect("set by cargo")
    );
}
