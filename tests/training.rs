//! The training loop in C and in Rust: the same numbers, bit for bit.

use ort_training::{Result, RunOptions, set_seed};
use ort_training_parity::{Case, Log, Payload, Scenario, Trainer, assert_same};

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

fn losses(log: &Log) -> Vec<f32> {
    log.bits("train 0")
        .into_iter()
        .map(f32::from_bits)
        .collect()
}

#[track_caller]
fn compare_training(case: &Case) {
    let rust = train(case).unwrap();
    assert_same(&Scenario::Train.run(case), &rust);
    let losses = losses(&rust);
    assert_eq!(losses.len(), case.steps);
    // Two sides that both learn nothing would agree too.
    assert!(
        losses.last() < losses.first(),
        "the loss doesn't fall: {losses:?}"
    );
}

#[test]
fn classifier_with_adamw() {
    compare_training(&Case::digits("digits"));
}

#[test]
fn classifier_with_sgd() {
    compare_training(&Case {
        learning_rate: 0.1,
        ..Case::digits("digits_sgd")
    });
}

#[test]
fn regression_with_adamw() {
    compare_training(&Case::regression("regression"));
}

#[test]
fn regression_with_sgd() {
    compare_training(&Case::regression("regression_sgd"));
}

#[test]
fn smallest_model() {
    compare_training(&Case {
        steps: 33,
        learning_rate: 0.05,
        ..Case::linear1()
    });
}

#[test]
fn frozen_parameter_stays() {
    let case = Case::regression("regression");
    let log = train(&case).unwrap();
    let scale = log.bits("parameter scale");
    let expected: Vec<u32> = (0..8)
        .map(|at| (0.5f32 + at as f32 / 7.0).to_bits())
        .collect();
    for (at, (scale, expected)) in scale.iter().zip(&expected).enumerate() {
        // The artifact's numbers were rounded from double precision.
        assert!(
            scale.abs_diff(*expected) <= 1,
            "scale {at}: {scale:x}, at the start {expected:x}"
        );
    }
    assert_same(&Scenario::Train.run(&case), &log);
}

fn accumulate(case: &Case, micro_batches: usize) -> Result<Log> {
    let mut log = Log::default();
    let mut trainer = Trainer::open(case)?;
    trainer.session.set_learning_rate(case.learning_rate)?;
    for step in 0..case.steps {
        for micro in 0..micro_batches {
            trainer.train_step(step * micro_batches + micro, &mut log, "micro batch")?;
        }
        trainer.session.optimizer_step()?;
        trainer.session.lazy_reset_grad()?;
        trainer.log_parameters(&mut log, "parameter")?;
    }
    Ok(log)
}

#[test]
fn gradient_accumulation() {
    for fixture in ["regression", "regression_sgd"] {
        let case = Case {
            steps: 4,
            ..Case::regression(fixture)
        };
        let mut ends = Vec::new();
        for micro_batches in [1, 2, 5] {
            let rust = accumulate(&case, micro_batches).unwrap();
            assert_same(&Scenario::Accumulate { micro_batches }.run(&case), &rust);
            ends.push(rust.bits("parameter head.weight"));
        }
        assert!(
            ends[0] != ends[1] && ends[1] != ends[2],
            "{fixture}: accumulating changed nothing"
        );
    }
}

fn schedule(case: &Case, warmup: u64, total: u64) -> Result<Log> {
    let mut log = Log::default();
    let mut trainer = Trainer::open(case)?;
    log.answer("no schedule", trainer.session.scheduler_step());
    trainer
        .session
        .register_linear_lr_scheduler(warmup, total, case.learning_rate)?;
    log.float("registered", trainer.session.learning_rate()?);
    for step in 0..case.steps {
        trainer.session.scheduler_step()?;
        log.float("scheduled", trainer.session.learning_rate()?);
        trainer.full_step(step, &mut log, "train")?;
    }
    trainer.log_parameters(&mut log, "parameter")?;
    Ok(log)
}

