use super::*;

/// The smallest thing that passes for an ONNX Runtime of this machine.
struct Fake {
    dir: tempfile::TempDir,
}

const CORE: &str = "include/onnxruntime/onnxruntime_c_api.h";
const TRAINING: &str = "include/onnxruntime/onnxruntime_training_c_api.h";
const LIBRARY: &str = "lib/libonnxruntime.so";

impl Fake {
    fn new() -> Self {
        let fake = Fake {
            dir: tempfile::tempdir().unwrap(),
        };
        fake.write(CORE, "// x\n#define ORT_API_VERSION 21\n");
        fake.write(TRAINING, "// x\n");
        fake.write(LIBRARY, elf(62, 2, 64));
        fake.write(
            "lib/pkgconfig/libonnxruntime.pc",
            "Name: onnxruntime\nVersion: 1.21.0\n",
        );
        fake
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.dir.path().join(name)).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let to = self.dir.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(self.dir.path().join(from), to).unwrap();
    }

    fn open(&self) -> Result<Install> {
        Install::open_for(self.dir.path(), "x86_64")
    }

    fn refusal(&self) -> String {
        self.open().unwrap_err().to_string()
    }
}

/// An ELF header of a shared library whose section table ends at `end`.
fn elf(machine: u16, class: u8, end: u64) -> Vec<u8> {
    let mut bytes = vec![0u8; 64];
    bytes[..4].copy_from_slice(b"\x7fELF");
    bytes[4] = class;
    bytes[5] = 1;
    bytes[16] = 3;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[40..48].copy_from_slice(&end.to_le_bytes());
    bytes
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn an_install_is_opened_with_its_version_and_folders() {
    let fake = Fake::new();
    let install = fake.open().unwrap();
    assert_eq!(install.version, "1.21.0");
    assert_eq!(install.api_version, 21);
    assert_eq!(
        install.include_dirs,
        [install.root.join("include/onnxruntime")]
    );
    assert_eq!(install.lib_dir, install.root.join("lib"));
    assert!(install.features.is_empty());
}

#[test]
fn features_come_from_build_info() {
    let fake = Fake::new();
    fake.write(
        BUILD_INFO,
        "version = \"1.21.0\"\nfeatures = [\"artifacts\", \"training\"]\n\n[timings]\nversion = 3\n",
    );
    let install = fake.open().unwrap();
    assert_eq!(install.features, ["artifacts", "training"]);
    assert!(install.has_feature("artifacts") && !install.has_feature("cuda"));
    assert!(install.build_info().unwrap().contains("[timings]"));
}

#[test]
fn other_layouts_are_known() {
    // A release archive: headers right below include/.
    let fake = Fake::new();
    fake.rename(CORE, "include/onnxruntime_c_api.h");
    fake.rename(TRAINING, "include/onnxruntime_training_c_api.h");
    assert_eq!(fake.open().unwrap().include_dirs.len(), 1);
    // The source tree, with the headers in two folders.
    let fake = Fake::new();
    fake.rename(CORE, "include/onnxruntime/core/session/onnxruntime_c_api.h");
    fake.rename(
        TRAINING,
        "orttraining/orttraining/training_api/include/onnxruntime_training_c_api.h",
    );
    assert_eq!(fake.open().unwrap().include_dirs.len(), 2);
    // Libraries in lib64, and flat beside the headers.
    for library in ["lib64/libonnxruntime.so", "libonnxruntime.so"] {
        let fake = Fake::new();
        fake.rename(LIBRARY, library);
        assert!(fake.open().unwrap().library.ends_with(library));
    }
}

#[test]
fn versions_are_found_without_pkg_config_too() {
    let fake = Fake::new();
    fake.remove("lib/pkgconfig/libonnxruntime.pc");
    assert_eq!(fake.open().unwrap().version, "1.21");
    fake.write("lib/libonnxruntime.so.1.21.3", elf(62, 2, 64));
    assert_eq!(fake.open().unwrap().version, "1.21.3");
    fake.write("VERSION_NUMBER", "1.21.1\n");
    assert_eq!(fake.open().unwrap().version, "1.21.1");
}

#[test]
fn what_is_no_prefix_is_refused() {
    let nothing = tempfile::tempdir().unwrap();
    let missing = nothing.path().join("missing");
    let text = Install::open(&missing).unwrap_err().to_string();
    assert_says(
        &text,
        &[
            missing.to_str().unwrap(),
            "expected a folder",
            "nothing at that path",
        ],
    );
    let file = nothing.path().join("file");
    fs::write(&file, "").unwrap();
    assert_says(
        &Install::open(&file).unwrap_err().to_string(),
        &["found a file"],
    );
    let text = Install::open(nothing.path()).unwrap_err().to_string();
    assert_says(
        &text,
        &[
            "onnxruntime_c_api.h in one of include/onnxruntime",
            "no such file",
        ],
    );
}

#[test]
fn headers_without_training_are_refused() {
    let fake = Fake::new();
    fake.remove(TRAINING);
    assert_says(
        &fake.refusal(),
        &[
            "onnxruntime_training_c_api.h",
            "installed without training",
            "onnxruntime_ENABLE_TRAINING_APIS=ON",
        ],
    );
}

#[test]
fn headers_that_are_too_old_or_no_headers_are_refused() {
    let fake = Fake::new();
    fake.write(CORE, "#define ORT_API_VERSION 14\n");
    assert_says(
        &fake.refusal(),
        &["expected ONNX Runtime 1.17 or newer", "ORT_API_VERSION 14"],
    );
    fake.write(CORE, "int main() { return 0; }\n");
    assert_says(&fake.refusal(), &["#define ORT_API_VERSION N"]);
}

#[test]
fn headers_and_library_of_two_versions_are_refused() {
    let fake = Fake::new();
    fake.write("lib/pkgconfig/libonnxruntime.pc", "Version: 1.19.2\n");
    assert_says(
        &fake.refusal(),
        &[
            "headers have ORT_API_VERSION 21",
            "a library of version 1.19.2",
        ],
    );
}

#[test]
fn a_missing_dangling_or_static_library_is_refused() {
    let fake = Fake::new();
    fake.remove(LIBRARY);
    assert_says(
        &fake.refusal(),
        &["libonnxruntime.so in lib, lib64", "no such file"],
    );
    fake.write("lib/libonnxruntime_session.a", "");
    assert_says(
        &fake.refusal(),
        &["onnxruntime_BUILD_SHARED_LIB=ON", "static libraries only"],
    );
    std::os::unix::fs::symlink("gone.so.1", fake.dir.path().join(LIBRARY)).unwrap();
    assert_says(&fake.refusal(), &["a link to a file that is not there"]);
}

#[test]
fn libraries_that_cannot_be_linked_are_refused() {
    let fake = Fake::new();
    for (content, found) in [
        (Vec::new(), "an empty file"),
        (b"MZ not an ELF".to_vec(), "not an ELF library"),
        (elf(62, 2, 64)[..40].to_vec(), "cut off after 40 bytes"),
        (elf(62, 2, 1000), "cut off (64 bytes of at least 1000)"),
        (
            elf(183, 2, 64),
            "a library for aarch64, while the target is x86_64",
        ),
        (
            elf(3, 1, 64),
            "a library for x86, while the target is x86_64",
        ),
    ] {
        fake.write(LIBRARY, content);
        assert_says(&fake.refusal(), &["lib/libonnxruntime.so", found]);
    }
    let mut program = elf(62, 2, 64);
    program[16] = 2;
    fake.write(LIBRARY, program);
    assert_says(&fake.refusal(), &["not a shared library"]);
}

/// A real shared library, linked as ONNX Runtime's is: its version names the symbols.
fn linked(fake: &Fake, function: &str, version: &str) {
    fake.write("api.c", format!("int {function}(void) {{ return 0; }}\n"));
    fake.write(
        "api.lds",
        format!("VERS_{version} {{ global: {function}; local: *; }};\n"),
    );
    let status = std::process::Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-Wl,--version-script=api.lds",
            "-o",
            LIBRARY,
            "api.c",
        ])
        .current_dir(fake.dir.path())
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn a_library_itself_says_what_it_is() {
    let fake = Fake::new();
    linked(&fake, "OrtGetApiBase", "1.21.7");
    assert_eq!(fake.open().unwrap().version, "1.21.7");
    linked(&fake, "OrtGetApiBase", "1.22.0");
    assert_says(
        &fake.refusal(),
        &["ORT_API_VERSION 21", "a library of version 1.22.0"],
    );
    linked(&fake, "AnotherFunction", "1.21.0");
    assert_says(
        &fake.refusal(),
        &[
            "expected ONNX Runtime at",
            "libonnxruntime.so",
            "without its function OrtGetApiBase",
        ],
    );
}
