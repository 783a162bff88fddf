//! What the artifact tests share: a builder of small ONNX models, a bare session over the C API, and numerical
//! differentiation.

#![allow(dead_code)] // Each test binary uses its own part.

pub mod check;
pub mod model;
pub mod session;
pub mod training;

use ort_training::artifacts::is_available;

/// A small generator of repeatable numbers (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn values(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        (0..count)
            .map(|_| low + (high - low) * (self.unit() + 1.0) / 2.0)
            .collect()
    }
}

/// Ends the test with a failure that says what to do when the library cannot make artifacts.
#[track_caller]
pub fn require_artifacts() {
    assert!(
        is_available(),
        "the ONNX Runtime in use was built without the artifact maker; these tests need one that has it"
    );
}
