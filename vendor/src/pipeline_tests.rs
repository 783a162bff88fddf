//! The whole way from an archive to a prefix, with a project of three files in the place of ONNX Runtime. Needs what
//! a build needs: a C++ compiler, CMake, ninja and Python (on PATH, or in the cache's `tools`, where `ci/setup` puts
//! them).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::builder::{Build, Launcher};
use crate::cache::Cache;
use crate::error::Error;
use crate::fetch::OriginKind;
use crate::hash::Hash;
use crate::manifest::Manifest;
use crate::progress::Event;

const CMAKE: &str = r#"
cmake_minimum_required(VERSION 3.25)
project(onnxruntime C CXX)
include(GNUInstallDirs)
add_library(onnxruntime_common STATIC ../src/a.cc ../src/b.cc ../src/c.cc)
add_library(onnxruntime SHARED ../src/api.cc)
target_link_libraries(onnxruntime PRIVATE onnxruntime_common)
set_target_properties(onnxruntime PROPERTIES VERSION 1.21.0 SOVERSION 1)
install(TARGETS onnxruntime DESTINATION ${CMAKE_INSTALL_LIBDIR})
file(WRITE ${CMAKE_BINARY_DIR}/libonnxruntime.pc "prefix=${CMAKE_INSTALL_PREFIX}\nVersion: 1.21.0\n")
install(FILES ${CMAKE_BINARY_DIR}/libonnxruntime.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ../onnxruntime_c_api.h ../onnxruntime_training_c_api.h DESTINATION include/onnxruntime)
"#;

struct Project {
    dir: tempfile::TempDir,
    files: Vec<(&'static str, String)>,
}

impl Project {
    /// `a.cc` and `b.cc` have a static function of one name: they cannot share a batch.
    fn new() -> Self {
        let part = |name: &str| {
            format!("static int same() {{ return 1; }}\nint {name}() {{ return same(); }}\n")
        };
        Project {
            dir: tempfile::tempdir().unwrap(),
            files: vec![
                ("VERSION_NUMBER", "1.21.0\n".into()),
                ("LICENSE", "licence of the whole\n".into()),
                ("onnxruntime_c_api.h", "#define ORT_API_VERSION 21\n".into()),
                ("onnxruntime_training_c_api.h", "\n".into()),
                ("cmake/CMakeLists.txt", CMAKE.into()),
                ("src/a.cc", part("a")),
                ("src/b.cc", part("b")),
                ("src/c.cc", "int c() { return 3; }\n".into()),
                (
                    "src/api.cc",
                    "int a(); int b(); int c();\nextern \"C\" int OrtGetApiBase() { return a() + b() + c(); }\n"
                        .into(),
                ),
            ],
        }
    }

    fn with(mut self, name: &str, content: &str) -> Self {
        let file = self
            .files
            .iter_mut()
            .find(|(file, _)| *file == name)
            .unwrap();
        file.1 = content.to_owned();
        self
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn archive(&self) -> PathBuf {
        let path = self.dir.path().join("archives/onnxruntime.tar.gz");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(&path).unwrap();
        let gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        let mut builder = tar::Builder::new(gz);
        for (name, content) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_mtime(1_000_000_000);
            header.set_size(content.len() as u64);
            builder
                .append_data(
                    &mut header,
                    format!("onnxruntime-1/{name}"),
                    content.as_bytes(),
                )
                .unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap();
        path
    }

    fn build(&self) -> Build {
        let archive = self.archive();
        let hash = Hash::Sha256(String::new()).of_file(&archive).unwrap();
        let manifest = format!(
            "[[source]]\nname = \"onnxruntime\"\nversion = \"1.21.0\"\nlicence = \"MIT\"\nhomepage = \"h\"\n\
             use = \"u\"\nlicence_files = [\"LICENSE\"]\n[[source.origin]]\nkind = \"upstream\"\nurl = \"http://x\"\n\
             file = \"onnxruntime.tar.gz\"\nsha256 = \"{}\"\n",
            hash.hex()
        );
        let cache = Cache::new(self.cache()).unwrap();
        // The tools that `ci/setup` installed are those of the user's cache.
        let tools = Cache::from_env().unwrap().tools();
        if tools.is_dir() && !cache.tools().exists() {
            fs::create_dir_all(cache.root()).unwrap();
            std::os::unix::fs::symlink(tools, cache.tools()).unwrap();
        }
        let mut build = Build::new()
            .unwrap()
            .cache(cache)
            .sources_dir(archive.parent().unwrap())
            .origins([OriginKind::Folder])
            .launcher(Launcher::None)
            .artifacts(false)
            .own_protoc(true)
            .need_libclang(false);
        build.manifest = Manifest::parse(&manifest).unwrap();
        build
    }
}

/// Builds, and tells what was said.
fn run(build: &Build) -> (crate::Result<crate::Install>, Vec<Event>) {
    let events = Mutex::new(Vec::new());
    let result = build.build_with(&|event: Event| events.lock().unwrap().push(event));
    (result, events.into_inner().unwrap())
}

fn notes(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Note(note) => Some(note.as_str()),
            _ => None,
        })
        .collect()
}

