//! CSV files: columns of text that become rows of inputs.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use ort_training::{ElementType, IoInfo};

use super::array::{Array, Elements, Scalar};
use super::source::DataArgs;
use crate::session::declared;
use crate::suggest::{matches, suggest};

pub struct CsvFile {
    path: PathBuf,
    reader: csv::Reader<File>,
    columns: Vec<String>,
}

/// The columns that one input takes.
struct Group {
    input: String,
    columns: Vec<usize>,
    elements: Elements,
}

impl CsvFile {
    pub fn open(path: &Path, args: &DataArgs) -> Result<Self> {
        let what = || path.display().to_string();
        let file = File::open(path).with_context(what)?;
        let tsv = path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("tsv"));
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(if tsv && args.delimiter == b',' {
                b'\t'
            } else {
                args.delimiter
            })
            .has_headers(!args.no_header)
            .from_reader(file);
        // Without a header this is the first record, which is read again.
        let first = reader.headers().with_context(what)?;
        let columns: Vec<String> = if args.no_header {
            (1..=first.len()).map(|number| number.to_string()).collect()
        } else {
            first.iter().map(|name| name.trim().to_owned()).collect()
        };
        if columns.is_empty() {
            bail!("{}: expected columns, found an empty file", path.display());
        }
        Ok(Self {
            path: path.to_owned(),
            reader,
            columns,
        })
    }

    /// Reads the inputs of `open` that have columns here; `only` restricts it to one input.
    pub fn read(
        mut self,
        only: Option<&str>,
        open: &[&IoInfo],
        specs: &[IoInfo],
        args: &DataArgs,
    ) -> Result<Vec<(String, Array)>> {
        let mut groups = self.groups(only, open, specs, args)?;
        let mut record = csv::StringRecord::new();
        let mut rows = 0;
        while self
            .reader
            .read_record(&mut record)
            .with_context(|| self.path.display().to_string())?
        {
            let line = record.position().map_or(0, csv::Position::line);
            rows += 1;
            for group in &mut groups {
                for &column in &group.columns {
                    let cell = record.get(column).unwrap_or_default();
                    let scalar = if group.elements.element_type() == ElementType::String {
                        Scalar::Text(cell.to_owned())
                    } else {
                        Scalar::parse(cell)
                    };
                    group.elements.push(&scalar).with_context(|| {
                        format!(
                            "{}, line {line}, column '{}', for input '{}'",
                            self.path.display(),
                            self.columns[column],
                            group.input
                        )
                    })?;
                }
            }
        }
        groups
            .into_iter()
            .map(|group| {
                let shape = vec![rows, group.columns.len()];
                Ok((group.input, Array::new(shape, group.elements)?))
            })
            .collect()
    }

    /// Which columns go to which input: those that the mapping names, those of an input's own name, and the rest to the
    /// one input that is left.
    fn groups(
        &self,
        only: Option<&str>,
        open: &[&IoInfo],
        specs: &[IoInfo],
        args: &DataArgs,
    ) -> Result<Vec<Group>> {
        let mut taken = vec![false; self.columns.len()];
        let mut groups = Vec::new();
        let mut rest = Vec::new();
        for spec in open {
            let name = spec.name();
            if only.is_some_and(|only| only != name) {
                continue;
            }
            let last = specs.last().is_some_and(|last| last.name() == name);
            let map = args.maps.iter().find(|(input, _)| input == name);
            let (choice, option) = match (map, &args.label) {
                (Some((_, choice)), _) => (Some(choice.as_str()), "--map"),
                (None, Some(label)) if last => (Some(label.as_str()), "--label"),
                _ => (
                    self.columns.iter().any(|c| c == name).then_some(name),
                    "the input's name",
                ),
            };
            let Some(choice) = choice else {
                rest.push(*spec);
                continue;
            };
            let columns = self.choose(choice).with_context(|| {
                format!("{}: {option}, for input '{name}'", self.path.display())
            })?;
            for &column in &columns {
                taken[column] = true;
            }
            groups.push(group(spec, columns)?);
        }
        let left: Vec<usize> = (0..self.columns.len()).filter(|&at| !taken[at]).collect();
        match rest.as_slice() {
            [] => {}
            [spec] if left.is_empty() => bail!(
                "{}: no column is left for input '{}'",
                self.path.display(),
                spec.name()
            ),
            [spec] => groups.push(group(spec, left)?),
            several => bail!(
                "{}: expected to be told which columns are for {}: use --label COLUMNS for '{}' and --map \
                 INPUT=COLUMNS; the columns are {}",
                self.path.display(),
                several
                    .iter()
                    .map(|spec| format!("'{}'", spec.name()))
                    .collect::<Vec<_>>()
                    .join(" and "),
                specs.last().map_or("", IoInfo::name),
                abbreviated(&self.columns)
            ),
        }
        Ok(groups)
    }

    /// The columns that a list of names, patterns and ranges chooses, in its order.
    fn choose(&self, choice: &str) -> Result<Vec<usize>> {
        let position = |name: &str| {
            self.columns
                .iter()
                .position(|column| column == name)
                .ok_or_else(|| {
                    anyhow!(
                        "there is no column '{name}'{}",
                        suggest(name, self.columns.iter().map(String::as_str))
                    )
                })
        };
        let mut chosen = Vec::new();
        for part in choice.split(',').map(str::trim) {
            if self.columns.iter().any(|column| column == part) {
                chosen.push(position(part)?);
            } else if let Some((first, last)) = part.split_once("..") {
                let (first, last) = (position(first)?, position(last)?);
                if last < first {
                    bail!("'{part}': the last column comes before the first");
                }
                chosen.extend(first..=last);
            } else if part.contains(['*', '?']) {
                let before = chosen.len();
                chosen
                    .extend((0..self.columns.len()).filter(|&at| matches(part, &self.columns[at])));
                if chosen.len() == before {
                    bail!(
                        "no column matches '{part}'; the columns are {}",
                        abbreviated(&self.columns)
                    );
                }
            } else {
                chosen.push(position(part)?);
            }
        }
        Ok(chosen)
    }
}

fn group(spec: &IoInfo, columns: Vec<usize>) -> Result<Group> {
    let elements = spec
        .element_type()
        .and_then(Elements::empty)
        .with_context(|| {
            format!(
                "input '{}' ({}): no file can give that",
                spec.name(),
                declared(spec)
            )
        })?;
    Ok(Group {
        input: spec.name().to_owned(),
        columns,
        elements,
    })
}

fn abbreviated(columns: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if columns.len() > SHOWN {
        format!(", … ({} in all)", columns.len())
    } else {
        String::new()
    };
    columns[..columns.len().min(SHOWN)].join(", ") + &more
}
