//! Refusals in C and in Rust. Where ONNX Runtime answers, code and message are the same; where the safe layer refuses
//! first, the C API refuses too (or does worse), and the safe layer's message says what is wrong.

use std::process::Command;

use ort_training::{
    AsValue, Checkpoint, Environment, OptimizerState, Result, Tensor, TrainingSession,
};
use ort_training_parity::{Case, Log, Payload, Scenario, Trainer, assert_same, session_options};

#[test]
fn checkpoint_refusals() {
    let case = Case::regression("regression");
    let mut log = Log::default();
    let missing = case.scratch_file("no-such-checkpoint");
    let model = case.artifact("training_model.onnx");
    log.refused(
        "missing file",
        Checkpoint::load(&missing),
        &["no-such-checkpoint"],
    );
    log.refused(
        "a model",
        Checkpoint::load(&model),
        &["training_model.onnx"],
    );
    log.refused(
        "a model's bytes",
        Checkpoint::from_bytes(&std::fs::read(&model).unwrap()),
        &["checkpoint"],
    );
    let mut trainer = Trainer::open(&case).unwrap();
    let no_folder = case.scratch_file("no-such-folder/checkpoint");
    let saved = trainer
        .session
        .save_checkpoint(&no_folder, OptimizerState::Include);
    log.refused("save into no folder", saved, &["no-such-folder"]);
    // A property of a type that isn't one can't be written in Rust, so only C can be refused here.
    log.text("unknown property type", "no such type in Rust");
    trainer.full_step(0, &mut log, "train").unwrap();

    let mut c = Scenario::CheckpointErrors.run(&case);
    for record in &mut c.records {
        if record.name == "unknown property type" {
            assert!(
                matches!(record.payload, Payload::Answer { code: 1.., .. }),
                "{}",
                record.payload
            );
            record.payload = Payload::Text("no such type in Rust".into());
        }
    }
    assert_same(&c, &log);
}

fn create(case: &Case, train: &str, eval: &str, optimizer: &str) -> Result<TrainingSession> {
    let path = |file: &str| match file {
        "missing" => case.scratch_file("no-such-model.onnx"),
        file => case.artifact(file),
    };
    TrainingSession::builder(&Environment::shared()?)
        .options(session_options()?)
        .checkpoint(Checkpoint::load(case.artifact("checkpoint"))?)
        .training_model(path(train))
        .eval_model(path(eval))
        .optimizer_model(path(optimizer))
        .build()
}

#[test]
fn session_refusals() {
    let case = Case::regression("regression");
    let mut log = Log::default();
    let (train, eval, optimizer) = (
        "training_model.onnx",
        "eval_model.onnx",
        "optimizer_model.onnx",
    );
    let missing = &["no-such-model.onnx"];
    log.refused(
        "missing training model",
        create(&case, "missing", eval, optimizer),
        missing,
    );
    log.refused(
        "missing eval model",
        create(&case, train, "missing", optimizer),
        missing,
    );
    log.refused(
        "missing optimizer model",
        create(&case, train, eval, "missing"),
        missing,
    );
    log.refused(
        "a checkpoint for a model",
        create(&case, "checkpoint", eval, optimizer),
        &["checkpoint"],
    );
    let eval_for_train = create(&case, eval, eval, optimizer);
    log.refused(
        "an eval model for a training model",
        eval_for_train,
        &["eval_model.onnx", "gradient"],
    );
    log.refused(
        "a training model for an optimizer",
        create(&case, train, eval, train),
        &["training_model.onnx"],
    );
    log.answer("all in order", create(&case, train, eval, optimizer));
    assert_same(&Scenario::SessionErrors.run(&case), &log);
}

