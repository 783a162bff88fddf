//! Makes artifacts of the model that is given, trains a few steps on them, and prints the first and the last loss.

use std::path::Path;

use ort_training::artifacts::{ArtifactsBuilder, Loss, Optimizer};
use ort_training::{Environment, Tensor, TrainingSession};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(model), Some(artifacts)) = (arguments.next(), arguments.next()) else {
        return Err("usage: single <model> <folder for the artifacts>".into());
    };
    ArtifactsBuilder::from_path(Path::new(&model))
        .loss(Loss::mse())
        .optimizer(Optimizer::adamw())
        .build()?
        .write_to(Path::new(&artifacts))?;
    let env = Environment::builder("single").build()?;
    let mut session = TrainingSession::builder(&env)
        .artifacts(&artifacts)?
        .build()?;
    session.set_learning_rate(0.05)?;
    let x = Tensor::from_slice([1, 4], &[0.1f32, -0.2, 0.3, -0.4])?;
    let target = Tensor::from_slice([1, 1], &[0.5f32])?;
    let mut losses = Vec::new();
    for _ in 0..20 {
        losses.push(session.train_step(&[&x, &target])?.loss()?);
        session.optimizer_step()?;
        session.lazy_reset_grad()?;
    }
    println!("{} {}", losses[0], losses[19]);
    Ok(())
}
