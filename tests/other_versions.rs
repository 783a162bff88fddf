//! The bindings and the safe layer, compiled against headers of other versions of ONNX Runtime, on libraries of other
//! versions: the oldest that is accepted, and one that is newer than the library. Both are made here, of the headers and the
//! library that there are: older headers are these without what came later, as ONNX Runtime only appends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PREFIX: &str = env!("ORT_TRAINING_TEST_PREFIX");

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/downstream/versions")
}

/// The text without the functions of `OrtApi` that came after a version, and with that version as its own.
fn headers_of(version: u32, text: &str) -> String {
    let own = "#define ORT_API_VERSION ";
    let at = text.find(own).unwrap() + own.len();
    let end = at + text[at..].find('\n').unwrap();
    let text = format!("{}{version}{}", &text[..at], &text[end..]);
    let table = text.find("\nstruct OrtApi {").unwrap();
    let closed = table + text[table..].find("\n};").unwrap();
    let since = (version + 1..40)
        .filter_map(|later| text[table..closed].find(&format!("\\since Version 1.{later}.")))
        .min();
    let Some(since) = since else {
        return text;
    };
    // The comment that says so goes as well.
    let first = table + text[table..table + since].rfind("/**").unwrap();
    // Groups within comments are closed by the section that follows.
    format!("{}{}", &text[..first], &text[closed..])
}

/// A prefix of a version: its headers, and a library that offers the API up to `offered`.
fn prefix(folder: &Path, version: u32, offered: u32) {
    let real = Path::new(PREFIX);
    let include = folder.join("include/onnxruntime");
    let lib = folder.join("lib");
    fs::create_dir_all(&include).unwrap();
    fs::create_dir_all(&lib).unwrap();
    for entry in fs::read_dir(real.join("include/onnxruntime")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, include.join(path.file_name().unwrap())).unwrap();
        }
    }
    let header = include.join("onnxruntime_c_api.h");
    let text = fs::read_to_string(&header).unwrap();
    fs::write(&header, headers_of(version, &text)).unwrap();

    let script = folder.join("exports.map");
    let name = format!("1.{version}.0");
    fs::write(
        &script,
        format!("VERS_{name} {{ global: OrtGetApiBase; local: *; }};\n"),
    )
    .unwrap();
    let library = lib.join(format!("libonnxruntime.so.{name}"));
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libonnxruntime.so.1"])
        .arg(format!("-Wl,--version-script={}", script.display()))
        .arg(format!("-DAPI_VERSION={offered}"))
        .arg(format!("-DVERSION=\"{name}\""))
        .arg(format!("-DREAL_LIBRARY=\"{PREFIX}/lib/libonnxruntime.so\""))
        .arg("-o")
        .arg(&library)
        .arg(project().join("library.c"))
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(status.success(), "compiling the library");
    for link in ["libonnxruntime.so.1", "libonnxruntime.so"] {
        std::os::unix::fs::symlink(library.file_name().unwrap(), lib.join(link)).unwrap();
    }
}

/// Compiles the program on a prefix, runs it, and returns the version of the API that it took.
fn trains_on(folder: &Path, version: u32) -> u32 {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(workspace.join("Cargo.lock"), project().join("Cargo.lock")).unwrap();
    // TARGET/debug/deps/other_versions-HASH; a folder of its own, as the prefix is another for everything in it.
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap().join("other-versions");
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--target-dir"])
        .arg(&target)
        .current_dir(project())
        .env("ORT_TRAINING_PREFIX", folder);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG") || text.starts_with("CARGO_MANIFEST") || text == "OUT_DIR"
        {
            build.env_remove(&name);
        }
    }
    let built = build.output().unwrap();
    assert!(
        built.status.success(),
        "headers of 1.{version}: {}",
        String::from_utf8_lossy(&built.stderr)
    );
    let written = tempfile::tempdir().unwrap();
    let run = Command::new(target.join("debug/versions"))
        .env_clear()
        .env("LD_LIBRARY_PATH", folder.join("lib"))
        .arg(workspace.join("ort-training/fixtures/linear1"))
        .arg(written.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "on 1.{version}: {said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words[0], format!("1.{version}.0"));
    let numbers: Vec<f32> = words[2..]
        .iter()
        .map(|word| word.parse().unwrap())
        .collect();
    let [first, last, resumed, inferred] = numbers[..] else {
        panic!("{said}");
    };
    assert!(first > 1e-3 && last < first / 4.0, "{said}");
    assert!(resumed == 0.0 && inferred < 1e-6, "{said}");
    words[1].parse().unwrap()
}

#[test]
fn the_oldest_and_a_newer_one_train() {
    let folder = tempfile::tempdir().unwrap();
    let oldest = folder.path().join("oldest");
    prefix(&oldest, 17, 17);
    assert_eq!(trains_on(&oldest, 17), 17);
    // What its headers have and the library lacks is not asked for.
    let newer = folder.path().join("newer");
    prefix(&newer, 24, 21);
    assert_eq!(trains_on(&newer, 24), 21);
}

#[test]
fn older_headers_are_cut_where_they_ended() {
    let header = Path::new(PREFIX).join("include/onnxruntime/onnxruntime_c_api.h");
    let text = fs::read_to_string(header).unwrap();
    let cut = headers_of(17, &text);
    for (name, stays) in [
        ("SessionOptionsAppendExecutionProvider_OpenVINO_V2", true),
        ("KernelInfoGetConstantInput_tensor", true),
        ("AddExternalInitializersFromFilesInMemory", false),
        ("CreateLoraAdapter,", false),
    ] {
        assert_eq!(cut.contains(name), stays, "{name}");
    }
    assert!(cut.contains("#define ORT_API_VERSION 17\n"));
}
