//! Trains a few steps on the artifacts in the folder that is given, and prints the first and the last loss.

use ort_training::{Environment, Tensor, TrainingSession};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let artifacts = std::env::args()
        .nth(1)
        .ok_or("usage: app <artifacts folder>")?;
    let env = Environment::builder("app").build()?;
    let mut session = TrainingSession::builder(&env)
        .artifacts(artifacts)?
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
