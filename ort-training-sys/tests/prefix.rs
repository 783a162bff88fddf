//! What the build script says about folders that are no usable ONNX Runtime.

#[path = "../build/prefix.rs"]
#[allow(dead_code)]
mod prefix;

use std::fs;
use std::path::{Path, PathBuf};

use prefix::Prefix;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("prefix-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn error(&self) -> String {
        Prefix::open(&self.0).unwrap_err().to_string()
    }
}

#[test]
fn a_missing_folder() {
    let folder = Folder::new("missing");
    let error = Prefix::open(&folder.0.join("nowhere")).unwrap_err().to_string();
    assert!(error.contains("nowhere") && error.contains("found nothing"), "{error}");
    folder.file("plain", "");
    let error = Prefix::open(&folder.0.join("plain")).unwrap_err().to_string();
    assert!(error.contains("found a file"), "{error}");
}

#[test]
fn a_folder_that_is_not_onnx_runtime() {
    let folder = Folder::new("other");
    folder.file("include/zlib.h", "").file("lib/libz.so", "");
    let error = folder.error();
    assert!(error.contains("lib/libonnxruntime") && error.contains("not an ONNX Runtime"), "{error}");
}

#[test]
fn a_library_without_headers() {
    let folder = Folder::new("headers");
    folder.file("lib/libonnxruntime.so", "").file("lib/libonnxruntime.dylib", "");
    let error = folder.error();
    assert!(error.contains("onnxruntime_c_api.h"), "{error}");
}

#[test]
fn a_header_that_is_not_onnx_runtimes() {
    let folder = Folder::new("foreign");
    folder
        .file("lib/libonnxruntime.so", "")
        .file("lib/libonnxruntime.dylib", "")
        .file("include/onnxruntime/onnxruntime_c_api.h", "int x;\n");
    let error = folder.error();
    assert!(error.contains("ORT_API_VERSION"), "{error}");
}

#[test]
fn an_onnx_runtime_that_is_too_old() {
    let folder = Folder::new("old");
    folder
        .file("lib/libonnxruntime.so", "")
        .file("lib/libonnxruntime.dylib", "")
        .file("include/onnxruntime/onnxruntime_c_api.h", "#define ORT_API_VERSION 12\n");
    let error = folder.error();
    assert!(error.contains("expected ORT_API_VERSION 17") && error.contains("found 12"), "{error}");
}

#[test]
fn an_onnx_runtime_without_training() {
    let folder = Folder::new("inference");
    folder
        .file("lib/libonnxruntime.so", "")
        .file("lib/libonnxruntime.dylib", "")
        .file("include/onnxruntime/onnxruntime_c_api.h", "#define ORT_API_VERSION 21\n");
    let error = folder.error();
    assert!(error.contains("onnxruntime_training_c_api.h"), "{error}");
    assert!(error.contains("built without training"), "{error}");
}

#[test]
fn a_whole_install_reports_what_it_is() {
    let folder = Folder::new("whole");
    folder
        .file("lib/libonnxruntime.so.1.21.0", "")
        .file("lib/libonnxruntime_providers_cuda.so", "")
        .file("include/onnxruntime/onnxruntime_c_api.h", "#define ORT_API_VERSION 21\n")
        .file("include/onnxruntime/onnxruntime_training_c_api.h", "");
    std::os::unix::fs::symlink("libonnxruntime.so.1.21.0", folder.0.join("lib/libonnxruntime.so")).unwrap();
    let install = Prefix::open(&folder.0).unwrap();
    assert_eq!(install.version, "1.21.0");
    assert_eq!(install.features, ["training", "cuda"]);
    assert_eq!(install.libraries().len(), 3);
}
