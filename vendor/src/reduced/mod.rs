//! Builds with the operators of some models only.
//!
//! ONNX Runtime's own way (`onnxruntime_REDUCED_OPS_BUILD`) compiles edited copies of the files that register kernels;
//! kernels that nobody registers are dropped by the linker. Its scripts make the copies with Python and two packages
//! that builds need for nothing else, and read no types from ONNX models; here is the same in its file format.

mod inserted;
mod left_out;
mod model;
mod registrations;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

pub(crate) use left_out::{bring_back, left_out, write_list};
pub(crate) use registrations::{write_reduced_schemas, write_reduced_sources};

/// The variable that names models and lists, separated as in `PATH`.
pub(crate) const VARIABLE: &str = "ORT_TRAINING_REDUCED_OPERATORS";

/// The operators of classic machine learning, such as tree ensembles.
pub(crate) const ML_DOMAIN: &str = "ai.onnx.ml";

/// Types that shapes, indices, conditions and losses are made of, whatever a model says.
const TYPES_ALWAYS: [&str; 4] = ["bool", "float", "int32_t", "int64_t"];

/// A marker in ONNX Runtime's format.
const TYPES_LINE: &str = "!globally_allowed_types;";

/// The operators and types that a reduced build has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operators {
    /// The operators of each domain (`ai.onnx` for the empty one) and opset version.
    by_opset: BTreeMap<(String, u64), BTreeSet<String>>,
    /// C++ names of element types; empty when every type is to be kept.
    types: BTreeSet<String>,
}

impl Operators {
    /// Reads models (`.onnx`) and lists (`.config`, ONNX Runtime's format); folders are searched for both.
    ///
    /// From models it takes the operators, those that ONNX Runtime's graph transformers may put in their place,
    /// and the types of tensors. Lists are taken as they are. Give all models of a training: training, evaluation and
    /// optimizer model, and the one for inference.
    ///
    /// # Errors
    /// When a path is not there, a file is neither, a folder holds neither, or a file cannot be read.
    pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Operators> {
        let mut files = Vec::new();
        for path in paths {
            find(path.as_ref(), &mut files)?;
        }
        let mut operators = Operators::default();
        let mut keeps_all_types = false;
        for file in &files {
            let found = if has_extension(file, "config") {
                let text = fs::read_to_string(file)
                    .map_err(Error::io(format!("reading {}", file.display())))?;
                Self::parse(&text).map_err(|problem| model_error(file, problem))?
            } else {
                model::operators(file)?
            };
            keeps_all_types |= found.types.is_empty();
            operators.types.extend(found.types);
            for (opset, names) in found.by_opset {
                operators.by_opset.entry(opset).or_default().extend(names);
            }
        }
        if keeps_all_types {
            operators.types.clear();
        }
        if operators.by_opset.is_empty() {
            return Err(Error::Setting {
                name: VARIABLE.into(),
                expected: "models or lists with at least one operator".into(),
                found: files
                    .iter()
                    .map(|file| file.display().to_string())
                    .collect::<Vec<_>>()
                    .join(", "),
            });
        }
        Ok(operators)
    }

    /// The list in ONNX Runtime's format (`required_operators.config`), sorted.
    pub fn to_config(&self) -> String {
        let mut text = String::new();
        if !self.types.is_empty() {
            let types: Vec<&str> = self.types.iter().map(String::as_str).collect();
            let _ = writeln!(text, "{TYPES_LINE}{}", types.join(","));
        }
        for ((domain, version), names) in &self.by_opset {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let _ = writeln!(text, "{domain};{version};{}", names.join(","));
        }
        text
    }

    /// How many operators there are, each counted once whatever its opset versions.
    pub fn count(&self) -> usize {
        self.by_opset
            .iter()
            .flat_map(|((domain, _), names)| names.iter().map(move |name| (domain, name)))
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Whether an operator of an opset is among them. `domain` is `ai.onnx` for the empty one.
    pub fn contains(&self, domain: &str, version: u64, name: &str) -> bool {
        self.by_opset
            .get(&(domain.to_owned(), version))
            .is_some_and(|names| names.contains(name))
    }

    /// Whether there is any operator of a domain.
    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        !self.names(domain).is_empty()
    }

