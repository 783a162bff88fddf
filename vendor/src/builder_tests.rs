use std::collections::HashMap;

use super::*;

fn build(dir: &Path) -> Build {
    let mut build = Build::new().unwrap();
    build.cache = Cache::new(dir).unwrap();
    build
}

fn operators(list: &str) -> Operators {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.config");
    std::fs::write(&path, list).unwrap();
    Operators::read([path]).unwrap()
}

#[test]
fn the_key_changes_with_everything_that_decides_the_content() {
    let dir = tempfile::tempdir().unwrap();
    let plain = build(dir.path());
    let key = plain.key().unwrap();
    assert!(key.starts_with("onnxruntime-1.21.0-"), "{key}");
    assert_eq!(plain.key().unwrap(), key, "the same twice");
    let pinned_elsewhere = {
        let text = include_str!("../sources.toml");
        let pin = "df6d1f5ef540725f3851201176a60486aab332410788465c9877910bb471c34a";
        let mut build = plain.clone();
        build.manifest = Manifest::parse(&text.replace(pin, &"0".repeat(64))).unwrap();
        build
    };
    let mut keys = vec![key];
    for changed in [
        plain.clone().artifacts(false),
        plain.clone().cuda(true),
        plain.clone().cmake_arg("-DX=1"),
        plain.clone().cmake_arg("-DX=1").cmake_arg("-DY=1"),
        plain.clone().build_type("Debug"),
        plain.clone().reduced(operators("ai.onnx;17;Add")),
        plain.clone().reduced(operators("ai.onnx;17;Add,Mul")),
        plain.clone().target("aarch64-unknown-linux-gnu"),
        plain.clone().unity(false),
        plain.clone().own_protoc(true),
        plain.clone().keep_symbols(true),
        pinned_elsewhere,
    ] {
        let key = changed.key().unwrap();
        assert!(!keys.contains(&key), "{changed:?}");
        keys.push(key);
    }
}

#[test]
fn the_key_does_not_change_with_how_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let plain = build(dir.path());
    let key = plain.key().unwrap();
    for same in [
        plain.clone().jobs(7),
        plain.clone().launcher(Launcher::None),
        plain.clone().keep_build(true),
        plain.clone().sources_dir("/somewhere"),
        plain.clone().origins([OriginKind::Debian]),
        plain.clone().need_libclang(false),
        plain.clone().cache(Cache::new("/elsewhere").unwrap()),
    ] {
        assert_eq!(same.key().unwrap(), key);
    }
}

#[test]
fn the_key_of_a_checkout_changes_with_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let checkout = dir.path().join("ort");
    std::fs::create_dir_all(checkout.join("cmake")).unwrap();
    std::fs::write(checkout.join("VERSION_NUMBER"), "1.22.0\n").unwrap();
    std::fs::write(checkout.join("cmake/CMakeLists.txt"), "# one").unwrap();
    let build = build(dir.path()).source_dir(&checkout);
    let key = build.key().unwrap();
    assert!(key.starts_with("onnxruntime-1.22.0-"), "{key}");
    assert_eq!(build.key().unwrap(), key);
    std::fs::write(checkout.join("cmake/CMakeLists.txt"), "# more").unwrap();
    assert_ne!(build.key().unwrap(), key);
}

#[test]
fn nothing_is_found_where_nothing_is_and_a_half_install_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let build = build(dir.path());
    assert!(build.find_installed().is_none());
    std::fs::create_dir_all(build.cache.install(&build.key().unwrap()).join("lib")).unwrap();
    assert!(build.find_installed().is_none());
}

fn with(variables: &[(&str, &str)]) -> Result<Build> {
    let variables: HashMap<&str, &str> = variables.iter().copied().collect();
    let mut build = Build::new()?;
    crate::settings::apply(&mut build, &|name| {
        variables.get(name).map(|v| (*v).to_owned())
    })?;
    Ok(build)
}

#[test]
fn environment_variables_set_the_build() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let build = with(&[
        ("ORT_TRAINING_UNITY", "0"),
        ("ORT_TRAINING_ARTIFACTS", "off"),
        ("ORT_TRAINING_BUILD_PROTOC", "1"),
        ("ORT_TRAINING_JOBS", "3"),
        ("ORT_TRAINING_CMAKE_ARGS", "-DA=1  -DB=2"),
        ("ORT_TRAINING_COMPILER_LAUNCHER", "none"),
        ("ORT_TRAINING_ORIGINS", "debian, pypi"),
        ("ORT_TRAINING_SOURCES_DIR", folder),
        ("ORT_TRAINING_BUILD_TYPE", "Debug"),
    ])
    .unwrap();
    assert!(!build.unity && !build.features.artifacts && build.own_protoc);
    assert_eq!(build.jobs, Some(3));
    assert_eq!(build.cmake_args, ["-DA=1", "-DB=2"]);
    assert_eq!(build.launcher, Launcher::None);
    assert_eq!(build.origins, [OriginKind::Debian, OriginKind::Pypi]);
    assert_eq!(build.sources_dir.as_deref(), Some(dir.path()));
    assert_eq!(build.build_type, "Debug");
    assert_eq!(build.reduced, None);
    let lists = ["a.config", "b.config"].map(|name| dir.path().join(name));
    std::fs::write(&lists[0], "ai.onnx;17;Add").unwrap();
    std::fs::write(&lists[1], "ai.onnx;17;Mul").unwrap();
    let paths = std::env::join_paths(&lists).unwrap();
    let build = with(&[("ORT_TRAINING_REDUCED_OPERATORS", paths.to_str().unwrap())]).unwrap();
    assert_eq!(build.reduced, Some(operators("ai.onnx;17;Add,Mul")));
}

#[test]
fn variables_that_mean_nothing_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    for (name, value, expected) in [
        ("ORT_TRAINING_UNITY", "perhaps", "1 or 0"),
        ("ORT_TRAINING_JOBS", "0", "a number of 1 or more"),
        ("ORT_TRAINING_JOBS", "many", "a number of 1 or more"),
        (
            "ORT_TRAINING_ORIGINS",
            "upstream,floppy",
            "folder, upstream, debian, pypi",
        ),
        (
            "ORT_TRAINING_SOURCES_DIR",
            "/no/such/folder",
            "a folder that exists",
        ),
        (
            "ORT_TRAINING_SOURCE_DIR",
            folder,
            "a checkout of ONNX Runtime",
        ),
        ("ORT_TRAINING_BUILD_TYPE", "Fast", "one of Release"),
        (
            "ORT_TRAINING_REDUCED_OPERATORS",
            "/no/such/model.onnx",
            "models (.onnx), lists of operators (.config), or folders",
        ),
    ] {
        let text = with(&[(name, value)]).unwrap_err().to_string();
        assert!(
            text.starts_with(name) && text.contains(expected),
            "{name}: {text}"
        );
    }
}
