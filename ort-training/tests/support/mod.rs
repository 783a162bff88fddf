//! What the tests of the safe layer share.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};

use ort_training::{Checkpoint, Environment, Result, SessionOptions, Tensor, TrainingSession};

/// A file or folder of the fixtures.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

pub fn env() -> Environment {
    Environment::shared().unwrap()
}

pub fn one_thread() -> SessionOptions {
    SessionOptions::new()
        .unwrap()
        .with_intra_op_threads(1)
        .unwrap()
}

/// A session on the artifacts of this name.
pub fn session(artifacts: &str) -> TrainingSession {
    try_session(&fixture(artifacts)).unwrap()
}

pub fn try_session(artifacts: &Path) -> Result<TrainingSession> {
    TrainingSession::builder(&env())
        .options(one_thread())
        .artifacts(artifacts)?
        .build()
}

pub fn checkpoint(artifacts: &str) -> Checkpoint {
    Checkpoint::load(fixture(artifacts).join("checkpoint")).unwrap()
}

/// A batch for the digits model: numbers that look like pixels, and labels from 0 to 9.
pub fn digits_batch(rows: usize, seed: usize) -> (Tensor<f32>, Tensor<i64>) {
    let pixels = (0..rows * 64)
        .map(|at| ((at * 7919 + seed * 104_729) % 17) as f32)
        .collect();
    let labels = (0..rows).map(|row| ((row + seed) % 10) as i64).collect();
    (
        Tensor::from_vec([rows, 64], pixels).unwrap(),
        Tensor::from_vec([rows], labels).unwrap(),
    )
}

/// Asserts that this failed, and that the message holds every word.
#[track_caller]
pub fn refused<T>(result: Result<T>, words: &[&str]) -> String {
    let Err(error) = result else {
        panic!("it was accepted; expected an error with {words:?}")
    };
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    text
}
