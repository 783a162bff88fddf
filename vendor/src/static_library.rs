//! ONNX Runtime as one archive, `libonnxruntime.a`: for programs that shall be a single file.
//!
//! The shared library's own objects and archives are linked once more into one relocatable object, of which only what ONNX
//! Runtime exports stays visible. protobuf, abseil and re2 in it cannot meet another copy of themselves in a program.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::compile;
use crate::error::{Error, Result};

/// What a program may refer to.
const EXPORTED: &[&str] = &["OrtGetApiBase", "OrtTrainingArtifactsGetApi"];

/// Makes `archive` out of a finished build folder.
pub(crate) fn make(build_dir: &Path, archive: &Path, log: &Path) -> Result<()> {
    let ninja = build_dir.join("build.ninja");
    let text =
        fs::read_to_string(&ninja).map_err(Error::io(format!("reading {}", ninja.display())))?;
    let inputs = link_inputs(&text).ok_or_else(|| Error::Command {
        doing: "making the static library".into(),
        status: "not begun".into(),
        output: format!(
            "{} does not say how libonnxruntime.so is linked",
            ninja.display()
        ),
        log: None,
    })?;
    let folder = build_dir.join("ort-training-static");
    fs::create_dir_all(&folder).map_err(Error::io(format!("making {}", folder.display())))?;
    let keep = folder.join("exported.txt");
    fs::write(&keep, EXPORTED.join("\n") + "\n")
        .map_err(Error::io(format!("writing {}", keep.display())))?;
    let [all, weak, local] = ["all.o", "weak.o", "onnxruntime.o"].map(|name| folder.join(name));
    let run = |program: &str, arrange: &dyn Fn(&mut Command)| {
        let mut command = Command::new(program);
        command.current_dir(build_dir).stdin(Stdio::null());
        arrange(&mut command);
        compile::logged(command, "making the static library", log, &mut |_| {})
            .map_err(|failed| failed.into_error(|output| output.join("\n")))
    };
    run("ld", &|ld| {
        // Groups would be dropped for another file's of the same name, and with them what refers to them in here.
        ld.args(["-r", "--force-group-allocation", "-u", EXPORTED[0], "-o"])
            .arg(&all)
            .args(&inputs.objects)
            .arg("--start-group")
            .args(&inputs.archives)
            .arg("--end-group");
    })?;
    // Two steps: what gcc makes unique in a process can be hidden once it is weak. (`--weaken` would do that to what is
    // undefined too, and the linker would look for none of it.) The note: assembly of MLAS lacks it, and the stack of the
    // whole program would be executable for that.
    let unique = folder.join("unique.txt");
    let symbols = unique_symbols(&all)?;
    fs::write(&unique, &symbols).map_err(Error::io(format!("writing {}", unique.display())))?;
    run("objcopy", &|objcopy| {
        // clang makes no symbol unique, and an empty list is an error for objcopy.
        if !symbols.is_empty() {
            objcopy.arg(format!("--weaken-symbols={}", unique.display()));
        }
        objcopy
            .args(["--set-section-flags", ".note.GNU-stack=contents,readonly"])
            .arg(&all)
            .arg(&weak);
    })?;
    run("objcopy", &|objcopy| {
        objcopy
            .arg(format!("--keep-global-symbols={}", keep.display()))
            .arg("--strip-unneeded")
            .arg(&weak)
            .arg(&local);
    })?;
    let _ = fs::remove_file(archive);
    run("ar", &|ar| {
        ar.arg("rcsD").arg(archive).arg(&local);
    })?;
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}

/// The names of the symbols that are to be unique in a process, one a line.
fn unique_symbols(object: &Path) -> Result<String> {
    let output = Command::new("nm")
        .args(["--defined-only", "--format=posix"])
        .arg(object)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io("running nm"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, kind) = (words.next()?, words.next()?);
        (kind == "u").then_some(name)
    });
    Ok(names.map(|name| format!("{name}\n")).collect())
}

/// What the shared library is linked from, relative to the build folder.
#[derive(Debug, PartialEq, Eq)]
struct Inputs {
    objects: Vec<String>,
    archives: Vec<String>,
}

fn link_inputs(build_ninja: &str) -> Option<Inputs> {
    let mut lines = build_ninja.lines();
    let edge = lines.by_ref().find(|line| {
        line.starts_with("build libonnxruntime.so") && line.contains("_SHARED_LIBRARY_LINKER__")
    })?;
    let (_, rule) = edge.split_once(": ")?;
    let objects = rule
        .split_whitespace()
        .skip(1)
        .take_while(|word| !word.starts_with('|'))
        .map(str::to_owned)
        .collect();
    let libraries = lines
        .take_while(|line| line.starts_with(' '))
        .find_map(|line| line.trim().strip_prefix("LINK_LIBRARIES ="))?;
    let mut archives: Vec<String> = Vec::new();
    for word in libraries
        .split_whitespace()
        .filter(|word| word.ends_with(".a"))
    {
        if !archives.iter().any(|known| known == word) {
            archives.push(word.to_owned());
        }
    }
    Some(Inputs { objects, archives })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_those_of_the_shared_library() {
        let text = "build liba.a: CXX_STATIC_LIBRARY_LINKER__a a.o\n  LINK_LIBRARIES = no.a\n\n\
            build libonnxruntime.so.1.21.0: CXX_SHARED_LIBRARY_LINKER__onnxruntime_Release x/y.o z.o | liba.a || t\n  \
            LINK_FLAGS = -Wl,-x\n  LINK_LIBRARIES = liba.a  b/libb.a  -ldl liba.a\n\n";
        let inputs = link_inputs(text).unwrap();
        assert_eq!(inputs.objects, ["x/y.o", "z.o"]);
        assert_eq!(inputs.archives, ["liba.a", "b/libb.a"]);
        assert_eq!(link_inputs("build x: y\n"), None);
    }

    fn sh(folder: &Path, script: &str) {
        let status = Command::new("sh")
            .args(["-ec", script])
            .current_dir(folder)
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
    }

    /// Two copies of a library in one program, each with its own state: as of protobuf.
    #[test]
    fn only_what_is_exported_is_visible() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write(
            "inner.cc",
            "template <class T> struct S { static int& n() { static int n = 0; return n; } };\n\
             int count() { return ++S<int>::n(); }\nint unused() { return 1; }\n",
        );
        write(
            "api.cc",
            "#include <cstdlib>\nint count();\n\
             extern \"C\" int OrtGetApiBase() { if (getenv(\"NO\")) abort(); count(); return count(); }\n",
        );
        write(
            "program.cc",
            "int count(); extern \"C\" int OrtGetApiBase();\n\
            int main() { return OrtGetApiBase() == 2 && count() == 1 ? 0 : 1; }\n",
        );
        sh(
            dir.path(),
            "c++ -c -ffunction-sections -fPIC inner.cc api.cc && ar rc libinner.a inner.o",
        );
        write(
            "build.ninja",
            "build libonnxruntime.so.1: CXX_SHARED_LIBRARY_LINKER__x api.o | y\n  LINK_LIBRARIES = libinner.a\n",
        );
        let archive = dir.path().join("libonnxruntime.a");
        make(dir.path(), &archive, &dir.path().join("log")).unwrap();
        // What is not in it must be looked for: a weak reference is left at null.
        sh(dir.path(), "nm libonnxruntime.a | grep -q ' U getenv'");
        sh(
            dir.path(),
            "c++ program.cc inner.o libonnxruntime.a -o program && ./program",
        );
        sh(
            dir.path(),
            "! readelf -lW program | grep -q 'GNU_STACK.*RWE'",
        );
    }
}
