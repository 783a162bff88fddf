//! Losses of differences, and the caller's own gradient.

use super::super::error::Result;
use super::super::onnx::{data_type, initializer_f32};
use super::{LossGraph, LossOutput, Reduction};

const TARGET: &str = "target";

pub(super) fn squared(
    edit: &mut LossGraph<'_>,
    reduction: Reduction,
    input: &str,
) -> Result<String> {
    let target = edit.target_like(TARGET, input)?;
    let value = edit.as_float(input)?;
    let difference = edit.op("Sub", &[&value, &target]);
    let exponent = edit.names.fresh("pow_exponent");
    let exponent = edit.constant(initializer_f32(&exponent, &[1], &[2.0]));
    let square = edit.op("Pow", &[&difference, &exponent]);
    Ok(edit.reduce(reduction, &square))
}

pub(super) fn absolute(
    edit: &mut LossGraph<'_>,
    reduction: Reduction,
    input: &str,
) -> Result<String> {
    let target = edit.target_like(TARGET, input)?;
    let value = edit.as_float(input)?;
    let difference = edit.op("Sub", &[&value, &target]);
    let absolute = edit.op("Abs", &[&difference]);
    Ok(edit.reduce(reduction, &absolute))
}

/// Σ y·g over the outputs: its gradient with respect to y is g, exactly.
pub(super) fn output_gradient(edit: &mut LossGraph<'_>, inputs: &[String]) -> Result<LossOutput> {
    let mut total: Option<String> = None;
    for input in inputs {
        let gradient = format!("{input}.gradient");
        let dims = edit.types.dims(input).map(<[_]>::to_vec);
        edit.target(&gradient, data_type::FLOAT, dims)?;
        let value = edit.as_float(input)?;
        let product = edit.op("Mul", &[&value, &gradient]);
        let sum = edit.reduce(Reduction::Sum, &product);
        total = Some(match total {
            None => sum,
            Some(before) => edit.op("Add", &[&before, &sum]),
        });
    }
    Ok(LossOutput {
        loss: total.expect("a model has outputs"),
        in_evaluation: false,
    })
}
