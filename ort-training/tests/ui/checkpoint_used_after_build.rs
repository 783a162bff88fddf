// A checkpoint that a session has taken belongs to it.
use ort_training::{Checkpoint, Environment, OptimizerState, TrainingSession};

fn main() {
    let env = Environment::shared().unwrap();
    let checkpoint = Checkpoint::load("checkpoint").unwrap();
    let _session = TrainingSession::builder(&env).checkpoint(checkpoint).build();
    checkpoint.save("again", OptimizerState::Exclude).unwrap();
}
