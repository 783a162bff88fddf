//! What scenarios work on: artifacts, rows of inputs, and the numbers of a run.

use std::path::{Path, PathBuf};

use crate::data::{Digits, PIXELS};
use crate::random::Random;

/// One input of a model for all rows.
#[derive(Clone)]
pub enum Column {
    /// `width` numbers for each row: a tensor of rank 2.
    Floats { width: usize, data: Vec<f32> },
    /// One number for each row: a tensor of rank 1.
    Labels(Vec<i64>),
}

/// A model, its data and how to train it.
pub struct Case {
    pub artifacts: PathBuf,
    /// A folder to write to, gone when the case is dropped.
    pub scratch: tempfile::TempDir,
    pub columns: Vec<Column>,
    pub rows: usize,
    /// The names of all parameters.
    pub parameters: Vec<&'static str>,
    pub batch_size: usize,
    pub steps: usize,
    pub learning_rate: f32,
    /// The output that an export for inference keeps.
    pub inference_output: &'static str,
}

impl Case {
    fn new(
        artifacts: &str,
        columns: Vec<Column>,
        rows: usize,
        parameters: &[&'static str],
        inference_output: &'static str,
    ) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("ort-training/fixtures");
        Self {
            artifacts: fixtures.join(artifacts),
            scratch: tempfile::tempdir().expect("a folder for temporary files"),
            columns,
            rows,
            parameters: parameters.to_vec(),
            batch_size: 32,
            steps: 12,
            learning_rate: 0.01,
            inference_output,
        }
    }

    /// The digits classifier of the fixture of this name. 250 rows are no multiple of 32: the last batch is smaller.
    pub fn digits(fixture: &str) -> Self {
        let rows = 250;
        let digits = Digits::load().select(&(0..rows).collect::<Vec<_>>());
        let columns = vec![
            Column::Floats {
                width: PIXELS,
                data: digits.images,
            },
            Column::Labels(digits.labels),
        ];
        Self::new(
            fixture,
            columns,
            rows,
            &["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
            "logits",
        )
    }

    /// The regression with two inputs and a frozen parameter.
    pub fn regression(fixture: &str) -> Self {
        let rows = 100;
        let x = uniform(1, rows * 4);
        let z = uniform(2, rows * 3);
        let target = (0..rows)
            .map(|row| x[4 * row].sin() + z[3 * row] * x[4 * row + 1])
            .collect();
        let columns = vec![
            Column::Floats { width: 4, data: x },
            Column::Floats { width: 3, data: z },
            Column::Floats {
                width: 1,
                data: target,
            },
        ];
        let parameters = [
            "x_proj.weight",
            "x_proj.bias",
            "z_proj.weight",
            "scale",
            "head.weight",
            "head.bias",
        ];
        Self::new(fixture, columns, rows, &parameters, "prediction")
    }

    /// The model with dropout.
    pub fn dropout() -> Self {
        let rows = 64;
        let columns = vec![
            Column::Floats {
                width: 4,
                data: uniform(3, rows * 4),
            },
            Column::Floats {
                width: 1,
                data: uniform(4, rows),
            },
        ];
        Self::new(
            "dropout",
            columns,
            rows,
            &["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
            "y",
        )
    }

    /// The smallest model, with its batch fixed at 1.
    pub fn linear1() -> Self {
        let rows = 16;
        let columns = vec![
            Column::Floats {
                width: 4,
                data: uniform(5, rows * 4),
            },
            Column::Floats {
                width: 1,
                data: uniform(6, rows),
            },
        ];
        let mut case = Self::new("linear1", columns, rows, &["weight", "bias"], "y");
        case.batch_size = 1;
        case
    }

    /// The rows of a step: first row and count. Steps go round the data; the last batch of a round may be smaller.
    pub fn batch_rows(&self, step: usize) -> (usize, usize) {
        let first = (step % self.rows.div_ceil(self.batch_size)) * self.batch_size;
        (first, (self.rows - first).min(self.batch_size))
    }
}

fn uniform(stream: u64, count: usize) -> Vec<f32> {
    let mut random = Random::new(20240615, stream);
    (0..count).map(|_| random.uniform(1.0)).collect()
}