#[test]
fn linear_schedule() {
    let case = Case::regression("regression");
    // With warm-up, without, and one that is over before training is.
    for (warmup, total) in [(4, 12), (0, 12), (2, 6)] {
        let rust = schedule(&case, warmup, total).unwrap();
        assert_same(
            &Scenario::Schedule {
                warmup: warmup as i64,
                total: total as i64,
            }
            .run(&case),
            &rust,
        );
        let rates: Vec<f32> = rust
            .bits("scheduled")
            .into_iter()
            .map(f32::from_bits)
            .collect();
        for (step, rate) in rates.iter().enumerate() {
            let step = step as u64;
            let factor = if step < warmup {
                step as f32 / warmup as f32
            } else {
                total.saturating_sub(step) as f32 / (total - warmup) as f32
            };
            assert_eq!(
                *rate,
                case.learning_rate * factor,
                "step {step} of warm-up {warmup}, total {total}"
            );
        }
    }
}

fn seeded(case: &Case, seed: i64) -> Result<Log> {
    let mut log = Log::default();
    for seed in [seed, seed, seed + 1] {
        set_seed(seed)?;
        let mut trainer = Trainer::open(case)?;
        trainer.session.set_learning_rate(case.learning_rate)?;
        for step in 0..case.steps {
            trainer.full_step(step, &mut log, "train")?;
        }
        trainer.log_parameters(&mut log, "parameter")?;
    }
    Ok(log)
}

#[test]
fn seed_decides_dropout() {
    // The seed is the process's, so the two sides must not run at once; no other test of this file has dropout.
    let case = Case::dropout();
    let rust = seeded(&case, 7).unwrap();
    assert_same(&Scenario::Seed(7).run(&case), &rust);
    let bits = rust.bits("train");
    let (first, rest) = bits.split_at(case.steps);
    let (second, third) = rest.split_at(case.steps);
    assert_eq!(first, second, "the same seed");
    assert_ne!(first, third, "another seed");
}

#[test]
fn run_options() {
    let case = Case::regression("regression");
    let mut log = Log::default();
    let mut trainer = Trainer::open(&case).unwrap();
    let inputs = case.batch(0, case.batch_size).unwrap();
    let inputs: Vec<_> = inputs.iter().map(|input| input.as_value()).collect();
    let mut options = RunOptions::new().unwrap();
    options.set_tag("parity").unwrap();
    options
        .set_log_severity(ort_training::LogSeverity::Error)
        .unwrap();
    let session = &mut trainer.session;
    log.floats(
        "train",
        session.train_step_with(&inputs, &options).unwrap()[0]
            .data()
            .unwrap(),
    );
    session.optimizer_step_with(&options).unwrap();
    log.floats(
        "eval",
        session.eval_step_with(&inputs, &options).unwrap()[0]
            .data()
            .unwrap(),
    );
    options.terminate().unwrap();
    log.refused(
        "terminated train",
        session.train_step_with(&inputs, &options),
        &["terminate"],
    );

    let mut c = Scenario::RunOptions.run(&case);
    let last = &mut c.records.last_mut().unwrap().payload;
    // ONNX Runtime 1.21 passes run options of training calls on to nothing and trains. Were it to heed them, this
    // would find out, and the safe layer could leave the refusal to it.
    assert!(
        matches!(last, Payload::Answer { code: 0, .. }),
        "a terminated training step: {last}"
    );
    *last = Payload::Text("trains all the same".into());
    log.records.last_mut().unwrap().payload = last.clone();
    assert_same(&c, &log);
}

/// Memory that the process holds, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc/self/statm");
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("pages held");
    pages * 4096
}

#[test]
fn sessions_are_released() {
    let case = Case::linear1();
    let rust = |times: usize| {
        let mut log = Log::default();
        for step in 0..times {
            Trainer::open(&case)
                .unwrap()
                .full_step(step, &mut log, "train")
                .unwrap();
        }
        log
    };
    assert_same(&Scenario::Release { times: 20 }.run(&case), &rust(20));
    // A session of this model takes some hundred kilobytes; were it kept, 200 would show.
    let before = resident();
    rust(200);
    let grown = resident().saturating_sub(before);
    assert!(
        grown < 16 << 20,
        "after 200 sessions were dropped, {grown} bytes more are held"
    );
}
