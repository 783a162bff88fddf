//! The environment variables that set a build.

use std::path::PathBuf;

use crate::builder::{Build, Launcher};
use crate::error::{Error, Result};
use crate::fetch::OriginKind;
use crate::reduced::{self, Operators};

/// `(variable, what it does)`, for `--help` and the README.
pub const VARIABLES: &[(&str, &str)] = &[
    (
        "ORT_TRAINING_CACHE_DIR",
        "where sources, builds and installs are kept (default: ort-training in the user's cache folder)",
    ),
    (
        "ORT_TRAINING_SOURCES_DIR",
        "a folder with the archives of sources.toml, looked into first",
    ),
    (
        "ORT_TRAINING_SOURCE_DIR",
        "a checkout of ONNX Runtime to build instead of the pinned archive; never written to",
    ),
    (
        "ORT_TRAINING_ORIGINS",
        "which origins are asked, in order: any of folder,upstream,debian,pypi",
    ),
    (
        "ORT_TRAINING_DEBIAN_MIRROR",
        "a Debian mirror, for machines whose apt names none",
    ),
    ("ORT_TRAINING_CUDA", "1 builds the CUDA execution provider"),
    (
        "ORT_TRAINING_CUDA_ARCHITECTURES",
        "the GPUs that a CUDA build is for: 90, or 80;90, or native (default: the common ones that the toolkit compiles for)",
    ),
    (
        "ORT_TRAINING_ARTIFACTS",
        "0 leaves out the library that makes training artifacts",
    ),
    (
        "ORT_TRAINING_CMAKE_ARGS",
        "more arguments for CMake, separated by spaces",
    ),
    (
        "ORT_TRAINING_BUILD_TYPE",
        "Release (default), RelWithDebInfo, MinSizeRel or Debug",
    ),
    (
        "ORT_TRAINING_REDUCED_OPERATORS",
        "models, lists of operators or folders with such, separated by colons; only their operators and types are compiled in",
    ),
    (
        "ORT_TRAINING_UNITY",
        "0 compiles every source file by itself: three times as long, better for work on ONNX Runtime",
    ),
    (
        "ORT_TRAINING_BUILD_PROTOC",
        "1 builds protobuf's own protoc instead of using one of version 3.21",
    ),
    (
        "ORT_TRAINING_COMPILER_LAUNCHER",
        "ccache, sccache or another program; none for none (default: what is on PATH)",
    ),
    (
        "ORT_TRAINING_JOBS",
        "compiler runs at once (default: one a core, at most one for 2 GiB of memory, with CUDA for 4)",
    ),
    (
        "ORT_TRAINING_KEEP_BUILD",
        "1 keeps the build folder after success",
    ),
    (
        "ORT_TRAINING_KEEP_SYMBOLS",
        "1 leaves the symbols in the libraries",
    ),
    (
        "CC, CXX, CMAKE, NINJA, PYTHON, PROTOC, LIBCLANG_PATH, CUDA_HOME, CUDNN_HOME",
        "tools and toolkits, where they are not on PATH",
    ),
];

/// Applies the variables that `var` has.
pub(crate) fn apply(build: &mut Build, var: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let get = |name: &str| var(name).filter(|value| !value.is_empty());
    let switch = |name: &str, on: &mut bool| match get(name).as_deref() {
        None => Ok(()),
        Some("1" | "on" | "ON" | "true" | "yes") => {
            *on = true;
            Ok(())
        }
        Some("0" | "off" | "OFF" | "false" | "no") => {
            *on = false;
            Ok(())
        }
        Some(other) => Err(Error::Setting {
            name: name.into(),
            expected: "1 or 0".into(),
            found: other.into(),
        }),
    };
    switch("ORT_TRAINING_CUDA", &mut build.features.cuda)?;
    switch("ORT_TRAINING_ARTIFACTS", &mut build.features.artifacts)?;
    switch("ORT_TRAINING_UNITY", &mut build.unity)?;
    switch("ORT_TRAINING_BUILD_PROTOC", &mut build.own_protoc)?;
    switch("ORT_TRAINING_KEEP_BUILD", &mut build.keep_build)?;
    switch("ORT_TRAINING_KEEP_SYMBOLS", &mut build.keep_symbols)?;
    if let Some(folder) = get("ORT_TRAINING_SOURCES_DIR") {
        build.sources_dir = Some(existing_folder("ORT_TRAINING_SOURCES_DIR", &folder)?);
    }
    if let Some(folder) = get("ORT_TRAINING_SOURCE_DIR") {
        let folder = existing_folder("ORT_TRAINING_SOURCE_DIR", &folder)?;
        if crate::builder::checkout_version(&folder).is_none() {
            return Err(Error::Setting {
                name: "ORT_TRAINING_SOURCE_DIR".into(),
                expected: "a checkout of ONNX Runtime (a folder with VERSION_NUMBER and cmake/)"
                    .into(),
                found: folder.display().to_string(),
            });
        }
        build.source_dir = Some(folder);
    }
    if let Some(list) = get("ORT_TRAINING_ORIGINS") {
        build.origins = list
            .split(',')
            .map(|name| name.trim().parse::<OriginKind>())
            .collect::<Result<_>>()?;
    }
    if let Some(args) = get("ORT_TRAINING_CMAKE_ARGS") {
        build
            .cmake_args
            .extend(args.split_whitespace().map(str::to_owned));
    }
    if let Some(build_type) = get("ORT_TRAINING_BUILD_TYPE") {
        const TYPES: [&str; 4] = ["Release", "RelWithDebInfo", "MinSizeRel", "Debug"];
        if !TYPES.contains(&build_type.as_str()) {
            return Err(Error::Setting {
                name: "ORT_TRAINING_BUILD_TYPE".into(),
                expected: format!("one of {}", TYPES.join(", ")),
                found: build_type,
            });
        }
        build.build_type = build_type;
    }
    if let Some(paths) = get(reduced::VARIABLE) {
        build.reduced = Some(Operators::read(std::env::split_paths(&paths))?);
    }
    if let Some(launcher) = get("ORT_TRAINING_COMPILER_LAUNCHER") {
        build.launcher = match launcher.as_str() {
            "none" => Launcher::None,
            "auto" => Launcher::Auto,
            _ => Launcher::Program(launcher),
        };
    }
    if let Some(jobs) = get("ORT_TRAINING_JOBS") {
        let number = jobs.parse::<usize>().ok().filter(|jobs| *jobs > 0);
        build.jobs = Some(number.ok_or_else(|| Error::Setting {
            name: "ORT_TRAINING_JOBS".into(),
            expected: "a number of 1 or more".into(),
            found: jobs,
        })?);
    }
    Ok(())
}

fn existing_folder(name: &str, value: &str) -> Result<PathBuf> {
    let folder = std::path::absolute(value).map_err(Error::io(format!("resolving {value}")))?;
    if folder.is_dir() {
        return Ok(folder);
    }
    Err(Error::Setting {
        name: name.into(),
        expected: "a folder that exists".into(),
        found: value.into(),
    })
}
