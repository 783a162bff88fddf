//! Model files that are cut: refused with the file's name, unless what is cut off means nothing.

mod support;

use std::fs;

use ort_training::{Result, Tensor, TrainingSession};
use support::{checkpoint, env, fixture, one_thread, refused};

fn varint(bytes: &[u8], at: &mut usize) -> usize {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Where a model may be cut without harm: between its `opset_import`s, which come last. ONNX Runtime does without those
/// of domains that no node is of, or that are its own.
fn harmless(model: &[u8]) -> Vec<usize> {
    let (mut at, mut ends) = (0, Vec::new());
    while at < model.len() {
        let key = varint(model, &mut at);
        match key & 7 {
            0 => drop(varint(model, &mut at)),
            2 => at += varint(model, &mut at),
            wire => panic!("a wire type {wire} in a model"),
        }
        if key >> 3 == 8 {
            ends.push(at);
        }
    }
    ends
}

/// The loss after two steps.
fn train(session: Result<TrainingSession>) -> Result<f32> {
    let mut session = session?;
    let x = Tensor::filled([1, 4], 0.5f32)?;
    let target = Tensor::filled([1, 1], 1f32)?;
    session.set_learning_rate(0.1)?;
    session.train_step(&[&x, &target])?;
    session.optimizer_step()?;
    session.lazy_reset_grad()?;
    session.train_step(&[&x, &target])?.loss()
}

#[test]
fn truncated_models_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for file in [
        "training_model.onnx",
        "eval_model.onnx",
        "optimizer_model.onnx",
    ] {
        let whole = fs::read(fixture("linear1").join(file)).unwrap();
        let cut = folder.path().join(file);
        let path = |name: &str| {
            let place = fixture("linear1").join(name);
            if name == file { cut.clone() } else { place }
        };
        let build = |len: usize| {
            fs::write(&cut, &whole[..len]).unwrap();
            TrainingSession::builder(&env())
                .options(one_thread())
                .checkpoint(checkpoint("linear1"))
                .training_model(path("training_model.onnx"))
                .eval_model(path("eval_model.onnx"))
                .optimizer_model(path("optimizer_model.onnx"))
                .build()
        };
        let loss = train(build(whole.len())).unwrap();
        let harmless = harmless(&whole);
        for len in 0..whole.len() {
            if harmless.contains(&len) {
                if let Ok(other) = train(build(len)) {
                    assert_eq!(other.to_bits(), loss.to_bits(), "{file} cut to {len}");
                }
            } else {
                refused(build(len), &[file]);
            }
        }
    }
}

#[test]
fn truncated_model_bytes_are_refused() {
    let whole = fs::read(fixture("linear1").join("training_model.onnx")).unwrap();
    let build = |bytes: &[u8]| {
        TrainingSession::builder(&env())
            .options(one_thread())
            .checkpoint(checkpoint("linear1"))
            .training_model_bytes(bytes)
            .build()
    };
    let harmless = harmless(&whole);
    for len in (0..whole.len()).filter(|len| !harmless.contains(len)) {
        refused(build(&whole[..len]), &["training model"]);
    }
    build(&whole).unwrap();
}