#[test]
fn input_refusals() {
    let case = Case::digits("digits");
    let mut log = Log::default();
    let mut trainer = Trainer::open(&case).unwrap();
    let inputs = case.batch(0, 2).unwrap();
    let (images, labels) = (inputs[0].as_value(), inputs[1].as_value());
    let narrow = Tensor::filled([2, 3], 0.0f32).unwrap();
    let deep = Tensor::filled([2, 64, 1], 0.0f32).unwrap();
    let floats = Tensor::filled([2], 0.0f32).unwrap();
    let mut refuse = |name: &str, inputs: &[&dyn AsValue], words: &[&str]| {
        log.refused(name, trainer.session.train_step(inputs), words);
    };
    refuse(
        "wrong dimension",
        &[&narrow, labels],
        &["images", "64", "3"],
    );
    refuse(
        "wrong rank",
        &[&deep, labels],
        &["images", "rank 2", "rank 3"],
    );
    refuse(
        "wrong element type",
        &[images, &floats],
        &["labels", "int64", "float32"],
    );
    refuse("too few", &[images], &["labels", "2", "1"]);
    trainer.full_step(0, &mut log, "train").unwrap();
    assert_same(&Scenario::InputErrors.run(&case), &log);
}

#[test]
fn missing_models() {
    let case = Case::regression("train_only");
    let mut log = Log::default();
    let mut trainer = Trainer::open(&case).unwrap();
    trainer.train_step(0, &mut log, "train").unwrap();
    let eval = trainer.eval_step(0, &mut Log::default(), "eval");
    log.refused("eval", eval, &["evaluation model"]);
    let session = &mut trainer.session;
    log.refused("optimizer", session.optimizer_step(), &["optimizer model"]);
    log.refused(
        "set learning rate",
        session.set_learning_rate(0.5),
        &["optimizer model"],
    );
    log.refused(
        "get learning rate",
        session.learning_rate(),
        &["optimizer model"],
    );
    log.refused(
        "schedule",
        session.register_linear_lr_scheduler(1, 2, 0.5),
        &["optimizer model"],
    );
    log.refused(
        "scheduler step",
        session.scheduler_step(),
        &["optimizer model"],
    );
    let path = case.scratch_file("never.onnx");
    log.refused(
        "export",
        session.export_for_inference(&path, &[case.inference_output]),
        &["evaluation model"],
    );
    session.lazy_reset_grad().unwrap();
    trainer.train_step(1, &mut log, "train").unwrap();
    assert_same(&Scenario::MissingModels.run(&case), &log);
    assert!(!path.exists(), "a refused export left a file");
}

#[test]
fn export_refusals() {
    let case = Case::regression("regression");
    let mut log = Log::default();
    let mut trainer = Trainer::open(&case).unwrap();
    let path = case.scratch_file("never.onnx");
    let session = &mut trainer.session;
    log.refused(
        "no outputs",
        session.export_for_inference(&path, &[]),
        &["output"],
    );
    log.refused(
        "unknown output",
        session.export_for_inference(&path, &["nobody"]),
        &["nobody", "prediction"],
    );
    log.refused(
        "empty output",
        session.export_for_inference(&path, &[""]),
        &["output"],
    );
    let no_folder = case.scratch_file("no-such-folder/model.onnx");
    let exported = session.export_for_inference(&no_folder, &[case.inference_output]);
    log.refused("no folder", exported, &["no-such-folder"]);
    trainer.full_step(0, &mut log, "train").unwrap();
    assert_same(&Scenario::ExportErrors.run(&case), &log);
    assert!(!path.exists(), "a refused export left a file");
}

const WRONG_INDEX: &str = "PARITY_WRONG_INDEX";

/// ONNX Runtime 1.21 ends the process when it is asked for the name at an index that isn't there: its C functions let
/// an exception out of `noexcept` ones. The C side therefore runs in a process of its own. Rust has lists of names.
#[test]
fn wrong_index() {
    let case = Case::regression("regression");
    let trainer = Trainer::open(&case).unwrap();
    if let Ok(which) = std::env::var(WRONG_INDEX) {
        Scenario::WrongIndex(which.parse().unwrap()).run(&case);
        return;
    }
    let session = &trainer.session;
    let lists = [
        session.train_outputs(),
        session.eval_outputs().unwrap(),
        session.train_inputs(),
        session.eval_inputs().unwrap(),
    ];
    for (which, values) in lists.into_iter().enumerate() {
        assert!(values.get(99).is_none());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "wrong_index", "--nocapture"])
            .env(WRONG_INDEX, which.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(
            !child.status.success(),
            "the C API answered; it should be compared now: {said}"
        );
        assert!(
            said.contains("index out of range"),
            "{}: {said}",
            child.status
        );
    }
}
