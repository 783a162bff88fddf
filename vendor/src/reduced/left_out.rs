//! The source files of kernels that a build with the operators of some models only need not compile.
//!
//! A file is compiled when it registers a kernel that is needed, or when something that is compiled includes its header,
//! directly or through others. Both are read off the sources, as ONNX Runtime has no list of either. What that overlooks
//! (a function that is declared in another file's header) the linker names, and [`bring_back`] adds its file.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Operators, registrations};
use crate::error::{Error, Result};

/// Folders of the CPU's kernels.
const KERNELS: [&str; 3] = [
    "onnxruntime/core/providers/cpu",
    "onnxruntime/contrib_ops/cpu",
    "orttraining/orttraining/training_ops/cpu",
];

/// Folders of the code that may call into kernels' files.
const CALLERS: [&str; 2] = ["onnxruntime/core", "orttraining/orttraining"];

/// Folders below those that hold kernels, or what no build for the CPU compiles.
const NO_CALLERS: [&str; 6] = [
    "providers",
    "training_ops",
    "mlas",
    "test",
    "python",
    "dlpack",
];

/// Where `#include "..."` is looked up, besides the file's own folder.
const INCLUDE_FOLDERS: [&str; 4] = ["onnxruntime", "orttraining", "include/onnxruntime", ""];

/// Defines functions of the C API, which are declared far from it.
const FACTORY: &str = "onnxruntime/core/providers/cpu/cpu_provider_factory.cc";

/// Hands kernels to execution providers in libraries of their own, and keeps most of them by that.
const PROVIDER_HOST: &str = "onnxruntime/core/providers/cpu/cpu_provider_shared.cc";

/// The files that need not be compiled, sorted.
pub(crate) fn left_out(operators: &Operators, onnxruntime: &Path) -> Result<Vec<PathBuf>> {
    let mut kernels = BTreeSet::new();
    for folder in KERNELS {
        kernels.extend(sources(&onnxruntime.join(folder), &|_| true)?);
    }
    let mut wanted = vec![onnxruntime.join(FACTORY)];
    let mut needed = BTreeSet::new();
    for table in registrations::tables("cpu") {
        let table = onnxruntime.join(table);
        needed.extend(registrations::needed_names(operators, &table)?);
        wanted.push(table);
    }
    for file in &kernels {
        if registers_one_of(&read(file)?, &needed) {
            wanted.push(file.clone());
        }
    }
    let is_searched = |folder: &Path| !NO_CALLERS.iter().any(|name| folder.ends_with(name));
    for folder in CALLERS {
        wanted.extend(sources(&onnxruntime.join(folder), &is_searched)?);
    }
    wanted.extend(sources(
        &onnxruntime.join("onnxruntime/core/providers"),
        &|_| false,
    )?);

    let public = onnxruntime.join("include/onnxruntime");
    let host = onnxruntime.join(PROVIDER_HOST);
    let mut seen = HashSet::from([host.clone()]);
    while let Some(file) = wanted.pop() {
        if !seen.insert(file.clone()) {
            continue;
        }
        wanted.extend(included(&file, onnxruntime)?);
        // Public headers lie in a tree of their own, at the same places.
        let private = match file.strip_prefix(&public) {
            Ok(below) => onnxruntime.join("onnxruntime").join(below),
            Err(_) => file,
        };
        let source = private.with_extension("cc");
        if kernels.contains(&source) {
            wanted.push(source);
        }
    }
    Ok(kernels
        .into_iter()
        .filter(|file| *file == host || !seen.contains(file))
        .collect())
}

/// Takes files off the list whose functions or classes the linker missed, and tells how many. When it missed something and
/// none of them has it, all go: a build that takes longer is better than none.
pub(crate) fn bring_back(list: &Path, linker_output: &[String]) -> Result<usize> {
    let text = fs::read_to_string(list).unwrap_or_default();
    let files: Vec<&str> = text.lines().collect();
    let missed: BTreeSet<&str> = linker_output
        .iter()
        .filter_map(|line| missing(line))
        .collect();
    if missed.is_empty() || files.is_empty() {
        return Ok(0);
    }
    let mut left = Vec::new();
    for file in &files {
        let source = read(Path::new(file))?;
        if !missed.iter().any(|name| has_word(&source, name)) {
            left.push(*file);
        }
    }
    if left.len() == files.len() {
        left.clear();
    }
    write_list(list, left.iter().map(Path::new))?;
    Ok(files.len() - left.len())
}

