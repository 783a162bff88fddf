//! `ort-training train`: from artifacts and data to a trained model.

mod evaluate;
mod history;
mod run_folder;
mod shuffle;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use ort_training::{AsValue, Checkpoint, Dimension, IoInfo, OptimizerState, TrainingSession};

pub use history::Record;

use crate::data::{DataArgs, Dataset};
use crate::files::check_writable;
use crate::model::Model;
use crate::session::{ArtifactFiles, DeviceArgs, names};
use crate::suggest::suggest;
use crate::table::{say, thousands};
use evaluate::Evaluation;
use history::History;
use run_folder::{RunFolder, Settings};

const EXAMPLES: &str = "\
Examples:
  From a CSV file whose column `digit` is the label and whose other columns are the features:
    ort-training train artifacts --data train.csv --label digit --epochs 20 --lr 1e-3
  Columns chosen by name, pattern and range:
    ort-training train artifacts --data t.csv --map images='pixel*' --map labels=digit
    ort-training train artifacts --data t.csv --map x=a..f,h --map target=y
  From NumPy files: arrays of the .npz go to the inputs of their names
    ort-training train artifacts --data train.npz --eval test.npz --accuracy logits
    ort-training train artifacts --data images=x.npy --data labels=y.npy
  From a safetensors file: tensors of the inputs' names, or batch.0.NAME, batch.1.NAME, … one after the other
    ort-training train artifacts --data train.safetensors --map labels=target --no-shuffle
  Warm up for 100 steps, then down to zero; go on after an interruption; export:
    ort-training train artifacts --data t.npz --schedule linear --warmup-steps 100 --epochs 50
    ort-training train artifacts --data t.npz --schedule linear --warmup-steps 100 --epochs 50 --resume
    ort-training train artifacts --data t.npz --epochs 50 --resume --export trained.onnx

The folder of the run (--output) gets a checkpoint after every epoch (epoch-0001.ckpt, …), loss.csv and loss.png.";

/// Drawing takes longer than a short epoch does.
const BETWEEN_CURVES: Duration = Duration::from_secs(5);

/// Train a model from artifacts and data
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder of artifacts, as `ort-training artifacts` makes it
    artifacts: PathBuf,

    /// Training data: a .csv, .tsv, .npz or .safetensors file, or INPUT=FILE (.npy) for one input; several together
    #[arg(long = "data", value_name = "[INPUT=]FILE", required = true)]
    data: Vec<String>,

    /// Evaluation data, of the same form; evaluated after every epoch
    #[arg(long = "eval", value_name = "[INPUT=]FILE")]
    eval: Vec<String>,

    #[command(flatten)]
    columns: DataArgs,

    /// How often training goes through the data
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,

    /// Rows in a batch
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,

    /// Leave out the last batch of an epoch when it is smaller than the others
    #[arg(long)]
    drop_last: bool,

    /// The learning rate: constant, or where the schedule begins to fall
    #[arg(long, default_value_t = 1e-3, allow_negative_numbers = true)]
    lr: f32,

    /// How the learning rate changes
    #[arg(long, value_enum, default_value = "constant")]
    schedule: Schedule,

    /// Steps in which the linear schedule rises from zero to the learning rate
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    warmup_steps: u32,

    /// Decides the order of the rows, and what dropout drops
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Keep the rows in their order
    #[arg(long)]
    no_shuffle: bool,

    /// With --eval: how often the largest score of this output is at the label (the last input)
    #[arg(long, value_name = "OUTPUT", requires = "eval")]
    accuracy: Option<String>,

    /// The folder of the run
    #[arg(short, long, value_name = "FOLDER", default_value = "run")]
    output: PathBuf,

    /// How many of the epochs' checkpoints stay, the latest; 0 keeps all
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    keep: usize,

    /// Go on from the run's latest checkpoint, or from this one
    #[arg(long, value_name = "CHECKPOINT", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,

    /// Begin anew in a folder that has a run, and remove its checkpoints
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,

    /// Write the trained model for inference
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,

    /// The exported model's outputs (default: those of an evaluation step without the loss)
    #[arg(
        long = "export-output",
        value_name = "NAME",
        value_delimiter = ',',
        requires = "export"
    )]
    export_outputs: Vec<String>,

    /// What the artifacts' names begin with
    #[arg(long, default_value = "")]
    prefix: String,

    #[command(flatten)]
    device: DeviceArgs,

    /// No progress, no lines for the epochs
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Schedule {
    Constant,
    /// Up in the warm-up, then down to zero at the last step
    Linear,
}

