//! Trains a classifier of handwritten digits, from start to a model that is ready for inference:
//!
//! 1. reads 1,797 images and holds a fifth of them out;
//! 2. makes training artifacts from a plain ONNX model: loss, gradients, optimizer, checkpoint;
//! 3. trains with a linear schedule, evaluating after each epoch;
//! 4. half way, saves a checkpoint, stops, and resumes from it, and at the end shows that the losses are, bit for bit,
//!    those of a run that never stopped;
//! 5. exports the model, loads it for inference and compares what it says with the training session's evaluation;
//! 6. draws the loss curve.
//!
//! `cargo run --release --features artifacts --example digits -- --help` lists the options.

#[path = "digits/curve.rs"]
pub mod curve;
#[path = "digits/data.rs"]
pub mod data;
#[path = "digits/model.rs"]
pub mod model;
#[path = "digits/options.rs"]
pub mod options;
#[path = "digits/random.rs"]
pub mod random;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use ort_training::artifacts::{ArtifactsBuilder, Loss, Optimizer};
use ort_training::{
    Checkpoint, CudaDevice, Environment, InferenceSession, MemoryMeter, SessionOptions, TensorRef,
};

use data::{Digits, PIXELS};
use model::{Evaluation, Model, Plan};
use options::Options;

/// How far two logits may lie apart: inference fuses operators, which rounds differently.
const AGREEMENT: f32 = 1e-4;

/// How far losses of two runs on the same device may lie apart.
const DEVICE_TOLERANCE: f32 = 1e-3;
/// How far a device's losses may lie from the CPU's by the end of a run.
const CPU_TOLERANCE: f32 = 2e-2;

