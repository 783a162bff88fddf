//! Binary cross-entropy on logits, in a form that does not overflow.

use super::super::error::{ArtifactsError, Result};
use super::super::onnx::{initializer_f32, scalar_f32};
use super::{LossGraph, Reduction};

/// Settings of binary cross-entropy on logits: `-(p·t·log σ(x) + (1-t)·log(1-σ(x)))` per element.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BceWithLogits {
    /// p: the weight of positive examples; one value, or one for each element of the last dimension.
    pub pos_weight: Option<Vec<f32>>,
    /// How the elements become one number.
    pub reduction: Reduction,
}

const TARGET: &str = "target";
/// Where the Python generator's numbering stands when it reduces this loss: its form has more nodes.
const REDUCTION_NUMBER: u64 = 23;

pub(super) fn add(
    edit: &mut LossGraph<'_>,
    settings: &BceWithLogits,
    input: &str,
) -> Result<String> {
    let target = edit.target_like(TARGET, input)?;
    let x = edit.as_float(input)?;

    // softplus(±x) = (|x| ± x)/2 + log(1 + exp(-|x|)): no exponential of a positive number, and its derivative as ONNX
    // Runtime differentiates it is right at 0, too, where that of |x| is taken as 0.
    let absolute = edit.op("Abs", &[&x]);
    let negative = edit.op("Neg", &[&absolute]);
    let exponential = edit.op("Exp", &[&negative]);
    let (one, half) = (
        edit.names.derived("onnx::bceloss.one"),
        edit.names.derived("onnx::bceloss.half"),
    );
    let one = edit.constant(scalar_f32(&one, 1.0));
    let half = edit.constant(scalar_f32(&half, 0.5));
    let plus_one = edit.op("Add", &[&exponential, &one]);
    let tail = edit.op("Log", &[&plus_one]);

    let per_element = match &settings.pos_weight {
        None => {
            // softplus(x) - x·t
            let sum = edit.op("Add", &[&absolute, &x]);
            let positive = edit.op("Mul", &[&sum, &half]);
            let softplus = edit.op("Add", &[&positive, &tail]);
            let product = edit.op("Mul", &[&x, &target]);
            edit.op("Sub", &[&softplus, &product])
        }
        Some(weights) => {
            // (1-t)·x + (1 + (p-1)·t)·softplus(-x)
            let weights = pos_weight(edit, weights, input)?;
            let difference = edit.op("Sub", &[&absolute, &x]);
            let positive = edit.op("Mul", &[&difference, &half]);
            let softplus = edit.op("Add", &[&positive, &tail]);
            let rest = edit.op("Sub", &[&one, &target]);
            let first = edit.op("Mul", &[&rest, &x]);
            let scaled = edit.op("Mul", &[&weights, &target]);
            let factor = edit.op("Add", &[&scaled, &one]);
            let second = edit.op("Mul", &[&factor, &softplus]);
            edit.op("Add", &[&first, &second])
        }
    };
    edit.names.continue_at(REDUCTION_NUMBER);
    Ok(edit.reduce(settings.reduction, &per_element))
}

/// The constant p - 1.
fn pos_weight(edit: &mut LossGraph<'_>, weights: &[f32], input: &str) -> Result<String> {
    if let Some(bad) = weights.iter().find(|w| !w.is_finite() || **w < 0.0) {
        return Err(ArtifactsError::Loss(format!(
            "pos_weight must be finite and not negative, not {bad}"
        )));
    }
    let last = edit
        .types
        .dims(input)
        .and_then(|d| d.last())
        .and_then(|d| d.known());
    let fits =
        weights.len() == 1 || last.is_none_or(|last| i64::try_from(weights.len()) == Ok(last));
    if weights.is_empty() || !fits {
        return Err(ArtifactsError::Loss(format!(
            "pos_weight has {} values; expected 1, or the last dimension of '{input}' ({})",
            weights.len(),
            last.map_or("unknown".to_owned(), |n| n.to_string())
        )));
    }
    let less_one: Vec<f32> = weights.iter().map(|w| w - 1.0).collect();
    let name = edit.names.derived("onnx::bceloss.pos_weight");
    Ok(edit.constant(initializer_f32(&name, &[weights.len() as i64], &less_one)))
}