/// Everything that was checked before the first step.
struct Trainer<'a> {
    args: &'a Args,
    session: TrainingSession,
    data: Dataset,
    evaluation: Option<Evaluation>,
    folder: RunFolder,
    history: History,
    batch_size: usize,
    steps_per_epoch: usize,
    epochs_done: u32,
    bar: ProgressBar,
}

pub fn run(args: &Args) -> Result<()> {
    check_numbers(args)?;
    let files = ArtifactFiles::find(&args.artifacts, &args.prefix)?;
    if files.optimizer_model.is_none() {
        bail!(
            "{}: expected an optimizer model to train with, found none; make the artifacts with --optimizer adamw or sgd",
            args.artifacts.display()
        );
    }
    let folder = RunFolder::new(&args.output);
    let from = match &args.resume {
        Some(Some(path)) => path.clone(),
        Some(None) => folder.latest()?,
        None => {
            folder.check_new(args.overwrite)?;
            files.checkpoint.clone()
        }
    };
    let session = files.session(Checkpoint::load(&from)?, &args.device)?;
    let export_outputs = export_outputs(args, &files, &session)?;

    let data = Dataset::read(&args.data, session.train_inputs(), &args.columns)
        .context("training data")?;
    let evaluation = Evaluation::new(
        &args.eval,
        args.accuracy.as_deref(),
        &session,
        &args.columns,
        args.batch_size as usize,
    )
    .context("evaluation data")?;
    let batch_size = args.batch_size as usize;
    let steps_per_epoch = steps_per_epoch(args, session.train_inputs(), data.rows())?;

    let settings = settings(args, data.rows());
    let mut epochs_done = 0;
    let mut history = History::default();
    if args.resume.is_some() {
        epochs_done = settings.compare(session.checkpoint(), &from)?;
        history = folder.history(epochs_done)?;
    }
    folder.create(args.overwrite)?;
    let steps = u64::from(args.epochs) * steps_per_epoch as u64;
    let mut trainer = Trainer {
        args,
        session,
        data,
        evaluation,
        folder,
        history,
        batch_size,
        steps_per_epoch,
        epochs_done,
        bar: progress(args, steps)?,
    };
    trainer.train(&settings)?;
    trainer.bar.finish_and_clear();
    if let Some(path) = &args.export {
        let names: Vec<&str> = export_outputs.iter().map(String::as_str).collect();
        trainer.session.export_for_inference(path, &names)?;
        if !args.quiet {
            say(format!(
                "exported {} ({})",
                path.display(),
                names.join(", ")
            ))?;
        }
    }
    Ok(())
}

fn check_numbers(args: &Args) -> Result<()> {
    if !(args.lr.is_finite() && args.lr > 0.0) {
        bail!("--lr: expected a positive finite number, found {}", args.lr);
    }
    if args.warmup_steps > 0 && args.schedule != Schedule::Linear {
        bail!("--warmup-steps is a setting of --schedule linear; the schedule is constant");
    }
    Ok(())
}

