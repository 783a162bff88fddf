//! From a finished build folder to a prefix.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::builder::{Build, Timings};
use crate::cache;
use crate::compile;
use crate::configure::Configured;
use crate::error::{Error, Result};
use crate::install::{BUILD_INFO, Install, STATIC_LIBRARY};
use crate::ninja_log;
use crate::sources::Folders;
use crate::static_library;
use crate::tools::Tools;
use crate::unpack::LICENCES;

/// Installs into `target`, whole or not at all.
pub(crate) fn run(
    build: &Build,
    tools: &Tools,
    sources: &Folders,
    configured: &Configured,
    target: &Path,
    timings: &Timings,
) -> Result<()> {
    cache::folder_atomically(target, |prefix| {
        let mut command = Command::new(&tools.cmake);
        command
            .arg("--install")
            .arg(&configured.dir)
            .arg("--prefix")
            .arg(prefix)
            .stdin(Stdio::null());
        if !build.keep_symbols {
            command.arg("--strip");
        }
        compile::logged(
            command,
            "installing ONNX Runtime",
            &configured.log,
            &mut |_| {},
        )
        .map_err(|failed| failed.into_error(|output| output.join("\n")))?;
        // The CUDA provider is a library of its own, which only the shared one can load.
        if !build.features.cuda {
            let archive = prefix.join("lib").join(STATIC_LIBRARY);
            static_library::make(&configured.dir, &archive, &configured.log)?;
        }
        relocate(&prefix.join("lib/pkgconfig/libonnxruntime.pc"))?;
        licences(sources, prefix)?;
        let info = build_info(build, tools, sources, configured, timings);
        let path = prefix.join(BUILD_INFO);
        fs::write(&path, info).map_err(Error::io(format!("writing {}", path.display())))?;
        // What cannot be opened again must not get its name.
        Install::open(prefix)?;
        Ok(())
    })
}

/// ONNX Runtime writes the prefix of its configuration into pkg-config's file. An install does not know where it will
/// lie, so the file shall say that it is two folders up.
fn relocate(pc: &Path) -> Result<()> {
    let text = match fs::read_to_string(pc) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(format!("reading {}", pc.display()))(error)),
    };
    let lines: Vec<&str> = text
        .lines()
        .map(|line| {
            if line.starts_with("prefix=") {
                "prefix=${pcfiledir}/../.."
            } else {
                line
            }
        })
        .collect();
    fs::write(pc, lines.join("\n") + "\n").map_err(Error::io(format!("writing {}", pc.display())))
}

/// Copies licences to `share/licenses/NAME/`.
fn licences(sources: &Folders, prefix: &Path) -> Result<()> {
    let base = prefix.join("share/licenses");
    let copy = |from: &Path, name: &str| -> Result<()> {
        let folder = base.join(name);
        let file = folder.join(from.file_name().expect("a file has a name"));
        fs::create_dir_all(&folder)
            .and_then(|()| fs::copy(from, &file))
            .map(|_| ())
            .map_err(Error::io(format!("copying {}", from.display())))
    };
    for file in ["LICENSE", "ThirdPartyNotices.txt"] {
        let path = sources.onnxruntime.join(file);
        if path.is_file() {
            copy(&path, "onnxruntime")?;
        }
    }
    for (name, dependency) in &sources.dependencies {
        for entry in fs::read_dir(dependency.folder.join(LICENCES))
            .into_iter()
            .flatten()
            .flatten()
        {
            copy(&entry.path(), name)?;
        }
    }
    Ok(())
}

/// A TOML basic string.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            c if c.is_control() => {
                write!(text, "\\u{:04X}", u32::from(c)).expect("writing to a string")
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// `BUILD-INFO.toml`. Values of the first table are one a line: [`Install::open`] reads them without a parser.
fn build_info(
    build: &Build,
    tools: &Tools,
    sources: &Folders,
    configured: &Configured,
    timings: &Timings,
) -> String {
    let mut text = String::new();
    let list = |values: &[String]| {
        let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
        format!("[{}]", values.join(", "))
    };
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name} = {value}").expect("writing to a string")
    };
    line("version", quoted(&build.version()));
    line("features", list(&build.features.names()));
    line("target", quoted(&build.target));
    line("build_type", quoted(&build.build_type));
    line("compiler", quoted(&tools.compiler.identity()));
    line("unity", build.unity.to_string());
    line("stripped", (!build.keep_symbols).to_string());
    line(
        "made_by",
        quoted(concat!(
            env!("CARGO_PKG_NAME"),
            " ",
            env!("CARGO_PKG_VERSION")
        )),
    );
    // Paths of this machine say nothing elsewhere.
    let flags: Vec<String> = configured
        .args
        .iter()
        .filter(|arg| !arg.contains('/'))
        .cloned()
        .collect();
    line("cmake_args", list(&flags));
    let skipped = fs::read_to_string(&configured.unity_skip).unwrap_or_default();
    let skipped: Vec<String> = skipped
        .lines()
        .filter_map(|path| path.rsplit('/').next().map(str::to_owned))
        .collect();
    line("compiled_alone_after_failure", list(&skipped));
    text.push_str(
        "\n# Seconds. Stages that an earlier, stopped run had done take none.\n[timings]\n",
    );
    for (stage, time) in &timings.0 {
        writeln!(text, "{} = {:.1}", stage.name(), time.as_secs_f64())
            .expect("writing to a string");
    }
    text.push_str(
        "\n# Seconds of the compilers by part, over all runs that this took; what a compiler cache had took next to none.\n\
         [compiler_seconds]\n",
    );
    for (part, seconds) in ninja_log::seconds(&configured.dir) {
        writeln!(text, "{} = {seconds:.1}", quoted(&part)).expect("writing to a string");
    }
    for (name, version, origin, hash) in &sources.made_of {
        write!(
            text,
            "\n[[source]]\nname = {}\nversion = {}\norigin = {}\nhash = {}\n",
            quoted(name),
            quoted(version),
            quoted(origin),
            quoted(hash)
        )
        .expect("writing to a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_strings_are_read_back_as_they_were() {
        for value in ["plain", "a \"b\" c\\d", "tab\tand\nline", "Müller"] {
            let table: toml::Table = toml::from_str(&format!("v = {}", quoted(value))).unwrap();
            assert_eq!(table["v"].as_str(), Some(value));
        }
    }
}
