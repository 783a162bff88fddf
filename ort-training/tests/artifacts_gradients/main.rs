//! Gradients of single operators and small networks against central finite differences.
//!
//! The training model computes in single precision. The differences are those of the evaluation model, in double
//! where ONNX Runtime's CPU kernels have it (tolerance 2e-6 of the parameter's largest gradient), else in single with
//! a fourth-order formula (tolerance 5e-4).
#![cfg(feature = "artifacts")]

#[path = "../artifacts_support/mod.rs"]
mod artifacts_support;

mod elementwise;
mod layers;
mod shapes;
mod windows;

use artifacts_support::Rng;
use artifacts_support::check::{Arithmetic, Checked};
use artifacts_support::model::Model;
use artifacts_support::session::Tensor;

#[track_caller]
pub fn close(what: &str, checked: &Checked) {
    let tolerance = match checked.arithmetic {
        Arithmetic::Double => 2e-6,
        Arithmetic::Single => 5e-4,
    };
    println!(
        "{what}: {:.1e} ({:?}), forward {:.1e}",
        checked.worst, checked.arithmetic, checked.forward
    );
    assert!(
        checked.worst < tolerance,
        "{what}: gradients differ by {:.2e} of the largest ({:?} differences)",
        checked.worst,
        checked.arithmetic
    );
}

/// The training form computes what the evaluation form computes.
#[track_caller]
pub fn same_forward(what: &str, checked: &Checked) {
    assert!(
        checked.forward < 1e-6,
        "{what}: the rewritten form differs by {:.2e}",
        checked.forward
    );
}

/// A parameter `w` of shape `dims` through the nodes that `build` adds, to the output `y`.
pub fn through(
    dims: &[i64],
    output: &[i64],
    low: f64,
    high: f64,
    build: impl FnOnce(Model) -> Model,
) -> Model {
    let mut rng = Rng(dims.iter().sum::<i64>() as u64 + 11);
    let count = dims.iter().product::<i64>() as usize;
    // The input joins the parameter, so that the gradient is not that of a constant.
    let model = Model::new(17)
        .input("x", dims)
        .weight("w", dims, &rng.values(count, low, high))
        .node("Mul", &["x", "w"], &["h"]);
    build(model).output("y", output)
}

pub fn input_like(dims: &[i64], seed: u64) -> Tensor {
    let count = dims.iter().product::<i64>() as usize;
    Tensor::f32(dims, &Rng(seed).values(count, 0.5, 1.5))
}
