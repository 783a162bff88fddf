//! What the safe layer costs: a step of the smallest model (one linear layer, batch 1) through C calls, through the
//! safe layer and through a bound step, in one process, taken in turns.
//!
//! A step is train, read the loss, optimizer, lazy reset. Each round runs a block of steps of every kind in a rotated
//! order; the ratio of two kinds is taken within a round, so that a clock that changes speed changes both.
//!
//! `cargo bench --bench step`; `cargo bench --bench step -- 5000 50` sets rounds and steps in a block.

#[path = "c.rs"]
mod c;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use ort_training::{Checkpoint, Environment, SessionOptions, Tensor, TrainingSession};

use c::CStep;

const X: &[f32] = &[0.1, -0.2, 0.3, -0.4];
const TARGET: &[f32] = &[0.5];

/// A kind of step: its name, and a step that returns the loss.
type Kind = (&'static str, Box<dyn FnMut() -> f32>);

/// The most that a kind of step may take, as a multiple of the same C calls.
const BARS: [(&str, &str, f64); 2] = [("safe", "C", 1.02), ("bound", "C, output kept", 1.01)];
/// Two kinds that are the same code on sessions of their own: how far apart where memory lies puts them.
const SAME: (&str, &str) = ("C again", "C");

fn session(artifacts: &Path) -> ort_training::Result<TrainingSession> {
    TrainingSession::builder(&Environment::shared()?)
        .options(SessionOptions::new()?.with_intra_op_threads(1)?)
        .checkpoint(Checkpoint::load(artifacts.join("checkpoint"))?)
        .training_model(artifacts.join("training_model.onnx"))
        .eval_model(artifacts.join("eval_model.onnx"))
        .optimizer_model(artifacts.join("optimizer_model.onnx"))
        .build()
}

fn main() -> ort_training::Result<()> {
    // cargo passes --bench; numbers are ours.
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse::<usize>().ok());
    let rounds = numbers.next().unwrap_or(2000).max(4);
    let block = numbers.next().unwrap_or(50).max(1);

    let artifacts = Path::new(env!("CARGO_MANIFEST_DIR")).join("ort-training/fixtures/linear1");
    let mut plain_c = CStep::open(&artifacts, (X, &[1, 4]), (TARGET, &[1, 1]));
    let mut again_c = CStep::open(&artifacts, (X, &[1, 4]), (TARGET, &[1, 1]));
    let mut kept_c = CStep::open(&artifacts, (X, &[1, 4]), (TARGET, &[1, 1]));
    let mut safe = session(&artifacts)?;
    let mut bound = session(&artifacts)?;
    let x = Tensor::from_slice([1, 4], X)?;
    let target = Tensor::from_slice([1, 1], TARGET)?;
    let mut binding = bound.bind_train_step(vec![x.into(), target.into()])?;

    let mut kinds: Vec<Kind> = vec![
        ("C", Box::new(move || plain_c.step())),
        ("safe", {
            let (x, target) = (
                Tensor::from_slice([1, 4], X)?,
                Tensor::from_slice([1, 1], TARGET)?,
            );
            Box::new(move || {
                let loss = safe
                    .train_step(&[&x, &target])
                    .and_then(|outputs| outputs.loss());
                safe.optimizer_step()
                    .and_then(|()| safe.lazy_reset_grad())
                    .expect("an optimizer step");
                loss.expect("a training step")
            })
        }),
        ("C again", Box::new(move || again_c.step())),
        ("C, output kept", Box::new(move || kept_c.bound_step())),
        (
            "bound",
            Box::new(move || {
                bound
                    .train_step_bound(&mut binding)
                    .expect("a training step");
                let loss = binding.outputs().loss().expect("a loss");
                bound
                    .optimizer_step()
                    .and_then(|()| bound.lazy_reset_grad())
                    .expect("an optimizer step");
                loss
            }),
        ),
    ];

    // Two kinds that do other work, or a kind that is never called, would show as other losses.
    for step in 0..500 {
        let losses: Vec<u32> = kinds
            .iter_mut()
            .skip(step % 2 * 2)
            .take(2)
            .map(|(_, run)| run().to_bits())
            .collect();
        assert_eq!(losses[0], losses[1], "losses of warm-up step {step}");
    }

    let mut times = vec![Vec::with_capacity(rounds); kinds.len()];
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

    println!("{rounds} rounds of {block} steps of each kind");
    for ((name, _), times) in kinds.iter().zip(&times) {
        let [low, middle, high] = quartiles(times.clone());
        println!(
            "{name:<16} median {:.3} µs, quartiles {:.3} to {:.3} µs",
            middle * 1e6,
            low * 1e6,
            high * 1e6
        );
    }
    for (name, base, bar) in BARS {
        let find = |wanted: &str| {
            kinds
                .iter()
                .position(|(name, _)| *name == wanted)
                .expect("a kind")
        };
        let ratios = times[find(name)]
            .iter()
            .zip(&times[find(base)])
            .map(|(a, b)| a / b)
            .collect();
        let [low, middle, high] = quartiles(ratios);
        let verdict = if middle <= bar { "within" } else { "OVER" };
        println!(
            "{name} / {base}: {middle:.4}, quartiles {low:.4} to {high:.4}; {verdict} the bar of {bar}"
        );
    }
    Ok(())
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}
