//! From the files and the mapping on the command line to one array for each input of a model.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ort_training::{IoInfo, Value};

use super::array::Array;
use super::csv_file::CsvFile;
use super::fit::fit;
use super::npy;
use super::safetensors_file::read_joined;
use crate::session::{declared, names};
use crate::suggest::suggest;

/// How files become inputs; the same for training and evaluation data.
#[derive(Clone, Debug, clap::Args)]
pub struct DataArgs {
    /// Where an input comes from, when its name does not say: an array of the .npz or .safetensors file, or columns of
    /// the CSV file
    /// (names, patterns with * and ?, ranges first..last, separated by commas)
    #[arg(long = "map", value_name = "INPUT=SOURCE", value_parser = mapping)]
    pub maps: Vec<(String, String)>,

    /// The columns of the CSV file that the model's last input takes (its labels or targets); the other columns go to
    /// the input that is left over
    #[arg(long, value_name = "COLUMNS")]
    pub label: Option<String>,

    /// The CSV file has no line of names; its columns are called 1, 2, 3, …
    #[arg(long)]
    pub no_header: bool,

    /// What separates the columns of the CSV file
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    pub delimiter: u8,
}

fn mapping(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((input, source)) if !input.is_empty() && !source.is_empty() => {
            Ok((input.to_owned(), source.to_owned()))
        }
        _ => Err(format!("expected INPUT=SOURCE, found {text:?}")),
    }
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text {
        "\\t" | "tab" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [byte] if byte.is_ascii() => Ok(*byte),
            _ => Err(format!(
                "expected one ASCII character or 'tab', found {text:?}"
            )),
        },
    }
}

/// One array for each input, all with the same number of rows.
#[derive(Clone, Debug)]
pub struct Dataset {
    arrays: Vec<(String, Array)>,
    rows: usize,
}

/// A file given as `FILE` or `INPUT=FILE`.
struct NamedFile {
    input: Option<String>,
    path: PathBuf,
}

impl NamedFile {
    fn parse(text: &str) -> Self {
        // A file that is there is meant, whatever its name holds.
        match text.split_once('=') {
            Some((input, path)) if !Path::new(text).exists() => Self {
                input: Some(input.to_owned()),
                path: path.into(),
            },
            _ => Self {
                input: None,
                path: text.into(),
            },
        }
    }

    fn extension(&self) -> String {
        self.path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase()
    }
}

impl Dataset {
    /// Reads `files` for a model that takes `specs`.
    pub fn read(files: &[String], specs: &[IoInfo], args: &DataArgs) -> Result<Self> {
        let known = || specs.iter().map(IoInfo::name);
        for (input, _) in &args.maps {
            if !known().any(|name| name == input) {
                bail!(
                    "--map {input}: the model has no such input{}",
                    suggest(input, known())
                );
            }
        }
        let mut found: Vec<(String, Array)> = Vec::new();
        // A file that is given for one input decides about that input, wherever it stands.
        let (named, others): (Vec<_>, Vec<_>) = files
            .iter()
            .map(|text| (text, NamedFile::parse(text)))
            .partition(|(_, file)| file.input.is_some());
        for (text, file) in named.into_iter().chain(others) {
            let open: Vec<&IoInfo> = specs
                .iter()
                .filter(|spec| !found.iter().any(|(name, _)| name == spec.name()))
                .collect();
            if let Some(input) = &file.input {
                if !known().any(|name| name == input) {
                    bail!(
                        "{text}: the model has no input '{input}'{}",
                        suggest(input, known())
                    );
                }
                if !open.iter().any(|spec| spec.name() == input) {
                    bail!("{text}: input '{input}' was given already");
                }
            }
            found.extend(read_file(&file, &open, specs, args)?);
        }
        Self::assemble(found, specs)
    }

