//! Runs the program in a folder of its own, on data that is made here.

#![allow(dead_code)] // Every test file uses its part.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder to run in, removed afterwards.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

/// What a run of the program left.
#[derive(Debug)]
pub struct Run {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Run {
    /// Succeeded, and says all of this.
    #[track_caller]
    pub fn says(&self, words: &[&str]) -> &Self {
        self.ends(0, words)
    }

    /// Ended with this status, and says all of this.
    #[track_caller]
    pub fn ends(&self, status: i32, words: &[&str]) -> &Self {
        assert_eq!(self.status, status, "{self:#?}");
        for word in words {
            assert!(
                self.stdout.contains(word),
                "{word:?} is not in:\n{}",
                self.stdout
            );
        }
        self
    }

    /// An error, which names all of this.
    #[track_caller]
    pub fn refuses(&self, words: &[&str]) {
        assert_eq!(self.status, 2, "{self:#?}");
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is not in:\n{}",
                self.stderr
            );
        }
    }
}

pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ort-training"))
}

/// A folder of artifacts, or a file in it.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ort-training/fixtures")
        .join(name)
}

pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

impl Sandbox {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program with these arguments, in this folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs a whole line; `{name}` stands for a fixture.
    pub fn line(&self, line: &str) -> Run {
        let arguments: Vec<String> = line
            .split_whitespace()
            .map(
                |word| match word.strip_prefix('{').and_then(|w| w.strip_suffix('}')) {
                    Some(name) => text(&fixture(name)),
                    None => word.to_owned(),
                },
            )
            .collect();
        self.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), contents).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// The names in this folder, sorted.
    pub fn names(&self) -> Vec<String> {
        names(self.folder.path())
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Rows of features, and the label of each.
pub struct Rows {
    pub width: usize,
    pub features: Vec<f32>,
    pub labels: Vec<i64>,
}

/// Handwritten digits, some of the 1,797: 64 shades from 0 to 1, and the digit.
pub fn digits(numbers: std::ops::Range<usize>) -> Rows {
    let data = smartcore::dataset::digits::load_dataset();
    Rows {
        width: 64,
        features: data.data[numbers.start * 64..numbers.end * 64]
            .iter()
            .map(|shade| shade / 16.0)
            .collect(),
        labels: data.target[numbers]
            .iter()
            .map(|&digit| digit as i64)
            .collect(),
    }
}

impl Rows {
    /// The label is in the middle, so that a test fails when columns are taken by place.
    pub fn csv(&self) -> String {
        let half = self.width / 2;
        let mut names: Vec<String> = (0..self.width).map(|at| format!("pixel{at}")).collect();
        names.insert(half, "digit".into());
        let mut text = names.join(",") + "\n";
        for (row, label) in self.features.chunks(self.width).zip(&self.labels) {
            let mut cells: Vec<String> = row.iter().map(ToString::to_string).collect();
            cells.insert(half, label.to_string());
            text += &(cells.join(",") + "\n");
        }
        text
    }

    pub fn npz(&self, features: &str, labels: &str) -> Vec<u8> {
        npz(&[
            (
                features,
                floats(&[self.labels.len(), self.width], &self.features),
            ),
            (labels, integers(&[self.labels.len()], &self.labels)),
        ])
    }
}

fn npy(descr: &str, shape: &[usize], data: Vec<u8>) -> Vec<u8> {
    let shape: String = shape.iter().map(|size| format!("{size}, ")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

pub fn floats(shape: &[usize], values: &[f32]) -> Vec<u8> {
    npy(
        "<f4",
        shape,
        values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    )
}

pub fn doubles(shape: &[usize], values: &[f64]) -> Vec<u8> {
    npy(
        "<f8",
        shape,
        values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    )
}

pub fn integers(shape: &[usize], values: &[i64]) -> Vec<u8> {
    npy(
        "<i8",
        shape,
        values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    )
}

/// A zip archive of arrays, compressed as `numpy.savez_compressed` does.
pub fn npz(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, array) in arrays {
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated);
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(array).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// The numbers of a column of a run's loss.csv; empty cells are left out.
pub fn column(csv: &[u8], name: &str) -> Vec<f32> {
    let text = std::str::from_utf8(csv).unwrap();
    let mut lines = text.lines();
    let at = lines
        .next()
        .unwrap()
        .split(',')
        .position(|c| c == name)
        .unwrap();
    lines
        .filter_map(|line| line.split(',').nth(at).unwrap().parse().ok())
        .collect()
}

/// The forward model of a fixture with `change` added to one element of an initializer.
pub fn changed_model(name: &str, parameter: &str, element: usize, change: f32) -> Vec<u8> {
    use ort_training::artifacts::onnx::ModelProto;
    use prost::Message;
    let bytes = std::fs::read(fixture(name)).unwrap();
    let mut model = ModelProto::decode(bytes.as_slice()).unwrap();
    let graph = model.graph.as_mut().unwrap();
    let tensor = graph
        .initializer
        .iter_mut()
        .find(|tensor| tensor.name.as_deref() == Some(parameter))
        .unwrap();
    let mut raw = tensor.raw_data.clone().unwrap().to_vec();
    let place: &mut [u8; 4] = (&mut raw[4 * element..4 * element + 4]).try_into().unwrap();
    *place = (f32::from_le_bytes(*place) + change).to_le_bytes();
    tensor.raw_data = Some(raw.into());
    model.encode_to_vec()
}
