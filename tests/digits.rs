//! The run of the digits example, in C and in Rust on the same batches: losses and final parameters bit for bit.

use ort_training::{Environment, ParameterSet};
use ort_training_parity::data::{Digits, PIXELS};
use ort_training_parity::model::{Model, Plan};
use ort_training_parity::{Case, Column, Log, Scenario, assert_same};

/// The bar that the example's model has to reach on images that it never saw.
const ACCURACY: f32 = 0.96;

#[test]
fn digits_run() {
    let plan = Plan { epochs: 30, batch_size: 32, learning_rate: 0.01, seed: 1 };
    let (training, held_out) = Digits::load().split(plan.seed);
    let mut case = Case { learning_rate: plan.learning_rate, ..Case::digits("digits") };
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
        batch_sizes.push(batch.len());
    };
    model.train(&plan, &training, (0, plan.epochs), record, |_, _| Ok(())).unwrap();
    for name in &case.parameters {
        let value = model.session.checkpoint().parameter(name).unwrap();
        log.floats(&format!("parameter {name}"), value.data());
    }

    assert_ne!(batch_sizes.first(), batch_sizes.last(), "the last batch of an epoch is a smaller one");
    case.rows = seen.len();
    case.columns = vec![Column::Floats { width: PIXELS, data: seen.images }, Column::Labels(seen.labels)];
    let steps_per_epoch = (batch_sizes.len() / plan.epochs) as i64;
    let c = Scenario::Digits {
        parameters: &parameters,
        batch_sizes: &batch_sizes,
        warmup: steps_per_epoch,
        total: batch_sizes.len() as i64,
    };
    assert_same(&c.run(&case), &log);

    let (evaluation, _) = model.evaluate(&held_out).unwrap();
    assert!(evaluation.accuracy >= ACCURACY, "{evaluation:?}, wanted an accuracy of {ACCURACY}");
}