fn compiled(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Compile { step, .. } if step.starts_with("Building") => {
                Some(step.rsplit('/').next().unwrap())
            }
            _ => None,
        })
        .collect()
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, |entries| entries.count())
}

#[test]
fn an_archive_becomes_a_prefix_and_a_batch_that_collides_is_taken_apart() {
    let project = Project::new();
    let build = project.build();
    assert!(build.find_installed().is_none());
    let (install, events) = run(&build);
    let install = install.unwrap();

    assert!(
        notes(&events)
            .iter()
            .any(|note| note.contains("a.cc, b.cc, c.cc")),
        "{events:?}"
    );
    assert!(compiled(&events).contains(&"a.cc.o"), "{events:?}");
    assert_eq!(install.version, "1.21.0");
    assert_eq!(install.features, ["training"]);
    assert!(
        install
            .root
            .join("share/licenses/onnxruntime/LICENSE")
            .is_file()
    );
    let pc = fs::read_to_string(install.lib_dir.join("pkgconfig/libonnxruntime.pc")).unwrap();
    assert_eq!(pc, "prefix=${pcfiledir}/../..\nVersion: 1.21.0\n");
    let info: toml::Table = toml::from_str(&install.build_info().unwrap()).unwrap();
    let alone = info["compiled_alone_after_failure"].as_array().unwrap();
    assert_eq!(alone.len(), 3);
    assert!(info["timings"]["compile"].as_float().unwrap() > 0.0);
    assert!(info["compiler_seconds"]["onnxruntime_common"].is_float());
    assert_eq!(info["source"][0]["name"].as_str(), Some("onnxruntime"));

    // Nothing of the making is left but the sources and the log.
    assert_eq!(entries(&project.cache().join("build")), 0);
    assert_eq!(entries(&project.cache().join("install")), 1);
    assert_eq!(entries(&project.cache().join("logs")), 1);

    // The second time nothing runs.
    let (again, events) = run(&build);
    assert_eq!(again.unwrap(), install);
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(build.find_installed(), Some(install));
}

#[test]
fn without_batches_every_file_is_compiled_by_itself() {
    let project = Project::new();
    let (install, events) = run(&project.build().unity(false));
    install.unwrap();
    assert!(
        compiled(&events)
            .iter()
            .all(|object| !object.starts_with("unity_")),
        "{events:?}"
    );
    assert_eq!(compiled(&events).len(), 4);
}

#[test]
fn a_file_that_does_not_compile_is_shown_and_what_compiled_is_kept() {
    let bad = Project::new().with("src/api.cc", "int sum( { return 0; }\n");
    let build = bad.build().unity(false).jobs(1);
    let (result, events) = run(&build);
    let error = result.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Command { .. }), "{text}");
    assert!(
        text.contains("api.cc:1") && text.contains("error"),
        "{text}"
    );
    let log = bad
        .cache()
        .join("build")
        .join(build.key().unwrap())
        .join("build.log");
    assert!(text.contains(&log.display().to_string()), "{text}");
    assert!(fs::read_to_string(log).unwrap().contains("api.cc:1"));
    assert_eq!(entries(&bad.cache().join("install")), 0);
    // Tried again, ninja goes on: what compiled is not compiled again.
    let first = compiled(&events);
    let (result, again) = run(&build);
    assert!(result.is_err());
    for object in compiled(&again) {
        assert!(
            object == "api.cc.o" || !first.contains(&object),
            "{object} twice"
        );
    }
}

#[test]
fn a_project_that_cmake_refuses_is_shown_with_cmakes_words() {
    let bad = Project::new().with(
        "cmake/CMakeLists.txt",
        "project(onnxruntime C CXX)\nmessage(FATAL_ERROR \"no such luck\")\n",
    );
    let build = bad.build();
    for _ in 0..2 {
        let text = run(&build).0.unwrap_err().to_string();
        assert!(text.starts_with("CMake's configuration failed"), "{text}");
        assert!(text.contains("no such luck"), "{text}");
    }
    assert_eq!(entries(&bad.cache().join("install")), 0);
}

#[test]
fn an_own_checkout_is_built_and_not_written_to() {
    let project = Project::new();
    let checkout = project.dir.path().join("checkout");
    for (name, content) in &project.files {
        let path = checkout.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let before = crate::sources::checkout_stamp(&checkout).unwrap();
    // There is no archive to fall back on.
    let build = project.build().source_dir(&checkout).origins([]);
    let install = run(&build).0.unwrap();
    assert_eq!(install.version, "1.21.0");
    assert_eq!(crate::sources::checkout_stamp(&checkout).unwrap(), before);
    assert_eq!(entries(&checkout), 6);
}

#[test]
fn a_damaged_install_is_made_again() {
    let project = Project::new();
    let build = project.build();
    let install = run(&build).0.unwrap();
    fs::write(fs::canonicalize(&install.library).unwrap(), "cut off").unwrap();
    assert!(build.find_installed().is_none());
    let (again, events) = run(&build);
    assert_eq!(again.unwrap(), install);
    assert!(
        notes(&events)[0].starts_with("making it again, since"),
        "{events:?}"
    );
}
