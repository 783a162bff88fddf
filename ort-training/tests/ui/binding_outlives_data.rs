// A bound step must not outlive the elements that it borrows.
use ort_training::{StepBinding, TensorRef, TrainingSession};

fn bind(session: &TrainingSession) -> StepBinding<'static> {
    let elements = vec![0f32; 64];
    let images = TensorRef::new([1, 64], &elements).unwrap();
    session.bind_train_step(vec![images.into()]).unwrap()
}

fn main() {
    let _ = bind;
}
