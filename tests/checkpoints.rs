//! Checkpoints in C and in Rust: what they keep, and what a run makes of it.

use ort_training::{Checkpoint, OptimizerState, ParameterSet, Property, Result, Tensor};
use ort_training_parity::{Case, Log, Scenario, Trainer, assert_same};

fn save_load_continue(case: &Case) -> Result<Log> {
    let mut log = Log::default();
    let half = case.steps / 2;
    let with = case.scratch_file("with-optimizer-rust");
    let without = case.scratch_file("without-optimizer-rust");
    let mut trainer = Trainer::open(case)?;
    trainer.session.set_learning_rate(case.learning_rate)?;
    for step in 0..half {
        trainer.full_step(step, &mut log, "before")?;
    }
    trainer
        .session
        .save_checkpoint(&with, OptimizerState::Include)?;
    trainer
        .session
        .save_checkpoint(&without, OptimizerState::Exclude)?;
    for step in half..case.steps {
        trainer.full_step(step, &mut log, "uninterrupted")?;
    }
    trainer.log_parameters(&mut log, "uninterrupted")?;
    drop(trainer);

    for (path, label, name) in [
        (with, "learning rate with optimizer state", "continued"),
        (
            without,
            "learning rate without optimizer state",
            "restarted",
        ),
    ] {
        let mut trainer = Trainer::with_checkpoint(case, Checkpoint::load(path)?)?;
        log.float(label, trainer.session.learning_rate()?);
        trainer.session.set_learning_rate(case.learning_rate)?;
        for step in half..case.steps {
            trainer.full_step(step, &mut log, name)?;
        }
        trainer.log_parameters(&mut log, name)?;
    }
    Ok(log)
}

#[test]
fn save_load_and_continue() {
    for fixture in ["regression", "regression_sgd"] {
        let case = Case::regression(fixture);
        let rust = save_load_continue(&case).unwrap();
        assert_same(&Scenario::SaveLoadContinue.run(&case), &rust);
        assert_eq!(
            rust.bits("continued"),
            rust.bits("uninterrupted"),
            "{fixture}: continued and uninterrupted"
        );
        let restarted = rust.bits("restarted") == rust.bits("uninterrupted");
        // AdamW has a state that matters, SGD has none.
        assert_eq!(
            restarted,
            fixture == "regression_sgd",
            "{fixture}: without the optimizer's state"
        );
    }
}

/// Each side reads what the other wrote.
#[test]
fn checkpoints_are_exchanged() {
    let case = Case::regression("regression");
    let rust = save_load_continue(&case).unwrap();
    Scenario::SaveLoadContinue.run(&case);
    let parameters = |file: &str| {
        let mut log = Log::default();
        let checkpoint = Checkpoint::load(case.scratch_file(file)).unwrap();
        let mut trainer = Trainer::with_checkpoint(&case, checkpoint).unwrap();
        trainer
            .session
            .set_learning_rate(case.learning_rate)
            .unwrap();
        for step in case.steps / 2..case.steps {
            trainer.full_step(step, &mut log, "continued").unwrap();
        }
        trainer.log_parameters(&mut log, "continued").unwrap();
        log.bits("continued")
    };
    assert_eq!(
        parameters("with-optimizer"),
        rust.bits("uninterrupted"),
        "what C wrote, continued in Rust"
    );
    assert_eq!(
        parameters("with-optimizer-rust"),
        rust.bits("uninterrupted"),
        "what Rust wrote, continued in Rust"
    );
}

fn log_property(log: &mut Log, checkpoint: &Checkpoint, name: &str) -> Result<()> {
    match checkpoint.property(name)? {
        Some(Property::Int(value)) => log.int(name, value),
        Some(Property::Float(value)) => log.float(name, value),
        Some(Property::String(value)) => log.text(name, &value),
        None => log.absent(name),
    }
    Ok(())
}

