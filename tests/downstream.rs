//! Projects of others, in `tests/downstream/`, each built from the outside as its owner would build it, and run.
//!
//! They share this workspace's target folder, so that what is compiled already is not compiled again.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PREFIX: &str = env!("ORT_TRAINING_TEST_PREFIX");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn project(name: &str) -> PathBuf {
    root().join("tests/downstream").join(name)
}

/// Artifacts of one linear layer: x [1, 4], target [1, 1], output y.
fn artifacts() -> PathBuf {
    root().join("ort-training/fixtures/linear1")
}

/// A command that sees nothing of the cargo that runs this test, but the settings that a user may have.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = text.starts_with("CARGO_")
            && !matches!(&*text, "CARGO_HOME" | "CARGO_NET_OFFLINE")
            && !text.starts_with("CARGO_REGISTRIES_")
            && !text.starts_with("CARGO_SOURCE_")
            && !text.starts_with("CARGO_HTTP_");
        if is_ours || matches!(&*text, "LD_LIBRARY_PATH" | "RUSTFLAGS" | "OUT_DIR") {
            command.env_remove(&name);
        }
    }
    command
}

#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Builds a cargo project with the versions of this workspace's lock file; the folder of its programs.
#[track_caller]
fn cargo_build(name: &str, vars: &[(&str, &str)]) -> PathBuf {
    let project = project(name);
    // What the workspace does not have is added by cargo, and the file is not kept.
    fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let target = target_folder();
    output(
        command(env!("CARGO"))
            .args(["build", "--quiet", "--target-dir"])
            .arg(&target)
            .current_dir(&project)
            .envs(vars.iter().copied()),
    );
    target.join("debug")
}

/// The target folder of this workspace, from where this very test lies: TARGET/debug/deps/downstream-HASH.
fn target_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}

#[track_caller]
fn numbers(text: &str) -> Vec<f32> {
    text.split(' ')
        .map(|word| {
            word.parse()
                .unwrap_or_else(|_| panic!("{word:?} in {text:?}"))
        })
        .collect()
}

#[track_caller]
fn it_learned(losses: &[f32]) {
    assert!(
        losses[0] > 1e-3 && losses[1] < losses[0] / 4.0,
        "{losses:?}"
    );
}

/// One dependency line, no environment variable; and the folder that is shipped needs nothing else.
#[test]
fn a_program_builds_runs_and_is_shipped() {
    let built = cargo_build("app", &[]);
    let run = |program: &Path| {
        let mut command = Command::new(program);
        it_learned(&numbers(&output(command.env_clear().arg(artifacts()))));
    };
    run(&built.join("app"));

    let elsewhere = tempfile::tempdir().unwrap();
    for name in [
        "app",
        "libonnxruntime.so.1",
        "libonnxruntime_providers_shared.so",
    ] {
        fs::copy(built.join(name), elsewhere.path().join(name)).unwrap();
    }
    let shipped = elsewhere.path().join("app");
    run(&shipped);
    // Nothing of it comes from where it was built.
    let library = elsewhere.path().join("libonnxruntime.so.1");
    fs::remove_file(&library).unwrap();
    let failed = Command::new(&shipped)
        .env_clear()
        .arg(artifacts())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(
        said.contains("libonnxruntime.so.1"),
        "without its library it ran: {said}"
    );
}

/// With the feature `static`, artifact maker included.
#[test]
fn a_program_is_a_single_file() {
    let built = cargo_build("single", &[]);
    let elsewhere = tempfile::tempdir().unwrap();
    let program = elsewhere.path().join("single");
    fs::copy(built.join("single"), &program).unwrap();
    let needed = output(Command::new("ldd").arg(&program).env_clear());
    assert!(
        needed.contains("libc.so") && !needed.contains("onnxruntime"),
        "{needed}"
    );
    let mut train = Command::new(&program);
    train
        .env_clear()
        .arg(artifacts().join("forward.onnx"))
        .arg(elsewhere.path().join("artifacts"));
    it_learned(&numbers(&output(&mut train)));
    let size = fs::metadata(&program).unwrap().len();
    assert!((5..40).contains(&(size >> 20)), "{size} bytes");
}

#[test]
fn c_and_cpp_of_a_crate_use_the_same_install() {
    let built = cargo_build("native", &[]);
    let said = output(
        Command::new(built.join("native"))
            .env_clear()
            .arg(artifacts()),
    );
    let (version, losses) = said.split_once(' ').unwrap();
    assert!(version.starts_with("1."), "{version}");
    it_learned(&numbers(losses));
}

#[test]
fn pkg_config_compiles_and_links() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("train");
    let flags = output(
        command("pkg-config")
            .args(["--cflags", "--libs", "libonnxruntime"])
            .env("PKG_CONFIG_PATH", Path::new(PREFIX).join("lib/pkgconfig")),
    );
    output(
        command("c++")
            .args(["-std=c++17", "-o"])
            .arg(&program)
            .arg(project("cmake/main.cc"))
            .arg(project("native/cpp/train.cc"))
            .args(flags.split_whitespace())
            .arg(format!("-Wl,-rpath,{PREFIX}/lib")),
    );
    it_learned(&numbers(&output(
        Command::new(&program).env_clear().arg(artifacts()),
    )));
}

/// The prefix serves wherever it lies: here it is another folder, with links to the real files.
#[test]
fn cmake_finds_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let moved = folder.path().join("moved prefix");
    output(command("cp").arg("-rs").arg(PREFIX).arg(&moved));
    let build = folder.path().join("build");
    output(
        command(cmake())
            .arg("-S")
            .arg(project("cmake"))
            .arg("-B")
            .arg(&build)
            .arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display())),
    );
    output(command(cmake()).arg("--build").arg(&build));
    let mut train = Command::new(build.join("train"));
    it_learned(&numbers(&output(train.env_clear().arg(artifacts()))));
}

/// The CMake that builds ONNX Runtime.
fn cmake() -> PathBuf {
    let cache = std::env::var_os("ORT_TRAINING_CACHE_DIR")
        .map(PathBuf::from)
        .or_else(|| {
            let home = std::env::var_os("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
            Some(home.join("ort-training"))
        });
    cache
        .map(|cache| cache.join("tools/bin/cmake"))
        .filter(|cmake| cmake.is_file())
        .unwrap_or_else(|| "cmake".into())
}

/// `ort` infers what was trained here, in the same process, and trains the same artifacts to the same loss.
#[test]
fn the_ort_crate_uses_the_same_library() {
    let lib = Path::new(PREFIX).join("lib");
    let vars = [
        ("ORT_LIB_PATH", lib.to_str().unwrap()),
        ("ORT_PREFER_DYNAMIC_LINK", "1"),
    ];
    let built = cargo_build("ort", &vars);
    let model = tempfile::NamedTempFile::with_suffix(".onnx").unwrap();
    let said = output(
        Command::new(built.join("with-ort"))
            .env_clear()
            .env("LD_LIBRARY_PATH", &lib)
            .arg(artifacts())
            .arg(model.path()),
    );
    let numbers = numbers(&said);
    assert_eq!(numbers[0], numbers[1], "predictions of {said}");
    assert_eq!(numbers[2], numbers[3], "losses of {said}");
    assert!(numbers[3] < 1e-3, "{said}");
}
