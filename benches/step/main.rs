//! What the safe layer costs: a step of the smallest model (one linear layer, batch 1) through C calls, through the
//! safe layer and through a bound step, in one process, taken in turns.
//!
//! A step is train, read the loss, optimizer, lazy reset. Each round runs a block of steps of every kind in a rotated
//! order, and the ratio of two kinds is taken within a round, so that a clock that changes speed changes both. Where a
//! session's memory happens to lie costs or saves up to two per cent, so all sessions are opened anew many times. One
//! more C session of the same code shows how far apart two equal things come out.
//!
//! `cargo bench --bench step`; `cargo bench --bench step -- 80 100 40` sets how often sessions are opened, the rounds for
//! each, and the steps in a block.

mod c;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use ort_training::{Checkpoint, Environment, Result, SessionOptions, Tensor, TrainingSession};

use c::CStep;

const X: &[f32] = &[0.1, -0.2, 0.3, -0.4];
const TARGET: &[f32] = &[0.5];
const WARM_UP: usize = 200;

/// A kind of step: its name, and a step that returns the loss.
type Kind = (&'static str, Box<dyn FnMut() -> f32>);

/// Compared kinds, and the most that the first may take as a multiple of the second.
const RATIOS: [(&str, &str, Option<f64>); 3] = [
    ("C again", "C", None),
    ("safe", "C", Some(1.02)),
    ("bound", "C, output kept", Some(1.01)),
];

fn session(artifacts: &Path) -> Result<TrainingSession> {
    TrainingSession::builder(&Environment::shared()?)
        .options(SessionOptions::new()?.with_intra_op_threads(1)?)
        .checkpoint(Checkpoint::load(artifacts.join("checkpoint"))?)
        .training_model(artifacts.join("training_model.onnx"))
        .eval_model(artifacts.join("eval_model.onnx"))
        .optimizer_model(artifacts.join("optimizer_model.onnx"))
        .build()
}

fn c_step(artifacts: &Path) -> CStep {
    CStep::open(artifacts, (X, &[1, 4]), (TARGET, &[1, 1]))
}

/// Training, loss, update and reset through the safe layer.
fn safe_step(artifacts: &Path) -> Result<impl FnMut() -> f32 + use<>> {
    let mut session = session(artifacts)?;
    let x = Tensor::from_slice([1, 4], X)?;
    let target = Tensor::from_slice([1, 1], TARGET)?;
    let mut step = move || {
        let loss = session.train_step(&[&x, &target])?.loss()?;
        session.optimizer_step()?;
        session.lazy_reset_grad()?;
        Ok(loss)
    };
    Ok(move || step().unwrap_or_else(|error: ort_training::Error| panic!("a safe step: {error}")))
}

/// The same with inputs and outputs bound.
fn bound_step(artifacts: &Path) -> Result<impl FnMut() -> f32 + use<>> {
    let mut session = session(artifacts)?;
    let x = Tensor::from_slice([1, 4], X)?;
    let target = Tensor::from_slice([1, 1], TARGET)?;
    let mut binding = session.bind_train_step(vec![x.into(), target.into()])?;
    let mut step = move || {
        session.train_step_bound(&mut binding)?;
        let loss = binding.outputs().loss()?;
        session.optimizer_step()?;
        session.lazy_reset_grad()?;
        Ok(loss)
    };
    Ok(move || step().unwrap_or_else(|error: ort_training::Error| panic!("a bound step: {error}")))
}

fn kinds(artifacts: &Path) -> Result<Vec<Kind>> {
    let [mut plain, mut again, mut kept] = [0; 3].map(|_| c_step(artifacts));
    Ok(vec![
        ("C", Box::new(move || plain.step())),
        ("safe", Box::new(safe_step(artifacts)?)),
        ("C again", Box::new(move || again.step())),
        ("C, output kept", Box::new(move || kept.bound_step())),
        ("bound", Box::new(bound_step(artifacts)?)),
    ])
}

fn main() -> Result<()> {
    // cargo passes --bench; numbers are ours.
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse().ok());
    let mut number = |default: usize| numbers.next().unwrap_or(default).max(1);
    let (openings, rounds, block) = (number(60), number(60), number(40));

    let artifacts = Path::new(env!("CARGO_MANIFEST_DIR")).join("ort-training/fixtures/linear1");
    let mut names = Vec::new();
    let mut times: Vec<Vec<f64>> = Vec::new();
    for _ in 0..openings {
        let mut kinds = kinds(&artifacts)?;
        names = kinds.iter().map(|(name, _)| *name).collect();
        times.resize(names.len(), Vec::new());
        for step in 0..WARM_UP {
            // A kind that does other work than the others would show as other losses.
            let losses: Vec<u32> = kinds.iter_mut().map(|(_, run)| run().to_bits()).collect();
            assert!(
                losses.iter().all(|loss| *loss == losses[0]),
                "losses of step {step}: {losses:x?}"
            );
        }
        for round in 0..rounds {
            for turn in 0..kinds.len() {
                let kind = (round + turn) % kinds.len();
                let run = &mut kinds[kind].1;
                let start = Instant::now();
                for _ in 0..block {
                    black_box(run());
                }
                times[kind].push(start.elapsed().as_secs_f64() / block as f64);
            }
        }
    }

    println!("sessions opened {openings} times, {rounds} rounds of {block} steps of each kind");
    for (name, times) in names.iter().zip(&times) {
        let [low, middle, high] = quartiles(times.iter().map(|seconds| seconds * 1e6).collect());
        println!("{name:<16} median {middle:.3} µs, quartiles {low:.3} to {high:.3} µs");
    }
    for (name, base, bar) in RATIOS {
        let of = |wanted: &str| {
            let kind = names
                .iter()
                .position(|name| *name == wanted)
                .expect("a kind that was run");
            &times[kind]
        };
        let ratios = of(name)
            .iter()
            .zip(of(base))
            .map(|(time, base)| time / base)
            .collect();
        let [low, middle, high] = quartiles(ratios);
        let verdict = match bar {
            Some(bar) if middle <= bar => format!("within the bar of {bar}"),
            Some(bar) => format!("OVER the bar of {bar}"),
            None => "the same code".to_owned(),
        };
        println!("{name} / {base}: {middle:.4}, quartiles {low:.4} to {high:.4}; {verdict}");
    }
    Ok(())
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}
