//! Trains with ort-training, exports, and infers the exported model with `ort` and with ort-training, in one process;
//! then trains the same artifacts with `ort`'s Trainer. Prints the two predictions and the two losses of step 20.

use std::path::Path;

use ort::memory::Allocator;
use ort::session::Session;
use ort::training::{Checkpoint, Trainer};
use ort_training::{Environment, InferenceSession, Tensor, TrainingSession};

const X: [f32; 4] = [0.1, -0.2, 0.3, -0.4];
const TARGET: [f32; 1] = [0.5];
const STEPS: usize = 20;
const LEARNING_RATE: f32 = 0.05;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The loss of the last step, and the model as it is then.
fn with_ort_training(artifacts: &Path, model: &Path) -> Result<f32> {
    let env = Environment::builder("with-ort").build()?;
    let mut session = TrainingSession::builder(&env)
        .artifacts(artifacts)?
        .build()?;
    session.set_learning_rate(LEARNING_RATE)?;
    let x = Tensor::from_slice([1, 4], &X)?;
    let target = Tensor::from_slice([1, 1], &TARGET)?;
    let mut loss = f32::NAN;
    for _ in 0..STEPS {
        loss = session.train_step(&[&x, &target])?.loss()?;
        session.optimizer_step()?;
        session.lazy_reset_grad()?;
    }
    session.export_for_inference(model, &["y"])?;
    Ok(loss)
}

/// The same in `ort`: `Trainer` for `TrainingSession`, inputs and labels apart.
fn with_ort(artifacts: &Path) -> Result<f32> {
    let trainer = Trainer::new_from_artifacts(
        Session::builder()?,
        Allocator::default(),
        artifacts,
        None::<Checkpoint>,
    )?;
    let mut optimizer = trainer.optimizer();
    optimizer.set_lr(LEARNING_RATE)?;
    let x = ort::value::Tensor::from_array(([1usize, 4], X.to_vec()))?;
    let target = ort::value::Tensor::from_array(([1usize, 1], TARGET.to_vec()))?;
    let mut loss = f32::NAN;
    for _ in 0..STEPS {
        let outputs = trainer.step(ort::inputs![&x], ort::inputs![&target])?;
        loss = outputs[0].try_extract_tensor::<f32>()?.1[0];
        drop(outputs);
        optimizer.step()?;
        optimizer.reset_grad()?;
    }
    Ok(loss)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(artifacts), Some(model)) = (arguments.next(), arguments.next()) else {
        return Err("usage: with-ort <artifacts folder> <model to write>".into());
    };
    let (artifacts, model) = (Path::new(&artifacts), Path::new(&model));
    let loss = with_ort_training(artifacts, model)?;

    let mut session = Session::builder()?.commit_from_file(model)?;
    let x = ort::value::Tensor::from_array(([1usize, 4], X.to_vec()))?;
    let outputs = session.run(ort::inputs![x])?;
    let inferred = outputs[0].try_extract_tensor::<f32>()?.1[0];

    let env = Environment::shared()?;
    let ours = InferenceSession::builder(&env).model(model).build()?;
    let outputs = ours.run(&[&Tensor::from_slice([1, 4], &X)?])?;
    let expected = outputs[0].scalar::<f32>()?;

    println!("{inferred} {expected} {} {loss}", with_ort(artifacts)?);
    Ok(())
}