/// Batches in an epoch, once it is sure that the model takes them.
fn steps_per_epoch(args: &Args, specs: &[IoInfo], rows: usize) -> Result<usize> {
    let batch_size = args.batch_size as usize;
    let fixed = fixed_batch(specs);
    if let Some(fixed) = fixed.filter(|fixed| *fixed != batch_size) {
        bail!(
            "--batch-size: expected {fixed}, the only size that the model takes, found {batch_size}"
        );
    }
    let whole_only = args.drop_last || fixed.is_some();
    if fixed.is_some() && !args.drop_last && rows % batch_size != 0 && !args.quiet {
        eprintln!(
            "note: the model takes batches of {batch_size} only; {} of {rows} rows are left out of every epoch",
            rows % batch_size
        );
    }
    let steps = if whole_only {
        rows / batch_size
    } else {
        rows.div_ceil(batch_size)
    };
    if steps == 0 {
        bail!("expected at least one batch of {batch_size} rows, found {rows} rows");
    }
    Ok(steps)
}

/// The only batch size that the model takes, when it says one.
fn fixed_batch(specs: &[IoInfo]) -> Option<usize> {
    specs
        .iter()
        .find_map(|spec| match spec.dimensions()?.first()? {
            Dimension::Fixed(size) => Some(*size),
            _ => None,
        })
}

fn settings(args: &Args, rows: usize) -> Settings {
    Settings {
        numbers: [
            ("rows", rows as i64),
            ("batch size", args.batch_size.into()),
            ("seed", args.seed as i64),
            ("shuffle", (!args.no_shuffle).into()),
            ("drop last", args.drop_last.into()),
            (
                "linear schedule",
                (args.schedule == Schedule::Linear).into(),
            ),
            ("warm-up steps", args.warmup_steps.into()),
        ],
        learning_rate: args.lr,
        epochs: (args.schedule == Schedule::Linear).then_some(args.epochs),
    }
}

/// The names to export, known to exist before hours of training.
fn export_outputs(
    args: &Args,
    files: &ArtifactFiles,
    session: &TrainingSession,
) -> Result<Vec<String>> {
    let Some(path) = &args.export else {
        return Ok(Vec::new());
    };
    check_writable("--export", path)?;
    let Some(eval) = &files.eval_model else {
        bail!(
            "--export: expected artifacts with an eval_model.onnx, which the export is made from; found none in {}",
            args.artifacts.display()
        );
    };
    let model = Model::read(eval)?;
    let computed = model.computed();
    let mut known: Vec<&str> = computed.into_iter().collect();
    known.sort_unstable();
    for name in &args.export_outputs {
        if !known.contains(&name.as_str()) {
            bail!(
                "--export-output {name}: the model computes no value of this name{}",
                suggest(name, known)
            );
        }
    }
    if !args.export_outputs.is_empty() {
        return Ok(args.export_outputs.clone());
    }
    let outputs: Vec<String> = names(session.eval_outputs()?)
        .into_iter()
        .skip(1)
        .map(str::to_owned)
        .collect();
    if outputs.is_empty() {
        bail!(
            "--export: expected --export-output NAME, since an evaluation step returns the loss alone; the model computes {}",
            known.join(", ")
        );
    }
    Ok(outputs)
}

fn progress(args: &Args, steps: u64) -> Result<ProgressBar> {
    if args.quiet {
        return Ok(ProgressBar::hidden());
    }
    let style =
        ProgressStyle::with_template("{bar:32} {pos}/{len} steps, {eta} left, {per_sec}  {msg}")?;
    Ok(ProgressBar::new(steps).with_style(style))
}

