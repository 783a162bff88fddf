// The checkpoints of two sessions must not be swapped: each would outlive what it trains in.
use ort_training::TrainingSession;

fn swap(first: &mut TrainingSession, second: &mut TrainingSession) {
    std::mem::swap(&mut *first.checkpoint_mut(), &mut *second.checkpoint_mut());
}

fn main() {
    let _ = swap;
}
