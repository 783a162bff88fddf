//! CMake's configuration: the arguments, and running it when they changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::assets;
use crate::builder::{Build, Launcher};
use crate::compile;
use crate::error::{Error, Result};
use crate::features::on_off;
use crate::reduced;
use crate::sources::Folders;
use crate::tools::Tools;

/// The arguments that are the same for every build. They are hashed into the key: a change of them is another build.
pub(crate) const FIXED: &[&str] = &[
    "-Wno-dev",
    "-DCMAKE_INSTALL_LIBDIR=lib",
    "-DCMAKE_POSITION_INDEPENDENT_CODE=ON",
    "-DCMAKE_COMPILE_WARNING_AS_ERROR=OFF",
    // All sources are given by folder: nothing is searched on the machine or downloaded.
    "-DFETCHCONTENT_FULLY_DISCONNECTED=ON",
    "-DFETCHCONTENT_TRY_FIND_PACKAGE_MODE=NEVER",
    "-Donnxruntime_BUILD_SHARED_LIB=ON",
    "-Donnxruntime_BUILD_UNIT_TESTS=OFF",
    "-Donnxruntime_ENABLE_PYTHON=OFF",
    "-DFLATBUFFERS_BUILD_FLATC=OFF",
];

/// A configured build folder.
#[derive(Debug)]
pub(crate) struct Configured {
    /// Where ninja runs.
    pub dir: PathBuf,
    /// Everything that CMake, ninja and the compilers said.
    pub log: PathBuf,
    /// The list of sources that are kept out of unity batches.
    pub unity_skip: PathBuf,
    /// The list of kernels' sources that are not compiled; builds with all operators have none.
    pub left_out: PathBuf,
    /// The whole of CMake's arguments.
    pub args: Vec<String>,
    /// The environment that a compiler cache wants.
    pub env: Vec<(String, String)>,
}

pub(crate) fn run(
    build: &Build,
    tools: &Tools,
    sources: &Folders,
    dir: &Path,
) -> Result<Configured> {
    fs::create_dir_all(dir).map_err(Error::io(format!("making {}", dir.display())))?;
    let ours = dir.join("ort-training");
    assets::write_to(&ours)?;
    let unity_skip = dir.join("unity-skip.txt");
    if let Some(operators) = &build.reduced {
        reduced::write_reduced_sources(operators, &sources.onnxruntime, dir, build.features.cuda)?;
    }
    let left_out = dir.join("left-out.txt");
    // Providers in libraries of their own call kernels of the CPU: with CUDA all are compiled.
    if let (Some(operators), false) = (&build.reduced, build.features.cuda) {
        let mut dependencies = sources.dependencies.iter();
        if let (Some((_, onnx)), false) = (
            dependencies.find(|(name, _)| *name == "onnx"),
            build.features.artifacts,
        ) {
            reduced::write_reduced_schemas(operators, &onnx.folder, &sources.onnxruntime, dir)?;
        }
        // One that is there may be shorter by what the linker missed.
        if !left_out.exists() {
            let files = reduced::left_out(operators, &sources.onnxruntime)?;
            reduced::write_list(&left_out, files.iter().map(PathBuf::as_path))?;
        }
    }
    let args = arguments(build, tools, sources, &ours, &unity_skip, &left_out);
    let configured = Configured {
        dir: dir.to_owned(),
        log: dir.join("build.log"),
        unity_skip,
        left_out,
        args,
        env: launcher_env(build),
    };
    // Written when CMake has succeeded, and so it stands for a whole configuration with these very arguments.
    let done = dir.join("configured.args");
    let wanted = configured.args.join("\n");
    let is_configured = fs::read_to_string(&done).is_ok_and(|old| old == wanted)
        && dir.join("build.ninja").is_file();
    if !is_configured {
        let _ = fs::remove_file(&done);
        again(tools, sources.onnxruntime.as_path(), &configured)?;
        fs::write(&done, wanted).map_err(Error::io(format!("writing {}", done.display())))?;
    }
    Ok(configured)
}

/// Runs CMake.
fn again(tools: &Tools, onnxruntime: &Path, configured: &Configured) -> Result<()> {
    let mut command = Command::new(&tools.cmake);
    command
        .arg("-G")
        .arg("Ninja")
        .arg("-S")
        .arg(onnxruntime.join("cmake"))
        .arg("-B")
        .arg(&configured.dir)
        .args(&configured.args)
        .envs(configured.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null());
    compile::logged(
        command,
        "CMake's configuration",
        &configured.log,
        &mut |_| {},
    )
    .map_err(|failed| failed.into_error(last_cmake_error))
}

/// CMake's own report of an error, without the pages before it.
fn last_cmake_error(output: &[String]) -> String {
    let from = output
        .iter()
        .position(|line| line.starts_with("CMake Error"))
        .unwrap_or(output.len().saturating_sub(40));
    output[from..]
        .iter()
        .take(60)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n")
}