impl Trainer<'_> {
    fn train(&mut self, settings: &Settings) -> Result<()> {
        let args = self.args;
        let total = u64::from(args.epochs) * self.steps_per_epoch as u64;
        match args.schedule {
            Schedule::Constant => self.session.set_learning_rate(args.lr)?,
            // It counts the optimizer's steps, which the checkpoint keeps, so that a resumed run is at the right place.
            Schedule::Linear => {
                self.session.register_linear_lr_scheduler(
                    args.warmup_steps.into(),
                    total,
                    args.lr,
                )?;
            }
        }
        if !args.quiet {
            say(format!(
                "{} rows, {} steps in an epoch, {} epochs{}",
                thousands(self.data.rows() as u64),
                thousands(self.steps_per_epoch as u64),
                args.epochs,
                match self.epochs_done {
                    0 => String::new(),
                    done => format!(", {done} of them done"),
                }
            ))?;
        }
        self.bar
            .set_position(u64::from(self.epochs_done) * self.steps_per_epoch as u64);
        let mut drawn: Option<Instant> = None;
        for epoch in self.epochs_done + 1..=args.epochs {
            let begin = Instant::now();
            let loss = self.epoch(epoch)?;
            let evaluated = self
                .evaluation
                .as_ref()
                .map(|evaluation| evaluation.run(&self.session))
                .transpose()?;
            self.history
                .evaluated(evaluated.as_ref().map(|result| result.loss));
            // The checkpoint comes last: it is what a resumed run begins with, and what is noted beyond it is dropped then.
            self.folder.write_history(&self.history)?;
            if drawn.is_none_or(|at| at.elapsed() > BETWEEN_CURVES) {
                self.folder.draw_curve(&self.history)?;
                drawn = Some(Instant::now());
            }
            settings.store(self.session.checkpoint_mut(), epoch)?;
            let path = self.folder.checkpoint(epoch);
            self.session
                .save_checkpoint(&path, OptimizerState::Include)?;
            self.folder.prune(args.keep)?;
            let seconds = begin.elapsed().as_secs_f64();
            let mut line = format!("epoch {epoch:>4}  loss {loss:.6}");
            if let Some(result) = evaluated {
                line += &format!("  evaluation {:.6}", result.loss);
                if let Some(accuracy) = result.accuracy {
                    line += &format!("  accuracy {:.2} %", 100.0 * accuracy);
                }
            }
            line += &format!("  {seconds:.1} s");
            if !args.quiet {
                self.bar.suspend(|| say(line))?;
            }
        }
        self.folder.draw_curve(&self.history)
    }

    /// Trains one epoch; its mean loss.
    fn epoch(&mut self, epoch: u32) -> Result<f64> {
        // Drawn anew for each epoch, so that a resumed run goes on as one that never stopped.
        ort_training::set_seed(shuffle::dropout_seed(self.args.seed, epoch))?;
        let order = if self.args.no_shuffle {
            (0..self.data.rows()).collect()
        } else {
            shuffle::order(self.data.rows(), self.args.seed, epoch)
        };
        let mut sum = 0.0;
        for rows in order.chunks(self.batch_size).take(self.steps_per_epoch) {
            let inputs = self.data.batch(rows)?;
            let inputs: Vec<&dyn AsValue> =
                inputs.iter().map(|value| value as &dyn AsValue).collect();
            let step = self.history.next_step();
            // Registering a schedule leaves its peak as the learning rate; a step of the schedule computes the rate from
            // the optimizer's count of steps, so it comes before each step.
            if self.args.schedule == Schedule::Linear {
                self.session.scheduler_step()?;
            }
            let learning_rate = self.session.learning_rate()?;
            let loss = self.session.train_step(&inputs)?.loss()?;
            if !loss.is_finite() {
                bail!(
                    "epoch {epoch}, step {step}: the loss became {loss} at the learning rate {learning_rate}; {}",
                    if self.epochs_done + 1 < epoch {
                        format!(
                            "the checkpoint before it is {}",
                            self.folder.checkpoint(epoch - 1).display()
                        )
                    } else {
                        "no epoch was finished".to_owned()
                    }
                );
            }
            self.session.optimizer_step()?;
            self.session.lazy_reset_grad()?;
            self.history.push(Record {
                step,
                epoch,
                learning_rate,
                loss,
                eval_loss: None,
            });
            sum += f64::from(loss) * rows.len() as f64;
            self.bar.inc(1);
            self.bar
                .set_message(format!("epoch {epoch}, loss {loss:.4}"));
        }
        let rows = (self.steps_per_epoch * self.batch_size).min(self.data.rows());
        Ok(sum / rows as f64)
    }
}
