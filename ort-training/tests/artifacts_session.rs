//! From a plain ONNX model to a trained one, with this crate alone and no file on the way in.
#![cfg(feature = "artifacts")]

mod artifacts_support;

use artifacts_support::model::Model;
use artifacts_support::{Rng, require_artifacts};
use ort_training::artifacts::{ArtifactsBuilder, Loss, Optimizer};
use ort_training::{Environment, InferenceSession, OptimizerState, Tensor, TrainingSession};

const FEATURES: usize = 4;

fn classifier() -> Vec<u8> {
    let mut rng = Rng(3);
    Model::new(17)
        .input("x", &[-1, FEATURES as i64])
        .weight("fc1.weight", &[4, 16], &rng.values(64, -0.5, 0.5))
        .weight("fc1.bias", &[16], &[0.0; 16])
        .node("Gemm", &["x", "fc1.weight", "fc1.bias"], &["h"])
        .node("Elu", &["h"], &["a"])
        .weight("fc2.weight", &[16, 3], &rng.values(48, -0.5, 0.5))
        .weight("fc2.bias", &[3], &[0.0; 3])
        .node("Gemm", &["a", "fc2.weight", "fc2.bias"], &["logits"])
        .output("logits", &[-1, 3])
        .bytes()
}

/// Points of three clouds.
fn batch(rng: &mut Rng, count: usize) -> (Vec<f32>, Vec<i64>) {
    let (mut x, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let label = (rng.next() % 3) as i64;
        labels.push(label);
        x.extend((0..FEATURES).map(|i| {
            let centre = if i as i64 == label { 1.0 } else { -0.3 };
            (centre + 0.5 * rng.unit()) as f32
        }));
    }
    (x, labels)
}

#[test]
fn trains_without_a_file() {
    require_artifacts();
    let environment = Environment::builder("artifacts")
        .build()
        .expect("an environment");
    let artifacts = ArtifactsBuilder::from_bytes(classifier())
        .loss(Loss::cross_entropy())
        .optimizer(Optimizer::adamw())
        .extra_outputs(["logits"])
        .build()
        .expect("artifacts");
    let folder = tempfile::tempdir().expect("a folder");
    artifacts
        .write_to(folder.path().join("artifacts"))
        .expect("written");
    let from_files = TrainingSession::builder(&environment)
        .artifacts(folder.path().join("artifacts"))
        .expect("the four files")
        .build()
        .expect("a session from files");
    drop(from_files);

    let mut session = artifacts
        .into_bytes()
        .expect("bytes")
        .session(&environment)
        .expect("a checkpoint")
        .build()
        .expect("a session");
    session.set_learning_rate(0.02).expect("a learning rate");
    let mut rng = Rng(11);
    let mut losses: Vec<f32> = Vec::new();
    for _ in 0..80 {
        let (x, labels) = batch(&mut rng, 32);
        let x = Tensor::from_vec([32, FEATURES], x).expect("a tensor");
        let labels = Tensor::from_vec([32], labels).expect("a tensor");
        losses.push(
            session
                .train_step(&[&x, &labels])
                .expect("a step")
                .loss()
                .expect("a loss"),
        );
        session.optimizer_step().expect("a step");
        session.lazy_reset_grad().expect("reset");
    }
    assert!(
        losses[79] < 0.2 * losses[0],
        "{} to {}",
        losses[0],
        losses[79]
    );

    session
        .save_checkpoint(folder.path().join("trained"), OptimizerState::Include)
        .expect("saved");
    let exported = folder.path().join("trained.onnx");
    session
        .export_for_inference(&exported, &["logits"])
        .expect("exported");
    let inference = InferenceSession::builder(&environment)
        .model(&exported)
        .build()
        .expect("an inference session");
    let (x, labels) = batch(&mut rng, 200);
    let x = Tensor::from_vec([200, FEATURES], x).expect("a tensor");
    let outputs = inference.run(&[&x]).expect("a run");
    let logits = outputs.get("logits").expect("logits");
    let right = logits
        .data::<f32>()
        .expect("floats")
        .chunks(3)
        .zip(&labels)
        .filter(|(row, label)| {
            let best = (0..3)
                .max_by(|&a, &b| row[a].total_cmp(&row[b]))
                .expect("three");
            best as i64 == **label
        })
        .count();
    assert!(right > 190, "{right} of 200 right");
}