fn log_properties(log: &mut Log, checkpoint: &Checkpoint) -> Result<()> {
    ["epoch", "best loss", "comment", "changes type"]
        .into_iter()
        .try_for_each(|name| log_property(log, checkpoint, name))
}

#[test]
fn properties() {
    let case = Case::regression("regression");
    let mut log = Log::default();
    let mut trainer = Trainer::open(&case).unwrap();
    let mut checkpoint = trainer.session.checkpoint_mut();
    checkpoint.set_property("epoch", 1i64).unwrap();
    checkpoint
        .set_property("epoch", -9_007_199_254_740_993i64)
        .unwrap();
    checkpoint.set_property("best loss", 0.1f32).unwrap();
    checkpoint
        .set_property("comment", "größer als — naïve\n")
        .unwrap();
    checkpoint.set_property("changes type", 1i64).unwrap();
    checkpoint.set_property("changes type", "").unwrap();
    log_properties(&mut log, &checkpoint).unwrap();
    assert_eq!(checkpoint.property("absent").unwrap(), None);
    log.absent("no such property");
    let path = case.scratch_file("properties-rust");
    trainer
        .session
        .save_checkpoint(&path, OptimizerState::Exclude)
        .unwrap();
    drop(trainer);
    let trainer = Trainer::with_checkpoint(&case, Checkpoint::load(path).unwrap()).unwrap();
    log_properties(&mut log, trainer.session.checkpoint()).unwrap();
    assert_same(&Scenario::Properties.run(&case), &log);
}

#[test]
fn parameters() {
    let case = Case::regression("regression");
    let first = case.parameters[0];
    let mut log = Log::default();
    let checkpoint = Checkpoint::load(case.artifact("checkpoint")).unwrap();
    for name in &case.parameters {
        let (element_type, shape) = checkpoint.parameter_type_and_shape(name).unwrap();
        log.int(name, element_type.as_raw().into());
        log.ints(
            name,
            &shape
                .iter()
                .map(|&dimension| dimension as i64)
                .collect::<Vec<_>>(),
        );
    }
    log.refused(
        "get without session",
        checkpoint.parameter(first),
        &["session"],
    );
    let mut trainer = Trainer::with_checkpoint(&case, checkpoint).unwrap();

    trainer.log_parameters(&mut log, "as loaded").unwrap();
    let mut value = trainer.session.checkpoint().parameter(first).unwrap();
    for number in value.data_mut() {
        *number = *number * 0.5 + 0.25;
    }
    trainer.log_parameters(&mut log, "copy changed").unwrap();
    trainer
        .session
        .checkpoint_mut()
        .update_parameter(first, &value)
        .unwrap();
    trainer.log_parameters(&mut log, "updated").unwrap();
    trainer.eval_step(0, &mut log, "eval").unwrap();

    let mut checkpoint = trainer.session.checkpoint_mut();
    log.refused(
        "update unknown",
        checkpoint.update_parameter("nobody", &value),
        &["nobody", first],
    );
    let wrong = Tensor::from_slice([3], &[1.0f32, 2.0, 3.0]).unwrap();
    log.refused(
        "update with wrong shape",
        checkpoint.update_parameter(first, &wrong),
        &[first, "[8, 4]", "[3]"],
    );
    log.refused(
        "get unknown",
        checkpoint.parameter("nobody"),
        &["nobody", first],
    );
    log.answer(
        "type of unknown",
        checkpoint.parameter_type_and_shape("nobody"),
    );
    assert_same(&Scenario::Parameters.run(&case), &log);
}

