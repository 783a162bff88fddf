// A step changes the checkpoint, so nobody may look at it meanwhile.
use ort_training::{Tensor, TrainingSession};

fn step(session: &mut TrainingSession, images: &Tensor<f32>) {
    let checkpoint = session.checkpoint();
    session.train_step(&[images]).unwrap();
    println!("{:?}", checkpoint.parameter("weight"));
}

fn main() {
    let _ = step;
}
