//! Mutated forward models for the artifact maker; what it makes of them trains.

use ort_training::artifacts::{ArtifactsBuilder, Loss, Optimizer};

use crate::artifacts_support::require_artifacts;
use crate::random::Random;
use crate::runner::{Folder, Stages};
use crate::training::Artifacts;
use crate::{inference, model};

pub fn run(index: u64, folder: &Folder) -> Stages {
    require_artifacts();
    let mut random = Random::new("forward_models", index);
    let bytes = model::mutate(&inference::base(&mut random), &mut random);
    folder.keep("forward.onnx", &bytes);
    let (loss, optimizer) = match random.below(3) {
        0 => (Loss::mse(), Optimizer::Sgd),
        1 => (Loss::l1(), Optimizer::adamw()),
        _ => (Loss::cross_entropy(), Optimizer::adamw()),
    };
    let made = ArtifactsBuilder::from_bytes(bytes)
        .loss(loss)
        .optimizer(optimizer)
        .build()
        .and_then(|artifacts| artifacts.into_bytes());
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return vec!["refused"];
        }
    };
    let artifacts = Artifacts {
        models: [
            made.training_model,
            made.eval_model,
            made.optimizer_model.expect("one was asked for"),
        ],
        checkpoint: made.checkpoint,
    };
    let mut stages = vec!["made"];
    stages.extend(artifacts.train(&mut random, folder.path()));
    stages
}
