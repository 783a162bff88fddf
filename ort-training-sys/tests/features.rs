//! What the build script says about features and installs that do not go together.

#[path = "../build/features.rs"]
mod features;

use std::fs;
use std::path::Path;

use features::Wanted;
use onnxruntime_training_src::Install;

const SHARED: Wanted = Wanted {
    in_program: false,
    cuda: false,
};
const STATIC: Wanted = Wanted {
    in_program: true,
    ..SHARED
};
const CUDA: Wanted = Wanted {
    cuda: true,
    ..SHARED
};

/// A prefix with the headers of 1.21 and a library that exports what ONNX Runtime does.
fn prefix(root: &Path, build_info: Option<&str>) -> Install {
    let include = root.join("include/onnxruntime");
    let lib = root.join("lib");
    fs::create_dir_all(&include).unwrap();
    fs::create_dir_all(&lib).unwrap();
    fs::write(
        include.join("onnxruntime_c_api.h"),
        "#define ORT_API_VERSION 21\n",
    )
    .unwrap();
    fs::write(include.join("onnxruntime_training_c_api.h"), "").unwrap();
    let source = root.join("api.c");
    fs::write(&source, "int OrtGetApiBase(void) { return 0; }\n").unwrap();
    let status = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(lib.join("libonnxruntime.so"))
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success());
    if let Some(text) = build_info {
        fs::write(root.join("BUILD-INFO.toml"), text).unwrap();
    }
    Install::open(root).unwrap()
}

#[test]
fn static_and_cuda_together_are_refused_before_anything_is_built() {
    for wanted in [SHARED, STATIC, CUDA] {
        assert_eq!(wanted.check(), Ok(()));
    }
    let both = Wanted {
        cuda: true,
        ..STATIC
    };
    let message = both.check().unwrap_err();
    for part in [
        "`static` and `cuda` are both on",
        "cargo tree -e features -i ort-training-sys",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn cuda_asked_of_a_cpu_prefix_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let own = prefix(
        &dir.path().join("own"),
        Some("version = \"1.21.0\"\nfeatures = [\"artifacts\", \"training\"]\n"),
    );
    assert_eq!(SHARED.check_cuda(&own), Ok(()));
    let message = CUDA.check_cuda(&own).unwrap_err();
    assert!(
        message.contains("built with CUDA, found") && message.ends_with("with artifacts, training"),
        "{message}"
    );

    let others = prefix(&dir.path().join("others"), None);
    let message = CUDA.check_cuda(&others).unwrap_err();
    assert!(
        message.ends_with("lib/libonnxruntime_providers_cuda.so"),
        "{message}"
    );
    fs::write(
        others.lib_dir.join("libonnxruntime_providers_cuda.so"),
        "its content is read when it is loaded",
    )
    .unwrap();
    assert_eq!(CUDA.check_cuda(&others), Ok(()));
}

#[test]
fn static_asked_of_a_prefix_without_the_archive_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let install = prefix(dir.path(), None);
    assert_eq!(SHARED.archive(&install), Ok(None));
    let message = STATIC.archive(&install).unwrap_err();
    assert!(
        message.contains("lib/libonnxruntime.a, found no such file"),
        "{message}"
    );
    let archive = install.lib_dir.join("libonnxruntime.a");
    fs::write(&archive, "!<arch>\n").unwrap();
    let install = Install::open(dir.path()).unwrap();
    assert_eq!(STATIC.archive(&install), Ok(Some(archive)));
}
