//! The losses of a run, step by step, and the file that keeps them.

use std::path::Path;

use anyhow::{Context, Result, bail};

const HEADINGS: [&str; 5] = ["step", "epoch", "learning_rate", "loss", "eval_loss"];

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// From 1, through the whole run.
    pub step: u64,
    /// From 1.
    pub epoch: u32,
    pub learning_rate: f32,
    pub loss: f32,
    /// At the last step of an epoch, when there is evaluation data.
    pub eval_loss: Option<f32>,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    records: Vec<Record>,
}

impl History {
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    pub fn next_step(&self) -> u64 {
        self.records.last().map_or(0, |record| record.step) + 1
    }

    pub fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Notes the evaluation loss after the last step.
    pub fn evaluated(&mut self, loss: Option<f32>) {
        if let Some(record) = self.records.last_mut() {
            record.eval_loss = loss;
        }
    }

    /// Reads what a run wrote, up to `epochs`.
    pub fn read(path: &Path, epochs: u32) -> Result<Self> {
        let what = || path.display().to_string();
        let mut reader = csv::Reader::from_path(path).with_context(what)?;
        if reader.headers().with_context(what)?.iter().ne(HEADINGS) {
            bail!(
                "{}: expected the columns {}",
                path.display(),
                HEADINGS.join(", ")
            );
        }
        let mut records = Vec::new();
        for (row, record) in reader.records().enumerate() {
            let what = || format!("{}, row {}", path.display(), row + 1);
            let record = record.with_context(what)?;
            let record = parse(&record).with_context(what)?;
            if record.epoch <= epochs {
                records.push(record);
            }
        }
        Ok(Self { records })
    }

    pub fn to_csv(&self) -> String {
        let mut text = HEADINGS.join(",") + "\n";
        for record in &self.records {
            // Rust writes the shortest number that reads back the same.
            text += &format!(
                "{},{},{},{},{}\n",
                record.step,
                record.epoch,
                record.learning_rate,
                record.loss,
                record
                    .eval_loss
                    .map_or_else(String::new, |loss| loss.to_string())
            );
        }
        text
    }
}

fn parse(record: &csv::StringRecord) -> Result<Record> {
    let cell = |at: usize| {
        record
            .get(at)
            .with_context(|| format!("no column {}", HEADINGS[at]))
    };
    Ok(Record {
        step: cell(0)?.parse().context("step")?,
        epoch: cell(1)?.parse().context("epoch")?,
        learning_rate: cell(2)?.parse().context("learning_rate")?,
        loss: cell(3)?.parse().context("loss")?,
        eval_loss: match cell(4)? {
            "" => None,
            text => Some(text.parse().context("eval_loss")?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let record = |step, epoch, eval_loss| Record {
            step,
            epoch,
            learning_rate: 1e-3,
            loss: 0.1 / step as f32,
            eval_loss,
        };
        let records = vec![
            record(1, 1, None),
            record(2, 1, Some(0.25)),
            record(3, 2, None),
        ];
        let history = History {
            records: records.clone(),
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), history.to_csv()).unwrap();
        assert_eq!(History::read(file.path(), 2).unwrap().records(), records);
        assert_eq!(
            History::read(file.path(), 1).unwrap().records(),
            &records[..2]
        );
        std::fs::write(file.path(), "a,b\n1,2\n").unwrap();
        assert!(History::read(file.path(), 1).is_err());
    }
}