/// Writes the list, a path a line.
pub(crate) fn write_list<'a>(list: &Path, files: impl Iterator<Item = &'a Path>) -> Result<()> {
    let mut text = String::new();
    for file in files {
        text.push_str(&file.display().to_string());
        text.push('\n');
    }
    fs::write(list, text).map_err(Error::io(format!("writing {}", list.display())))
}

/// The last name of what a line of the linker's says to be undefined: `Compute` of `undefined reference to
/// `onnxruntime::Clip::Compute(onnxruntime::OpKernelContext*) const'`, and of lld's `undefined symbol: ...`.
fn missing(line: &str) -> Option<&str> {
    let (_, symbol) = line
        .split_once("undefined reference to `")
        .or_else(|| line.split_once("undefined symbol: "))?;
    let symbol = symbol.strip_prefix("vtable for ").unwrap_or(symbol);
    let symbol = symbol.trim_end_matches('\'');
    let name = symbol.split(['(', '<', '[']).next()?;
    name.rsplit("::").next().filter(|name| !name.is_empty())
}

/// Whether a file calls one of the registering macros at file scope with one of these names, or defines a macro that does.
fn registers_one_of(source: &str, names: &BTreeSet<String>) -> bool {
    let mut rest = source;
    while !rest.is_empty() {
        let line_end = rest.find('\n').map_or(rest.len(), |at| at + 1);
        let end = if rest.starts_with("#define") {
            end_of_define(rest)
        } else if rest.starts_with(|c: char| c.is_ascii_uppercase()) {
            end_of_call(rest).unwrap_or(line_end)
        } else {
            rest = &rest[line_end..];
            continue;
        };
        if words(&rest[..end]).any(|word| names.contains(word)) {
            return true;
        }
        rest = &rest[end.max(line_end)..];
    }
    false
}

/// The end of `#define ... \` with its continued lines.
fn end_of_define(text: &str) -> usize {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    end
}

/// The end of `MACRO(...)`, over several lines.
fn end_of_call(text: &str) -> Option<usize> {
    let open = text.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))?;
    if !text[open..].starts_with('(') {
        return None;
    }
    let mut depth = 0;
    for (at, c) in text[open..].char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open + at + 1);
        }
    }
    None
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
}

fn has_word(text: &str, word: &str) -> bool {
    words(text).any(|found| found == word)
}

/// The files of the tree that a file includes; those that are not in it are other projects'.
fn included(file: &Path, onnxruntime: &Path) -> Result<Vec<PathBuf>> {
    let text = read(file)?;
    let own_folder = file.parent().unwrap_or(onnxruntime);
    let names = text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start();
        let rest = rest.strip_prefix("include")?.trim_start();
        rest.strip_prefix('"')?.split('"').next()
    });
    Ok(names
        .filter_map(|name| {
            INCLUDE_FOLDERS
                .iter()
                .map(|folder| onnxruntime.join(folder).join(name))
                .chain([own_folder.join(name)])
                .find(|path| path.is_file())
        })
        .map(|path| without_dots(&path))
        .collect())
}

/// `a/b/../c` as `a/c`: a file has one name only.
fn without_dots(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                clean.pop();
            }
            std::path::Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}

/// The C++ files of a folder, and of those below it that are to be searched.
fn sources(folder: &Path, is_searched: &dyn Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let reading = || Error::io(format!("reading {}", folder.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        if path.is_dir() {
            if is_searched(&path) {
                found.extend(sources(&path, is_searched)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "cc") {
            found.push(path);
        }
    }
    Ok(found)
}

fn read(file: &Path) -> Result<String> {
    let bytes = fs::read(file).map_err(Error::io(format!("reading {}", file.display())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
#[path = "left_out_tests.rs"]
mod tests;