#[test]
fn parameters_buffer() {
    let case = Case::regression("regression");
    let mut log = Log::default();
    let mut trainer = Trainer::open(&case).unwrap();
    trainer
        .session
        .set_learning_rate(case.learning_rate)
        .unwrap();
    trainer.full_step(0, &mut log, "train").unwrap();
    for set in [ParameterSet::All, ParameterSet::Trainable] {
        let size = trainer.session.parameter_count(set).unwrap();
        log.int("size", size as i64);
        let mut buffer = vec![0.0f32; size];
        trainer
            .session
            .copy_parameters_to_buffer(&mut buffer, set)
            .unwrap();
        log.floats("to buffer", &buffer);
        for number in &mut buffer {
            *number *= 0.75;
        }
        trainer
            .session
            .copy_buffer_to_parameters(&buffer, set)
            .unwrap();
        trainer.log_parameters(&mut log, "from buffer").unwrap();
        trainer.eval_step(0, &mut log, "eval").unwrap();

        buffer.push(0.0);
        let words = [size.to_string(), (size + 1).to_string()];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        log.refused(
            "buffer too long",
            trainer.session.copy_buffer_to_parameters(&buffer, set),
            &words,
        );
        let copied = trainer.session.copy_parameters_to_buffer(&mut buffer, set);
        log.refused("buffer too long for parameters", copied, &words);
    }
    trainer.full_step(1, &mut log, "train").unwrap();
    trainer.log_parameters(&mut log, "trained on").unwrap();
    assert_same(&Scenario::ParametersBuffer.run(&case), &log);
}

#[test]
fn checkpoint_from_bytes() {
    let case = Case::regression("regression");
    let mut log = Log::default();
    let bytes = std::fs::read(case.artifact("checkpoint")).unwrap();
    let checkpoint = Checkpoint::from_bytes(&bytes).unwrap();
    drop(bytes);
    let mut trainer = Trainer::with_checkpoint(&case, checkpoint).unwrap();
    trainer
        .session
        .set_learning_rate(case.learning_rate)
        .unwrap();
    for step in 0..case.steps {
        trainer.full_step(step, &mut log, "train").unwrap();
    }
    trainer.log_parameters(&mut log, "parameter").unwrap();
    assert_same(&Scenario::CheckpointFromBytes.run(&case), &log);
}

#[test]
fn nominal_checkpoint() {
    let case = Case::regression("regression");
    let mut log = Log::default();
    let complete = Trainer::open(&case).unwrap();
    let nominal = Checkpoint::load(case.artifact("nominal_checkpoint")).unwrap();
    let mut trainer = Trainer::with_checkpoint(&case, nominal).unwrap();
    let train = trainer.train_step(0, &mut log, "nominal train");
    log.answer("nominal train", train);
    let eval = trainer.eval_step(0, &mut log, "nominal eval");
    log.answer("nominal eval", eval);
    let checkpoint = trainer.session.checkpoint();
    log.refused(
        "nominal get",
        checkpoint.parameter(case.parameters[0]),
        &["nominal"],
    );
    log.answer(
        "nominal shape",
        checkpoint.parameter_type_and_shape(case.parameters[0]),
    );
    let size = trainer.session.parameter_count(ParameterSet::All).unwrap();
    log.int("size", size as i64);
    let mut buffer = vec![0.0f32; size];
    let copied = trainer
        .session
        .copy_parameters_to_buffer(&mut buffer, ParameterSet::All);
    log.answer("nominal to buffer", copied);
    let copied = trainer
        .session
        .copy_buffer_to_parameters(&buffer, ParameterSet::Trainable);
    log.answer("nominal trainable only", copied);
    complete
        .session
        .copy_parameters_to_buffer(&mut buffer, ParameterSet::All)
        .unwrap();
    trainer
        .session
        .copy_buffer_to_parameters(&buffer, ParameterSet::All)
        .unwrap();
    trainer
        .session
        .set_learning_rate(case.learning_rate)
        .unwrap();
    for step in 0..case.steps {
        trainer.full_step(step, &mut log, "train").unwrap();
    }
    trainer.log_parameters(&mut log, "parameter").unwrap();
    assert_same(&Scenario::NominalCheckpoint.run(&case), &log);
}