    fn assemble(mut found: Vec<(String, Array)>, specs: &[IoInfo]) -> Result<Self> {
        let mut arrays: Vec<(String, Array)> = Vec::with_capacity(specs.len());
        for spec in specs {
            let Some(at) = found.iter().position(|(name, _)| name == spec.name()) else {
                bail!(
                    "the data has nothing for input '{}' ({}); expected data for {}; give it as INPUT=FILE, or say \
                     with --map INPUT=SOURCE or --label where it is",
                    spec.name(),
                    declared(spec),
                    names(specs).join(", ")
                );
            };
            let (name, array) = found.swap_remove(at);
            let array =
                fit(array, spec).with_context(|| format!("input '{name}' ({})", declared(spec)))?;
            arrays.push((name, array));
        }
        let rows = arrays.first().map_or(0, |(_, array)| array.shape[0]);
        for (name, array) in &arrays {
            if array.shape[0] != rows {
                bail!(
                    "expected as many rows for every input, found {rows} for '{}' and {} for '{name}'",
                    arrays[0].0,
                    array.shape[0]
                );
            }
        }
        if rows == 0 {
            bail!("expected at least one row of data, found none");
        }
        Ok(Self { arrays, rows })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn array(&self, input: &str) -> Option<&Array> {
        self.arrays
            .iter()
            .find(|(name, _)| name == input)
            .map(|(_, array)| array)
    }

    /// The rows with these numbers, one tensor for each input in the model's order.
    pub fn batch(&self, rows: &[usize]) -> Result<Vec<Value>> {
        self.arrays
            .iter()
            .map(|(_, array)| Ok(array.take_rows(rows).into_value()?))
            .collect()
    }
}

fn read_file(
    file: &NamedFile,
    open: &[&IoInfo],
    specs: &[IoInfo],
    args: &DataArgs,
) -> Result<Vec<(String, Array)>> {
    match file.extension().as_str() {
        "npy" => {
            let input = match (&file.input, open) {
                (Some(input), _) => input.clone(),
                (None, [spec]) => spec.name().to_owned(),
                _ => bail!(
                    "{}: expected INPUT=FILE, since one array is for one input and {} are open: {}",
                    file.path.display(),
                    open.len(),
                    open.iter()
                        .map(|spec| spec.name())
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            };
            Ok(vec![(input, npy::read_npy(&file.path)?)])
        }
        "npz" => {
            let names = npy::npz_names(&file.path)?;
            read_archive(file, open, args, &names, |wanted| {
                npy::read_npz(&file.path, wanted)
            })
        }
        "safetensors" => {
            let mut arrays = read_joined(&file.path)?;
            let names: Vec<String> = arrays.iter().map(|(name, _)| name.clone()).collect();
            read_archive(file, open, args, &names, |wanted| {
                arrays.retain(|(name, _)| wanted(name));
                Ok(arrays)
            })
        }
        "csv" | "tsv" | "txt" => {
            CsvFile::open(&file.path, args)?.read(file.input.as_deref(), open, specs, args)
        }
        other => bail!(
            "{}: expected a file named .csv, .tsv, .npy, .npz or .safetensors, found {other:?}{}",
            file.path.display(),
            if file.path.exists() {
                ""
            } else {
                " (and there is no such file)"
            }
        ),
    }
}

/// Arrays go to inputs by their names.
fn read_archive(
    file: &NamedFile,
    open: &[&IoInfo],
    args: &DataArgs,
    names: &[String],
    read: impl FnOnce(&dyn Fn(&str) -> bool) -> Result<Vec<(String, Array)>>,
) -> Result<Vec<(String, Array)>> {
    let known = || names.iter().map(String::as_str);
    // Input and array.
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for spec in open {
        let input = spec.name();
        if file.input.as_deref().is_some_and(|only| only != input) {
            continue;
        }
        let map = args.maps.iter().find(|(name, _)| name == input);
        let array = map.map_or(input, |(_, array)| array.as_str());
        if known().any(|name| name == array) {
            pairs.push((input, array));
        } else if map.is_some() {
            bail!(
                "{}: --map {input}={array}: there is no array '{array}'{}",
                file.path.display(),
                suggest(array, known())
            );
        }
    }
    if let (Some(input), [], [array]) = (&file.input, pairs.as_slice(), names) {
        pairs.push((input, array));
    }
    let missing = open
        .iter()
        .find(|spec| !pairs.iter().any(|(input, _)| *input == spec.name()));
    if let (Some(missing), None) = (missing, &file.input) {
        bail!(
            "{}: expected an array '{}' for the model's input of that name{} (or use --map {}=ARRAY)",
            file.path.display(),
            missing.name(),
            suggest(missing.name(), known()),
            missing.name()
        );
    }
    let mut arrays = read(&|name| pairs.iter().any(|(_, array)| *array == name))?;
    // Two inputs may take the same array.
    let mut found = Vec::new();
    for (at, (input, array)) in pairs.iter().enumerate() {
        let needed_again = pairs[at + 1..].iter().any(|(_, later)| later == array);
        let position = arrays.iter().position(|(name, _)| name == array);
        let Some(position) = position else { continue };
        let data = if needed_again {
            arrays[position].1.clone()
        } else {
            arrays.swap_remove(position).1
        };
        found.push(((*input).to_owned(), data));
    }
    Ok(found)
}

/// Named arrays as they are: all of an `.npz` or `.safetensors` file, or one for `NAME=FILE.npy`.
pub fn read_arrays(files: &[String]) -> Result<Vec<(String, Array)>> {
    let mut arrays: Vec<(String, Array)> = Vec::new();
    for text in files {
        let file = NamedFile::parse(text);
        let found = match (file.extension().as_str(), file.input) {
            ("npz", None) => npy::read_npz(&file.path, |_| true)?,
            ("safetensors", None) => read_joined(&file.path)?,
            ("npy", Some(name)) => vec![(name, npy::read_npy(&file.path)?)],
            _ => bail!(
                "{text}: expected FILE.npz or FILE.safetensors, or NAME=FILE.npy for one array"
            ),
        };
        for (name, array) in found {
            if arrays.iter().any(|(known, _)| *known == name) {
                bail!("{text}: array '{name}' was given already");
            }
            arrays.push((name, array));
        }
    }
    Ok(arrays)
}
