//! The evaluation after an epoch: loss, and accuracy of a classifier.

use anyhow::{Context, Result, bail};
use ort_training::{AsValue, TrainingSession};

use super::fixed_batch;
use crate::data::{Array, DataArgs, Dataset};
use crate::session::names;
use crate::suggest::suggest;

pub struct Evaluation {
    data: Dataset,
    batch_size: usize,
    /// How many rows are used: all, or whole batches where the model takes no others.
    rows: usize,
    accuracy: Option<Accuracy>,
}

struct Accuracy {
    output: String,
    /// The label of each row.
    labels: Vec<usize>,
}

pub struct Evaluated {
    pub loss: f32,
    /// Between 0 and 1.
    pub accuracy: Option<f64>,
}

impl Evaluation {
    /// None without files.
    pub fn new(
        files: &[String],
        accuracy: Option<&str>,
        session: &TrainingSession,
        args: &DataArgs,
        batch_size: usize,
    ) -> Result<Option<Self>> {
        if files.is_empty() {
            return Ok(None);
        }
        let specs = session.eval_inputs().context("--eval")?;
        let data = Dataset::read(files, specs, args)?;
        let fixed = fixed_batch(specs);
        let batch_size = fixed.unwrap_or(batch_size);
        let rows = if fixed.is_some() {
            data.rows() / batch_size * batch_size
        } else {
            data.rows()
        };
        if rows == 0 {
            bail!(
                "expected at least {batch_size} rows, the batch that the model takes; found {}",
                data.rows()
            );
        }
        let accuracy = accuracy
            .map(|output| Accuracy::new(output, session, &data))
            .transpose()?;
        Ok(Some(Self {
            data,
            batch_size,
            rows,
            accuracy,
        }))
    }

    pub fn run(&self, session: &TrainingSession) -> Result<Evaluated> {
        let rows: Vec<usize> = (0..self.rows).collect();
        let (mut loss, mut right) = (0.0, 0);
        for batch in rows.chunks(self.batch_size) {
            let inputs = self.data.batch(batch)?;
            let inputs: Vec<&dyn AsValue> =
                inputs.iter().map(|value| value as &dyn AsValue).collect();
            let outputs = session.eval_step(&inputs)?;
            loss += f64::from(outputs.loss()?) * batch.len() as f64;
            if let Some(accuracy) = &self.accuracy {
                let scores = Array::from_value(outputs.get(&accuracy.output)?)?;
                right += accuracy.right(&scores, batch)?;
            }
        }
        Ok(Evaluated {
            loss: (loss / self.rows as f64) as f32,
            accuracy: self
                .accuracy
                .as_ref()
                .map(|_| right as f64 / self.rows as f64),
        })
    }
}

impl Accuracy {
    fn new(output: &str, session: &TrainingSession, data: &Dataset) -> Result<Self> {
        let known = names(session.eval_outputs()?);
        if !known.contains(&output) {
            bail!(
                "--accuracy {output}: an evaluation step returns no such output{} (make the artifacts with \
                 --extra-output {output})",
                suggest(output, known)
            );
        }
        let input = session
            .eval_inputs()?
            .last()
            .context("--accuracy: the model has no inputs")?
            .name();
        let labels = data
            .array(input)
            .with_context(|| format!("--accuracy: no data for '{input}'"))?;
        if labels.row_len() != 1 {
            bail!(
                "--accuracy: expected one label in a row of '{input}', found {:?}",
                labels.shape
            );
        }
        let labels = (0..labels.elements.len())
            .map(|row| {
                let label = labels.elements.get(row);
                label
                    .as_f64()
                    .filter(|label| *label >= 0.0 && label.fract() == 0.0)
                    .map(|label| label as usize)
                    .with_context(|| {
                        format!("--accuracy: expected class numbers in '{input}', found {label}")
                    })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            output: output.to_owned(),
            labels,
        })
    }

    /// For how many of `rows` the largest score is at the label.
    fn right(&self, scores: &Array, rows: &[usize]) -> Result<usize> {
        let &[count, classes] = scores.shape.as_slice() else {
            bail!(
                "--accuracy {}: expected scores of shape [rows, classes], found {:?}",
                self.output,
                scores.shape
            );
        };
        if count != rows.len() {
            bail!(
                "--accuracy {}: expected {} rows of scores, found {count}",
                self.output,
                rows.len()
            );
        }
        let score = |at: usize| scores.elements.get(at).as_f64().unwrap_or(f64::NAN);
        let right = rows.iter().enumerate().filter(|(at, row)| {
            let best = (0..classes)
                .max_by(|&a, &b| score(at * classes + a).total_cmp(&score(at * classes + b)));
            best == Some(self.labels[**row])
        });
        Ok(right.count())
    }
}
