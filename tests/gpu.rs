//! Training on a CUDA device in C and in Rust, and against the CPU.

use ort_training::Result;
use ort_training_parity::{Case, Log, Scenario, Trainer, use_cuda};

/// How far C and Rust may lie apart on the same device, relative to the larger number (or to 1): sums that kernels add up
/// with atomic operations round differently from run to run.
const SAME_DEVICE: f32 = 1e-5;
/// How far the device may lie from the CPU after the steps of a case.
const CPU: f32 = 1e-3;

/// What `parity_train` does.
fn train(case: &Case) -> Result<Log> {
    let mut log = Log::default();
    let mut trainer = Trainer::open(case)?;
    log.float("default learning rate", trainer.session.learning_rate()?);
    trainer.session.set_learning_rate(case.learning_rate)?;
    log.float("learning rate", trainer.session.learning_rate()?);
    for step in 0..case.steps {
        trainer.full_step(step, &mut log, "train")?;
    }
    for step in 0..3 {
        trainer.eval_step(step, &mut log, "eval")?;
    }
    trainer.log_parameters(&mut log, "parameter")?;
    Ok(log)
}

fn numbers(log: &Log, prefix: &str) -> Vec<f32> {
    log.bits(prefix).into_iter().map(f32::from_bits).collect()
}

/// The furthest that two logs lie apart.
#[track_caller]
fn furthest(a: &Log, b: &Log, within: f32) -> f32 {
    let mut furthest = 0f32;
    for prefix in ["train 0", "eval 0", "parameter "] {
        let (a, b) = (numbers(a, prefix), numbers(b, prefix));
        assert_eq!(a.len(), b.len(), "{prefix}");
        assert!(!a.is_empty(), "{prefix}: nothing was logged");
        for (index, (a, b)) in a.iter().zip(&b).enumerate() {
            let apart = (a - b).abs() / a.abs().max(b.abs()).max(1.0);
            assert!(apart <= within, "{prefix}, number {index}: {a} and {b}");
            furthest = furthest.max(apart);
        }
    }
    furthest
}

#[test]
#[ignore = "needs a GPU: an ONNX Runtime built with CUDA and a device"]
fn training_in_c_and_rust_on_the_device() {
    let cases = || {
        let sgd = Case {
            learning_rate: 0.1,
            ..Case::digits("digits_sgd")
        };
        [
            ("digits, AdamW", Case::digits("digits")),
            ("digits, SGD", sgd),
            ("regression, AdamW", Case::regression("regression")),
        ]
    };
    let on_cpu = cases().map(|(_, case)| train(&case).unwrap());
    use_cuda(0);
    for ((name, case), cpu) in cases().into_iter().zip(on_cpu) {
        let rust = train(&case).unwrap();
        let c = Scenario::Train.run(&case);
        let losses = numbers(&rust, "train 0");
        assert!(
            losses.last() < losses.first(),
            "the loss doesn't fall: {losses:?}"
        );
        println!(
            "result: parity, {name}: Rust and C on the device within {:.1e}, device and CPU within {:.1e}",
            furthest(&c, &rust, SAME_DEVICE),
            furthest(&cpu, &rust, CPU)
        );
    }
}
