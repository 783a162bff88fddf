use std::env;

fn main() {
    let include = env::var_os("DEP_ONNXRUNTIME_TRAINING_INCLUDE").expect("set by ort-training-sys");
    let folders: Vec<_> = env::split_paths(&include).collect();
    println!("cargo::rerun-if-changed=cpp");
    cc::Build::new()
        .includes(&folders)
        .file("cpp/version.c")
        .compile("native_c");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .includes(&folders)
        .file("cpp/train.cc")
        .compile("native_cc");
    let lib = env::var("DEP_ONNXRUNTIME_TRAINING_LIB").expect("set by ort-training-sys");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
}
