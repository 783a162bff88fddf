//! What the safe layer costs: a step of the smallest model (one linear layer, batch 1) through C calls, through the
//! safe layer and through a bound step, in one process, taken in turns.
//!
//! A step is train, read the loss, optimizer, lazy reset. All kinds run on one session and the same tensors, since where a
//! session's memory happens to lie costs or saves up to two per cent. Each round runs a block of steps of every kind in a
//! rotated order, and the ratio of two kinds is taken within a round, so that a clock that changes speed changes both. The
//! session is opened anew many times. The C step taken twice shows how far apart two equal things come out.
//!
//! `cargo bench --bench step`; `cargo bench --bench step -- 80 100 40` sets how often the session is opened, the rounds for
//! each, and the steps in a block.

mod c;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use ort_training::{
    Checkpoint, Environment, Result, SessionOptions, StepBinding, Tensor, TrainingSession,
};

use c::CStep;

const X: &[f32] = &[0.1, -0.2, 0.3, -0.4];
const TARGET: &[f32] = &[0.5];
const WARM_UP: usize = 200;

/// Compared kinds, and the most that the first may take as a multiple of the second.
const RATIOS: [(&str, &str, Option<f64>); 3] = [
    ("C again", "C", None),
    ("safe", "C", Some(1.02)),
    ("bound", "C, output kept", Some(1.01)),
];

/// What the steps run on.
struct Subject {
    /// Before the session and the tensors that it points to.
    c: CStep,
    binding: StepBinding<'static>,
    session: TrainingSession,
    x: Tensor<f32>,
    target: Tensor<f32>,
}

impl Subject {
    fn open(artifacts: &Path) -> Result<Self> {
        let mut session = TrainingSession::builder(&Environment::shared()?)
            .options(SessionOptions::new()?.with_intra_op_threads(1)?)
            .checkpoint(Checkpoint::load(artifacts.join("checkpoint"))?)
            .training_model(artifacts.join("training_model.onnx"))
            .eval_model(artifacts.join("eval_model.onnx"))
            .optimizer_model(artifacts.join("optimizer_model.onnx"))
            .build()?;
        let x = Tensor::from_slice([1, 4], X)?;
        let target = Tensor::from_slice([1, 1], TARGET)?;
        let binding = session.bind_train_step(vec![
            Tensor::from_slice([1, 4], X)?.into(),
            Tensor::from_slice([1, 1], TARGET)?.into(),
        ])?;
        Ok(Self {
            // SAFETY: it is dropped before them, and steps run one after another.
            c: unsafe { CStep::new(&mut session, &x, &target) },
            binding,
            session,
            x,
            target,
        })
    }

    /// Training, loss, update and reset through the safe layer.
    fn safe_step(&mut self) -> Result<f32> {
        let loss = self.session.train_step(&[&self.x, &self.target])?.loss()?;
        self.session.optimizer_step()?;
        self.session.lazy_reset_grad()?;
        Ok(loss)
    }

    /// The same with inputs and outputs bound.
    fn bound_step(&mut self) -> Result<f32> {
        self.session.train_step_bound(&mut self.binding)?;
        let loss = self.binding.outputs().loss()?;
        self.session.optimizer_step()?;
        self.session.lazy_reset_grad()?;
        Ok(loss)
    }
}

type Step = fn(&mut Subject) -> Result<f32>;

/// A kind of step, which returns the loss.
const KINDS: [(&str, Step); 5] = [
    ("C", |subject| Ok(subject.c.step())),
    ("safe", Subject::safe_step),
    ("C again", |subject| Ok(subject.c.step())),
    ("C, output kept", |subject| Ok(subject.c.bound_step())),
    ("bound", Subject::bound_step),
];

/// A kind that did other work than the others would show as other losses.
fn compare_losses(artifacts: &Path) -> Result<()> {
    let mut first: Option<Vec<u32>> = None;
    for (name, step) in KINDS {
        let mut subject = Subject::open(artifacts)?;
        let losses: Vec<u32> = (0..WARM_UP)
            .map(|_| Ok(step(&mut subject)?.to_bits()))
            .collect::<Result<_>>()?;
        assert_eq!(
            *first.get_or_insert(losses.clone()),
            losses,
            "losses of {name}"
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    // cargo passes --bench; numbers are ours.
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse().ok());
    let mut number = |default: usize| numbers.next().unwrap_or(default).max(1);
    let (openings, rounds, block) = (number(60), number(60), number(40));

    let artifacts = Path::new(env!("CARGO_MANIFEST_DIR")).join("ort-training/fixtures/linear1");
    compare_losses(&artifacts)?;

    let mut times = vec![Vec::new(); KINDS.len()];
    for _ in 0..openings {
        let mut subject = Subject::open(&artifacts)?;
        for (_, step) in KINDS {
            for _ in 0..WARM_UP {
                step(&mut subject)?;
            }
        }
        for round in 0..rounds {
            for turn in 0..KINDS.len() {
                let kind = (round + turn) % KINDS.len();
                let step = KINDS[kind].1;
                let start = Instant::now();
                for _ in 0..block {
                    black_box(step(&mut subject)?);
                }
                times[kind].push(start.elapsed().as_secs_f64() / block as f64);
            }
        }
    }

    println!("session opened {openings} times, {rounds} rounds of {block} steps of each kind");
    for ((name, _), times) in KINDS.iter().zip(&times) {
        let [low, middle, high] = quartiles(times.iter().map(|seconds| seconds * 1e6).collect());
        println!("{name:<16} median {middle:.3} µs, quartiles {low:.3} to {high:.3} µs");
    }
    for (name, base, bar) in RATIOS {
        let of = |wanted: &str| {
            let kind = KINDS
                .iter()
                .position(|(name, _)| *name == wanted)
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