fn main() -> ExitCode {
    let options = match Options::parse() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("digits: {error} (--help lists the options)");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("digits: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes what training starts from out of a plain model.
fn make_artifacts(model: &Path, folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let artifacts = ArtifactsBuilder::from_path(model)
        .loss(Loss::cross_entropy())
        .optimizer(Optimizer::adamw())
        .extra_outputs(["logits"])
        .build()?;
    artifacts.write_to(folder)?;
    println!(
        "training artifacts made from {} in {}",
        model.display(),
        folder.display()
    );
    Ok(folder.to_owned())
}

/// The furthest that the losses of two runs lie apart, or the step at which that is too far.
fn compare(losses: &[f32], others: &[f32], tolerance: f32) -> Result<f32, String> {
    let mut furthest = 0f32;
    for (step, (loss, other)) in losses.iter().zip(others).enumerate() {
        let same = loss.to_bits() == other.to_bits();
        let apart = (loss - other).abs();
        if !same && (tolerance == 0.0 || apart.is_nan() || apart > tolerance) {
            return Err(format!("step {step}: loss {loss} and {other}"));
        }
        furthest = furthest.max(apart);
    }
    match losses.len() == others.len() {
        true => Ok(furthest),
        false => Err(format!("{} and {} steps", losses.len(), others.len())),
    }
}

/// The whole run; returns how the final model does on the held-out images.
pub fn run(options: &Options) -> Result<Evaluation, Box<dyn Error>> {
    let started = Instant::now();
    std::fs::create_dir_all(&options.out)
        .map_err(|error| format!("{}: {error}", options.out.display()))?;
    let plan = options.plan;
    let half = plan.epochs / 2;
    let (training, held_out) = Digits::load().split(plan.seed);
    println!(
        "{} images to train on, {} held out; batches of {}, the last one of an epoch has {}",
        training.count(),
        held_out.count(),
        plan.batch_size.min(training.count()),
        (training.count() - 1) % plan.batch_size + 1
    );

    let artifacts = match &options.artifacts {
        Some(folder) => folder.clone(),
        None => make_artifacts(&options.model, &options.out.join("artifacts"))?,
    };
    let env = Environment::builder("digits").build()?;
    let mut memory = match options.cuda {
        Some(device) if options.memory => Some(MemoryMeter::start(CudaDevice::open(device)?)?),
        _ => None,
    };
    let mut record = Record::new(&plan, training.count());

    // The first half, up to a checkpoint; dropping the session is what stopping the program would be.
    let checkpoint = options.out.join("half-way.ckpt");
    let mut model = Model::start_on(&env, &artifacts, plan.seed, options.cuda)?;
    record.train(&mut model, &plan, &training, &held_out, (0, half))?;
    model.save(&checkpoint, half)?;
    let (before, _) = model.evaluate(&held_out)?;
    drop(model);

    let state = Checkpoint::load(&checkpoint)?;
    let done = usize::try_from(
        state
            .int_property("epochs")?
            .ok_or("the checkpoint has no property `epochs`")?,
    )?;
    let mut model = Model::open_on(&env, &artifacts, state, options.cuda)?;
    let (after, _) = model.evaluate(&held_out)?;
    let apart = (before.loss - after.loss).abs() + (before.accuracy - after.accuracy).abs();
    if apart > options.cuda.map_or(0.0, |_| DEVICE_TOLERANCE) {
        return Err(format!(
            "resumed from {}: {after:?}, before it was {before:?}",
            checkpoint.display()
        )
        .into());
    }
    say(
        &record.bar,
        &format!(
            "stopped after epoch {done}, resumed from {}",
            checkpoint.display()
        ),
    );
    record.train(&mut model, &plan, &training, &held_out, (done, plan.epochs))?;
    record.bar.finish_and_clear();
    if let Some(meter) = &mut memory {
        println!(
            "memory        {} of the device, by all processes",
            meter.sample()?
        );
    }

    let mut unbroken = Vec::new();
    let mut again = Model::start_on(&env, &artifacts, plan.seed, options.cuda)?;
    again.train(
        &plan,
        &training,
        (0, plan.epochs),
        |_, _, loss| unbroken.push(loss),
        |_, _| Ok(()),
    )?;
    // A device adds up in an order of its own; the CPU repeats itself bit for bit.
    let tolerance = options.cuda.map_or(0.0, |_| DEVICE_TOLERANCE);
    let furthest_loss = compare(&record.losses, &unbroken, tolerance)
        .map_err(|error| format!("the resumed run and one that never stopped: {error}"))?;
    if options.cuda.is_some() {
        let mut losses = Vec::new();
        let mut on_cpu = Model::start(&env, &artifacts, plan.seed)?;
        let seen = |_: usize, _: &Digits, loss| losses.push(loss);
        on_cpu.train(&plan, &training, (0, plan.epochs), seen, |_, _| Ok(()))?;
        let furthest = compare(&losses, &unbroken, CPU_TOLERANCE)
            .map_err(|error| format!("the CPU and the device: {error}"))?;
        println!(
            "result: digits: all {} losses within {furthest:.1e} of the CPU's",
            losses.len()
        );
    }

    let last = options.out.join("digits.ckpt");
    let exported = options.out.join("digits.onnx");
    model.save(&last, plan.epochs)?;
    model.session.export_for_inference(&exported, &["logits"])?;
    let (evaluation, logits) = model.evaluate(&held_out)?;
    let inferred = infer(&env, &exported, &held_out)?;
    let furthest = logits
        .iter()
        .zip(&inferred)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    if inferred.len() != logits.len() || furthest > AGREEMENT {
        return Err(format!("inference differs from evaluation by up to {furthest}").into());
    }
    let inferred_accuracy = model::accuracy(&inferred, &held_out.labels);

    let picture = options.out.join("loss.png");
    let percent = 100.0 * evaluation.accuracy;
    let title = format!(
        "Handwritten digits: {percent:.1} % of {} held-out images",
        held_out.count()
    );
    curve::draw(&picture, &record.losses, &record.held_out, &title)?;

    println!(
        "held out      accuracy {percent:.2} %, loss {:.4}",
        evaluation.loss
    );
    match options.cuda {
        None => println!(
            "resumed       all {} losses are bit for bit those of an uninterrupted run",
            unbroken.len()
        ),
        Some(_) => println!(
            "resumed       all {} losses are within {furthest_loss:.1e} of an uninterrupted run's",
            unbroken.len()
        ),
    }
    println!(
        "inference     accuracy {:.2} %, logits within {furthest:.1e} of the training session's",
        100.0 * inferred_accuracy
    );
    for (what, path) in [
        ("checkpoint", &last),
        ("model", &exported),
        ("loss curve", &picture),
    ] {
        println!("{what:<13} {}", path.display());
    }
    println!("took          {:.1} s", started.elapsed().as_secs_f64());
    Ok(evaluation)
}

/// What is shown and kept of a run.
struct Record {
    bar: ProgressBar,
    losses: Vec<f32>,
    /// The loss on held-out images after so many steps.
    held_out: Vec<(usize, f32)>,
}

impl Record {
    fn new(plan: &Plan, images: usize) -> Self {
        let steps = plan.epochs * images.div_ceil(plan.batch_size);
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} steps, {elapsed}, {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(steps as u64).with_style(style);
        Self {
            bar,
            losses: Vec::with_capacity(steps),
            held_out: Vec::new(),
        }
    }

    fn train(
        &mut self,
        model: &mut Model,
        plan: &Plan,
        training: &Digits,
        held_out: &Digits,
        epochs: (usize, usize),
    ) -> ort_training::Result<()> {
        let Self {
            bar,
            losses,
            held_out: evaluations,
        } = self;
        let mut steps = losses.len();
        model.train(
            plan,
            training,
            epochs,
            |epoch, _, loss| {
                losses.push(loss);
                bar.inc(1);
                bar.set_message(format!("epoch {}, loss {loss:.4}", epoch + 1));
            },
            |model, epoch| {
                steps += training.count().div_ceil(plan.batch_size);
                let (Evaluation { loss, accuracy }, _) = model.evaluate(held_out)?;
                evaluations.push((steps, loss));
                let percent = 100.0 * accuracy;
                say(
                    bar,
                    &format!(
                        "epoch {:>3}  held out: loss {loss:.4}, accuracy {percent:.2} %",
                        epoch + 1
                    ),
                );
                Ok(())
            },
        )
    }
}

/// Prints a line above the bar. A bar that isn't drawn, as there is no terminal, would swallow it.
fn say(bar: &ProgressBar, line: &str) {
    if bar.is_hidden() {
        println!("{line}")
    } else {
        bar.println(line)
    }
}

/// The logits of all images, from the exported model.
fn infer(
    env: &Environment,
    path: &std::path::Path,
    digits: &Digits,
) -> ort_training::Result<Vec<f32>> {
    let options = SessionOptions::new()?.with_intra_op_threads(1)?;
    let session = InferenceSession::builder(env)
        .options(options)
        .model(path)
        .build()?;
    let images = TensorRef::new([digits.count(), PIXELS], &digits.images)?;
    let outputs = session.run(&[&images])?;
    Ok(outputs.get("logits")?.data::<f32>()?.to_vec())
}
