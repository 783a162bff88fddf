//! The digits example: its run in C and in Rust on the same batches, and the whole of it.

use std::fs;
use std::path::Path;

use ort_training::{Environment, ParameterSet};
use ort_training_parity::data::{Digits, PIXELS};
use ort_training_parity::model::{Model, Plan};
use ort_training_parity::{Case, Column, Log, Scenario, assert_same};

// A binary's modules have what only its main function uses.
#[allow(dead_code)]
#[path = "../ort-training/examples/digits.rs"]
mod example;

/// The bar that the example's model has to reach on images that it never saw.
const ACCURACY: f32 = 0.96;

/// Losses and final parameters are the same, bit for bit.
#[test]
fn digits_run() {
    let plan = Plan::default();
    let (training, held_out) = Digits::load().split(plan.seed);
    let mut case = Case {
        learning_rate: plan.learning_rate,
        ..Case::digits("digits")
    };
    let env = Environment::shared().unwrap();
    let mut log = Log::default();
    let mut model = Model::start(&env, &case.artifacts, plan.seed).unwrap();
    let parameters = model.session.parameters_buffer(ParameterSet::All).unwrap();

    let mut seen = Digits::default();
    let mut batch_sizes = Vec::new();
    let record = |_, batch: &Digits, loss| {
        log.float("loss", loss);
        seen.images.extend_from_slice(&batch.images);
        seen.labels.extend_from_slice(&batch.labels);
        batch_sizes.push(batch.count());
    };
    model
        .train(&plan, &training, (0, plan.epochs), record, |_, _| Ok(()))
        .unwrap();
    for name in &case.parameters {
        let value = model.session.checkpoint().parameter(name).unwrap();
        log.floats(&format!("parameter {name}"), value.data());
    }

    assert_ne!(
        batch_sizes.first(),
        batch_sizes.last(),
        "the last batch of an epoch is a smaller one"
    );
    case.rows = seen.count();
    case.columns = vec![
        Column::Floats {
            width: PIXELS,
            data: seen.images,
        },
        Column::Labels(seen.labels),
    ];
    let steps_per_epoch = (batch_sizes.len() / plan.epochs) as i64;
    let c = Scenario::Digits {
        parameters: &parameters,
        batch_sizes: &batch_sizes,
        warmup: steps_per_epoch,
        total: batch_sizes.len() as i64,
    };
    assert_same(&c.run(&case), &log);

    let (evaluation, _) = model.evaluate(&held_out).unwrap();
    assert!(
        evaluation.accuracy >= ACCURACY,
        "{evaluation:?}, wanted an accuracy of {ACCURACY}"
    );
}

fn example_options(plan: example::model::Plan, out: &Path) -> example::options::Options {
    // The default folder is relative to the package that the example belongs to.
    example::options::Options {
        plan,
        model: Case::digits("digits").artifacts.join("forward.onnx"),
        artifacts: None,
        out: out.to_owned(),
        cuda: None,
        memory: false,
    }
}

/// The example stops, resumes, compares with a run that never stopped, exports and infers; it fails by itself when one of
/// these doesn't hold.
#[test]
fn digits_example() {
    let out = tempfile::tempdir().unwrap();
    let options = example_options(example::model::Plan::default(), out.path());
    let evaluation = example::run(&options).unwrap();
    assert!(
        evaluation.accuracy >= ACCURACY,
        "{evaluation:?}, wanted an accuracy of {ACCURACY}"
    );
    let picture = fs::read(out.path().join("loss.png")).unwrap();
    assert!(
        picture.starts_with(b"\x89PNG") && picture.len() > 10_000,
        "{} bytes of picture",
        picture.len()
    );
    for file in ["half-way.ckpt", "digits.ckpt", "digits.onnx"] {
        assert!(out.path().join(file).is_file(), "{file} is missing");
    }
}

/// Artifacts that were made before do as well, and any batch size works, among them one that leaves a single image over and one larger than the data.
#[test]
fn digits_batch_sizes() {
    for batch_size in [1437, 5000] {
        let out = tempfile::tempdir().unwrap();
        let plan = example::model::Plan {
            epochs: 2,
            batch_size,
            ..Default::default()
        };
        let options = example::options::Options {
            artifacts: Some(Case::digits("digits").artifacts),
            ..example_options(plan, out.path())
        };
        example::run(&options).unwrap();
    }
}