fn arguments(
    build: &Build,
    tools: &Tools,
    sources: &Folders,
    ours: &Path,
    unity_skip: &Path,
    left_out: &Path,
) -> Vec<String> {
    let cmake_files = ours.join("cmake");
    let mut args = vec![
        format!("-DCMAKE_BUILD_TYPE={}", build.build_type),
        format!("-DCMAKE_MAKE_PROGRAM={}", tools.ninja.display()),
        format!("-DCMAKE_C_COMPILER={}", tools.compiler.c.display()),
        format!("-DCMAKE_CXX_COMPILER={}", tools.compiler.cxx.display()),
        format!("-DPython_EXECUTABLE={}", tools.python.display()),
        format!(
            "-DCMAKE_PROJECT_onnxruntime_INCLUDE={}",
            if build.features.cuda {
                ours.join("cuda/inject.cmake")
            } else if build.reduced.is_some() {
                ours.join("reduced/inject.cmake")
            } else {
                cmake_files.join("inject.cmake")
            }
            .display()
        ),
        format!("-DORT_TRAINING_CMAKE_DIR={}", cmake_files.display()),
        format!("-DORT_TRAINING_UNITY={}", on_off(build.unity)),
        format!("-DORT_TRAINING_UNITY_SKIP_FILE={}", unity_skip.display()),
    ];
    args.extend(FIXED.iter().map(|arg| (*arg).to_owned()));
    args.extend(build.features.cmake_args());
    if let Some(operators) = &build.reduced {
        args.push("-Donnxruntime_REDUCED_OPS_BUILD=ON".into());
        // The artifact maker reads models with any operator.
        if !build.features.artifacts
            && !build.features.cuda
            && !operators.has_domain(reduced::ML_DOMAIN)
        {
            args.push("-Donnxruntime_DISABLE_ML_OPS=ON".into());
        }
        args.push(format!(
            "-DORT_TRAINING_LEFT_OUT_FILE={}",
            left_out.display()
        ));
    }
    let maps = path_maps(build, &sources.onnxruntime);
    for (variable, name) in [("CMAKE_C_FLAGS", "CFLAGS"), ("CMAKE_CXX_FLAGS", "CXXFLAGS")] {
        let own = std::env::var(name).unwrap_or_default();
        args.push(format!("-D{variable}={}", format!("{own} {maps}").trim()));
    }
    match &tools.protoc {
        Some(protoc) => args.push(format!(
            "-DONNX_CUSTOM_PROTOC_EXECUTABLE={}",
            protoc.display()
        )),
        None => args.push("-UONNX_CUSTOM_PROTOC_EXECUTABLE".into()),
    }
    for (name, dependency) in &sources.dependencies {
        // Header-only sources that come without CMake files of their own are wrapped in ours.
        let shim = [&cmake_files, &ours.join("cuda")]
            .map(|files| files.join("shims").join(name))
            .into_iter()
            .find(|shim| shim.is_dir());
        let folder = shim.as_ref().unwrap_or(&dependency.folder);
        if let Some(cmake) = &dependency.cmake {
            args.push(format!(
                "-DFETCHCONTENT_SOURCE_DIR_{cmake}={}",
                folder.display()
            ));
        }
        if shim.is_some() {
            let variable = name.to_uppercase().replace('-', "_");
            args.push(format!(
                "-DORT_TRAINING_{variable}_DIR={}",
                dependency.folder.display()
            ));
        }
        if name == "safeint" {
            args.push(format!(
                "-Dsafeint_SOURCE_DIR={}",
                dependency.folder.display()
            ));
        }
    }
    args.push(format!(
        "-DFETCHCONTENT_SOURCE_DIR_UTF8_RANGE={}",
        cmake_files.join("shims/utf8_range").display()
    ));
    let launcher = match &build.launcher {
        Launcher::None => None,
        Launcher::Program(program) => Some(program.clone()),
        Launcher::Auto => on_path(&["ccache", "sccache"]),
    };
    if let Some(launcher) = launcher {
        for language in ["C", "CXX"]
            .into_iter()
            .chain(build.features.cuda.then_some("CUDA"))
        {
            args.push(format!("-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}"));
        }
    }
    if let Some(toolkit) = &tools.cuda {
        args.extend(toolkit.cmake_args(&tools.compiler));
    }
    args.extend(build.cmake_args.iter().cloned());
    args
}

/// ONNX Runtime's errors name its source files. They name them from ONNX Runtime's own root, not from wherever
/// somebody's cache folder lies; so the library is the same wherever it is built.
fn path_maps(build: &Build, onnxruntime: &Path) -> String {
    let sources = build.cache.sources();
    // Compilers take the last map that fits. A compiler cache turns paths below its base folder into relative ones,
    // hence the second form of each. The build folder must not be named here: it would keep the objects of one key
    // from serving another.
    let mut maps = vec![
        format!("-ffile-prefix-map={}/=", sources.display()),
        "-ffile-prefix-map=../../sources/=".to_owned(),
        format!("-ffile-prefix-map={}/=", onnxruntime.display()),
    ];
    if let Ok(name) = onnxruntime.strip_prefix(&sources) {
        maps.push(format!(
            "-ffile-prefix-map=../../sources/{}/=",
            name.display()
        ));
    }
    maps.join(" ")
}

/// ccache is told to see paths below the cache folder as relative: an object then serves every build folder.
fn launcher_env(build: &Build) -> Vec<(String, String)> {
    let set = |name: &str| std::env::var_os(name).is_some();
    let mut env = Vec::new();
    if !set("CCACHE_BASEDIR") {
        env.push((
            "CCACHE_BASEDIR".to_owned(),
            build.cache.root().display().to_string(),
        ));
    }
    if !set("CCACHE_NOHASHDIR") {
        env.push(("CCACHE_NOHASHDIR".to_owned(), "1".to_owned()));
    }
    env
}

fn on_path(names: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    names.iter().find_map(|name| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|program| program.is_file())
            .map(|program| program.display().to_string())
    })
}
