//! Finds (or builds) ONNX Runtime, generates the bindings from its own header, and arranges that what cargo runs
//! finds the library.

mod features;

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use features::Wanted;
use onnxruntime_training_src::Install;

fn main() {
    println!("cargo:rerun-if-changed=build");
    for name in ["ORT_TRAINING_PREFIX", "DOCS_RS", "LIBCLANG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    #[cfg(feature = "vendored")]
    for (names, _) in onnxruntime_training_src::VARIABLES {
        // The last entry names several.
        for name in names.split(',') {
            println!("cargo:rerun-if-env-changed={}", name.trim());
        }
    }
    if env::var_os("DOCS_RS").is_some() {
        // Documentation needs names and types only, and its builders have neither network nor an hour.
        println!("cargo:rustc-cfg=ort_training_no_ort");
        return;
    }
    if let Err(error) = run() {
        // Each line by itself: cargo shows a panic's text indented and cut from its context.
        for line in format!("ort-training-sys: {error}").lines() {
            println!("cargo:warning={line}");
        }
        eprintln!("ort-training-sys: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let wanted = Wanted {
        in_program: cfg!(feature = "static"),
        cuda: cfg!(feature = "cuda"),
    };
    wanted.check()?;
    let install = find_install()?;
    wanted.check_cuda(&install)?;
    match wanted.archive(&install)? {
        Some(archive) => link_statically(&install, &archive),
        None => link_dynamically(&install, &out_dir)?,
    }

    println!("cargo:root={}", install.root.display());
    let include = env::join_paths(&install.include_dirs)?;
    println!("cargo:include={}", include.to_string_lossy());
    println!("cargo:lib={}", install.lib_dir.display());
    println!("cargo:version={}", install.version);
    println!("cargo:features={}", install.features.join(","));

    generate_bindings(&install, &out_dir)
}

fn link_dynamically(install: &Install, out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let lib_dir = mirror_libraries(install, out_dir)?;
    println!("cargo:rustc-link-search=native={}", lib_dir.display());
    println!("cargo:rustc-link-lib=dylib=onnxruntime");
    println!(
        "cargo:rustc-link-arg=-Wl,-rpath,{}",
        install.lib_dir.display()
    );
    println!("cargo:linkage=dynamic");
    Ok(())
}

fn link_statically(install: &Install, archive: &Path) {
    println!("cargo:rerun-if-changed={}", archive.display());
    println!(
        "cargo:rustc-link-search=native={}",
        install.lib_dir.display()
    );
    // Not copied into the rlib: it is 50 MB, and read where it lies when a program is linked.
    println!("cargo:rustc-link-lib=static:-bundle=onnxruntime");
    for library in ["stdc++", "dl", "pthread", "m"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    println!("cargo:linkage=static");
}

/// First match wins: a prefix that the user names, pkg-config when asked for, the vendored build.
fn find_install() -> Result<Install, Box<dyn Error>> {
    if let Some(root) = env::var_os("ORT_TRAINING_PREFIX").filter(|value| !value.is_empty()) {
        return Install::open(&root)
            .map_err(|error| format!("ORT_TRAINING_PREFIX: {error}").into());
    }
    #[cfg(feature = "system")]
    if let Some(install) = system_install()? {
        return Ok(install);
    }
    vendored_install()
}

#[cfg(feature = "system")]
fn system_install() -> Result<Option<Install>, Box<dyn Error>> {
    // Probing must not print link flags: this script links a mirror of the folder it finds.
    match pkg_config::Config::new()
        .cargo_metadata(false)
        .probe("libonnxruntime")
    {
        Ok(_) => {
            let prefix = pkg_config::get_variable("libonnxruntime", "prefix")?;
            Ok(Some(
                Install::open(&prefix).map_err(|error| format!("pkg-config: {error}"))?,
            ))
        }
        Err(error) if cfg!(feature = "vendored") => {
            println!(
                "cargo:warning=pkg-config finds no libonnxruntime ({error}); building from source"
            );
            Ok(None)
        }
        Err(error) => Err(format!("pkg-config finds no libonnxruntime: {error}").into()),
    }
}

#[cfg(feature = "vendored")]
fn vendored_install() -> Result<Install, Box<dyn Error>> {
    use onnxruntime_training_src::{Build, progress, tools};

    let build = Build::from_env()?;
    let build = if cfg!(feature = "cuda") {
        build.cuda(true)
    } else {
        build
    };
    if env::var_os("LIBCLANG_PATH").is_none() {
        if let Some(dir) = tools::libclang_dir(build.cache_ref()) {
            // SAFETY: the build script has one thread at this point; bindgen reads the variable later.
            unsafe { env::set_var("LIBCLANG_PATH", dir) };
        } else {
            println!(
                "cargo:warning=no libclang found, with which bindgen reads ONNX Runtime's headers: ci/setup or \
                 `apt install libclang-dev` has it, LIBCLANG_PATH names the folder of another"
            );
        }
    }
    // Cargo shows these lines with -vv only; `onnxruntime-training-src build` shows them as they come.
    Ok(build.build_with(&progress::Lines::new())?)
}

#[cfg(not(feature = "vendored"))]
fn vendored_install() -> Result<Install, Box<dyn Error>> {
    Err(
        "no ONNX Runtime to link: set ORT_TRAINING_PREFIX to an install with training, \
         or turn on the feature `vendored` (builds it from source) or `system` (asks pkg-config)"
            .into(),
    )
}

/// Puts the libraries under `OUT_DIR/lib`. Cargo adds link-search folders that lie inside its target folder to the
/// library path of everything it runs, so programs, tests and examples start with no environment variable set.
fn mirror_libraries(install: &Install, out_dir: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mirror = out_dir.join("lib");
    match fs::remove_dir_all(&mirror) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    fs::create_dir_all(&mirror)?;
    for library in libraries(&install.lib_dir)? {
        println!("cargo:rerun-if-changed={}", library.display());
        let name = library.file_name().ok_or("a library without a name")?;
        let target = mirror.join(name);
        if fs::symlink_metadata(&library)?.is_symlink() {
            let link = fs::read_link(&library)?;
            if link.is_relative() && link.components().count() == 1 {
                std::os::unix::fs::symlink(link, &target)?;
                continue;
            }
        }
        let real = fs::canonicalize(&library)?;
        // A hard link costs no space; another file system needs a copy.
        if fs::hard_link(&real, &target).is_err() {
            fs::copy(&real, &target)?;
        }
    }
    Ok(mirror)
}

/// The library itself and its execution providers, with the links that name them.
fn libraries(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("libonnxruntime") && (name.contains(".so") || name.ends_with(".dylib"))
        {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn generate_bindings(install: &Install, out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut builder = bindgen::Builder::default()
        .header_contents(
            "ort_training.h",
            "#include \"onnxruntime_training_c_api.h\"\n",
        )
        .allowlist_item("Ort.*|ORT.*|ONNX.*")
        // An enum of Rust must hold a listed value; C may return any, so these are newtypes over integers.
        .default_enum_style(bindgen::EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        })
        .prepend_enum_name(false)
        .derive_default(false)
        .layout_tests(true)
        // ONNX Runtime's doxygen is not rustdoc, and its text stays with its header.
        .generate_comments(false);
    for dir in &install.include_dirs {
        builder = builder.clang_arg(format!("-I{}", dir.display()));
        for header in ["onnxruntime_c_api.h", "onnxruntime_training_c_api.h"] {
            let path = dir.join(header);
            if path.is_file() {
                println!("cargo:rerun-if-changed={}", path.display());
            }
        }
    }
    let bindings = builder.generate().map_err(|error| {
        format!(
            "bindgen failed on onnxruntime_training_c_api.h of {}: {error}",
            install.root.display()
        )
    })?;
    bindings.write_to_file(out_dir.join("bindings.rs"))?;
    Ok(())
}
