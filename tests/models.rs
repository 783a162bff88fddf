//! Models in C and in Rust: what goes in and out, sessions from bytes, export for inference.

use ort_training::{Checkpoint, Environment, IoInfo, TrainingSession};
use ort_training_parity::{
    Case, Log, Scenario, Trainer, assert_same, log_inference, session_options,
};

fn log_names(log: &mut Log, label: &str, values: &[IoInfo]) {
    log.int(label, values.len() as i64);
    for value in values {
        log.text(label, value.name());
    }
}

#[test]
fn model_inputs_and_outputs() {
    for case in [
        Case::digits("digits"),
        Case::regression("regression"),
        Case::linear1(),
    ] {
        let mut log = Log::default();
        let trainer = Trainer::open(&case).unwrap();
        let session = &trainer.session;
        log_names(&mut log, "train input", session.train_inputs());
        log_names(&mut log, "train output", session.train_outputs());
        log_names(&mut log, "eval input", session.eval_inputs().unwrap());
        log_names(&mut log, "eval output", session.eval_outputs().unwrap());
        assert_same(&Scenario::ModelIo.run(&case), &log);
    }
}

#[test]
fn export_and_inference() {
    for case in [Case::digits("digits"), Case::regression("regression_sgd")] {
        let mut log = Log::default();
        let path = case.scratch_file("exported-rust.onnx");
        let mut trainer = Trainer::open(&case).unwrap();
        trainer
            .session
            .set_learning_rate(case.learning_rate)
            .unwrap();
        for step in 0..case.steps {
            trainer.full_step(step, &mut log, "train").unwrap();
        }
        trainer.eval_step(0, &mut log, "eval").unwrap();
        trainer
            .session
            .export_for_inference(&path, &[case.inference_output])
            .unwrap();
        trainer.full_step(case.steps, &mut log, "train on").unwrap();
        log_inference(&case, &path, &mut log).unwrap();
        assert_same(&Scenario::Export.run(&case), &log);
        // The same model, as each side wrote it.
        let exported = |file: &str| std::fs::read(case.scratch_file(file)).unwrap();
        assert_eq!(
            exported("exported.onnx"),
            exported("exported-rust.onnx"),
            "the exported models' bytes"
        );
    }
}

#[test]
fn session_from_bytes() {
    for case in [Case::digits("digits"), Case::regression("regression")] {
        let mut log = Log::default();
        let read = |file: &str| std::fs::read(case.artifact(file)).unwrap();
        let env = Environment::shared().unwrap();
        let session = TrainingSession::builder(&env)
            .options(session_options().unwrap())
            .checkpoint(Checkpoint::load(case.artifact("checkpoint")).unwrap())
            .training_model_bytes(read("training_model.onnx"))
            .eval_model_bytes(read("eval_model.onnx"))
            .optimizer_model_bytes(read("optimizer_model.onnx"))
            .build()
            .unwrap();
        let mut trainer = Trainer {
            case: &case,
            session,
        };
        trainer
            .session
            .set_learning_rate(case.learning_rate)
            .unwrap();
        for step in 0..case.steps {
            trainer.full_step(step, &mut log, "train").unwrap();
        }
        trainer.eval_step(0, &mut log, "eval").unwrap();
        trainer.log_parameters(&mut log, "parameter").unwrap();
        let path = case.scratch_file("exported-from-bytes-rust.onnx");
        trainer
            .session
            .export_for_inference(&path, &[case.inference_output])
            .unwrap();
        log_inference(&case, &path, &mut log).unwrap();
        assert_same(&Scenario::SessionFromBytes.run(&case), &log);
    }
}
