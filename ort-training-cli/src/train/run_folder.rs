//! The folder of a run: checkpoints of its epochs, losses, curve.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ort_training::{Checkpoint, CheckpointMut, Property};

use super::history::History;
use crate::curve;
use crate::files::write_whole;

pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    pub fn checkpoint(&self, epoch: u32) -> PathBuf {
        self.path.join(format!("epoch-{epoch:04}.ckpt"))
    }

    /// The checkpoints that are there, by epoch.
    fn checkpoints(&self) -> Result<Vec<(u32, PathBuf)>> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let what = || self.path.display().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path).with_context(what)? {
            let path = entry.with_context(what)?.path();
            let epoch = path
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.strip_prefix("epoch-")?.strip_suffix(".ckpt"))
                .and_then(|number| number.parse().ok());
            if let Some(epoch) = epoch {
                found.push((epoch, path));
            }
        }
        found.sort();
        Ok(found)
    }

    pub fn latest(&self) -> Result<PathBuf> {
        match self.checkpoints()?.pop() {
            Some((_, path)) => Ok(path),
            None => bail!(
                "--resume: expected a checkpoint of an epoch (epoch-0001.ckpt, …) in {}, found none",
                self.path.display()
            ),
        }
    }

    /// A run must not mix with one that is there.
    pub fn check_new(&self, overwrite: bool) -> Result<()> {
        if self.path.exists() && !self.path.is_dir() {
            bail!(
                "--output {}: expected a folder, found a file",
                self.path.display()
            );
        }
        if overwrite {
            return Ok(());
        }
        if let Some((epoch, _)) = self.checkpoints()?.pop() {
            bail!(
                "--output {}: expected a folder without a run, found one of {epoch} epochs; go on with --resume, begin \
                 anew with --overwrite, or name another folder",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Makes the folder; `anew` removes the checkpoints of an earlier run.
    pub fn create(&self, anew: bool) -> Result<()> {
        std::fs::create_dir_all(&self.path)
            .with_context(|| format!("making the folder {}", self.path.display()))?;
        if anew {
            for (_, path) in self.checkpoints()? {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// The losses of the first `epochs`; none when they are gone.
    pub fn history(&self, epochs: u32) -> Result<History> {
        let path = self.path.join("loss.csv");
        if !path.is_file() {
            eprintln!(
                "note: {} is not there; the curve begins here",
                path.display()
            );
            return Ok(History::default());
        }
        History::read(&path, epochs)
    }

    pub fn write_history(&self, history: &History) -> Result<()> {
        write_whole(&self.path.join("loss.csv"), |file| {
            Ok(file.write_all(history.to_csv().as_bytes())?)
        })
    }

    pub fn draw_curve(&self, history: &History) -> Result<()> {
        curve::draw(&self.path.join("loss.png"), history.records())
    }

    /// Removes all but the latest `keep` checkpoints; 0 keeps all.
    pub fn prune(&self, keep: usize) -> Result<()> {
        let mut found = self.checkpoints()?;
        if keep > 0 && found.len() > keep {
            found.truncate(found.len() - keep);
            for (_, path) in found {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Removes a checkpoint, and the file beside it that a large one has.
fn remove(path: &Path) -> Result<()> {
    let mut data = path.as_os_str().to_owned();
    data.push(".data");
    std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    let _ = std::fs::remove_file(PathBuf::from(data));
    Ok(())
}

/// What decides how a run goes on, kept in its checkpoints as properties.
pub struct Settings {
    pub numbers: [(&'static str, i64); 7],
    pub learning_rate: f32,
    /// Of the whole run, where the schedule depends on it.
    pub epochs: Option<u32>,
}

const EPOCHS_DONE: &str = "epochs done";
const LEARNING_RATE: &str = "learning rate";
const EPOCHS: &str = "epochs";

impl Settings {
    pub fn store(&self, mut checkpoint: CheckpointMut<'_>, epochs_done: u32) -> Result<()> {
        checkpoint.set_property(EPOCHS_DONE, i64::from(epochs_done))?;
        checkpoint.set_property(LEARNING_RATE, self.learning_rate)?;
        if let Some(epochs) = self.epochs {
            checkpoint.set_property(EPOCHS, i64::from(epochs))?;
        }
        for (name, value) in self.numbers {
            checkpoint.set_property(name, value)?;
        }
        Ok(())
    }

    /// How many epochs the checkpoint has behind it; says where this run is another one than that it comes from.
    pub fn compare(&self, checkpoint: &Checkpoint, path: &Path) -> Result<u32> {
        let Some(Property::Int(done)) = checkpoint.property(EPOCHS_DONE)? else {
            bail!(
                "--resume {}: expected a checkpoint of a run, with the property '{EPOCHS_DONE}'; found one without",
                path.display()
            );
        };
        let mut numbers: Vec<(&str, i64)> = self.numbers.to_vec();
        numbers.extend(self.epochs.map(|epochs| (EPOCHS, i64::from(epochs))));
        for (name, value) in numbers {
            match checkpoint.property(name)? {
                Some(Property::Int(before)) if before != value => differs(name, before, value),
                _ => {}
            }
        }
        match checkpoint.property(LEARNING_RATE)? {
            Some(Property::Float(before)) if before != self.learning_rate => {
                differs(LEARNING_RATE, before, self.learning_rate);
            }
            _ => {}
        }
        u32::try_from(done)
            .with_context(|| format!("--resume {}: '{EPOCHS_DONE}' is {done}", path.display()))
    }
}

fn differs<T: std::fmt::Display>(name: &str, before: T, now: T) {
    eprintln!(
        "note: {name} was {before} before and is {now} now; the run will not be what it would have been without a stop"
    );
}
