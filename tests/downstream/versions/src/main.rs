//! Trains, saves, resumes and exports, and prints what ONNX Runtime says that it is: `version api first last resumed inferred`.

use std::path::PathBuf;

use ort_training::{
    Checkpoint, Environment, InferenceSession, OptimizerState, Tensor, TrainingSession,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let usage = "usage: versions <artifacts folder> <folder to write to>";
    let (artifacts, folder) = (
        arguments.next().ok_or(usage)?,
        arguments.next().ok_or(usage)?,
    );
    let env = Environment::builder("versions").build()?;
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
    let (saved, exported) = (folder.join("saved.ckpt"), folder.join("trained.onnx"));
    session.save_checkpoint(&saved, OptimizerState::Include)?;
    session.export_for_inference(&exported, &["y"])?;
    let next = session.eval_step(&[&x, &target])?.loss()?;
    drop(session);

    let resumed = TrainingSession::builder(&env)
        .artifacts(&artifacts)?
        .checkpoint(Checkpoint::load(&saved)?)
        .build()?;
    let again = resumed.eval_step(&[&x, &target])?.loss()?;
    let inference = InferenceSession::builder(&env).model(&exported).build()?;
    let outputs = inference.run(&[&x])?;
    let y = outputs[0].data::<f32>()?[0];
    println!(
        "{} {} {} {} {} {}",
        ort_training::onnx_runtime_version()?,
        ort_training::api_version()?,
        losses[0],
        losses[19],
        (next - again).abs(),
        ((y - 0.5).powi(2) - next).abs(),
    );
    Ok(())
}