    /// The operators of a domain, whatever their opset.
    fn names(&self, domain: &str) -> BTreeSet<&str> {
        self.by_opset
            .iter()
            .filter(|((of, _), _)| of == domain)
            .flat_map(|(_, names)| names.iter().map(String::as_str))
            .collect()
    }

    /// Whether a kernel that is registered for these versions is needed.
    fn needs(&self, domain: &str, first: u64, last: Option<u64>, name: &str) -> bool {
        self.by_opset.iter().any(|((of, version), names)| {
            of == domain
                && *version >= first
                && last.is_none_or(|last| *version <= last)
                && names.contains(name)
        })
    }

    fn parse(text: &str) -> Result<Operators, String> {
        let mut operators = Operators::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |expected: &str| {
                format!("line {}: expected {expected}, found {line:?}", number + 1)
            };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(types) = line.strip_prefix(TYPES_LINE) {
                for name in types.split(',').map(str::trim) {
                    if !model::is_type(name) {
                        return Err(wrong("C++ names of element types, as in float,int64_t"));
                    }
                    operators.types.insert(name.to_owned());
                }
                continue;
            }
            if line.contains('{') {
                return Err(wrong(
                    "operators without types of their own; types stand in one line \
                     `!globally_allowed_types;float,int64_t`",
                ));
            }
            let parts: Vec<&str> = line.split(';').map(str::trim).collect();
            let [domain, versions, names] = parts[..] else {
                return Err(wrong("`domain;opset,opset;Operator,Operator`"));
            };
            for version in versions.split(',') {
                let version = version
                    .trim()
                    .parse()
                    .map_err(|_| wrong("opset versions that are numbers"))?;
                let set = operators
                    .by_opset
                    .entry((domain.to_owned(), version))
                    .or_default();
                for name in names.split(',').map(str::trim) {
                    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    if name.is_empty() || !name.chars().all(is_name) {
                        return Err(wrong("operators' names"));
                    }
                    set.insert(name.to_owned());
                }
            }
        }
        Ok(operators)
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension()
        .is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

fn model_error(file: &Path, problem: String) -> Error {
    Error::Model {
        file: file.to_owned(),
        problem,
    }
}

/// The models and lists at a path. A file is named by the user; in folders other files are passed over.
fn find(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let is_ours = |path: &Path| has_extension(path, "onnx") || has_extension(path, "config");
    let wrong = |found: String| Error::Setting {
        name: VARIABLE.into(),
        expected: "models (.onnx), lists of operators (.config), or folders with such".into(),
        found,
    };
    if path.is_dir() {
        let before = files.len();
        walk(path, &is_ours, files)?;
        if files.len() == before {
            return Err(wrong(format!("{}, which has none", path.display())));
        }
        Ok(())
    } else if !path.is_file() {
        Err(wrong(format!("{}, which is not there", path.display())))
    } else if !is_ours(path) {
        Err(wrong(path.display().to_string()))
    } else {
        files.push(path.to_owned());
        Ok(())
    }
}

fn walk(folder: &Path, is_ours: &dyn Fn(&Path) -> bool, files: &mut Vec<PathBuf>) -> Result<()> {
    let reading = || Error::io(format!("reading {}", folder.display()));
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(reading())? {
        let entry = entry.map_err(reading())?;
        // Links to folders are not followed: they can lead in circles.
        let is_folder = entry.file_type().map_err(reading())?.is_dir();
        paths.push((entry.path(), is_folder));
    }
    paths.sort();
    for (path, is_folder) in paths {
        if is_folder {
            walk(&path, is_ours, files)?;
        } else if is_ours(&path) && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
