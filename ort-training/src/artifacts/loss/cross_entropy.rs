//! Cross-entropy of class scores, with ONNX's `SoftmaxCrossEntropyLoss`.

use super::super::error::{ArtifactsError, Result};
use super::super::onnx::{
    attribute, data_type, initializer_f32, initializer_i64, node, scalar_f32,
};
use super::{LossGraph, Reduction, show_shape};

/// Settings of cross-entropy.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Labels of this value count neither in the loss nor in the mean.
    pub ignore_index: Option<i64>,
    /// A weight for each class; the mean is weighted by them.
    pub class_weights: Option<Vec<f32>>,
    /// ε in \[0, 1): the target is 1-ε of the label plus ε spread evenly over the classes (as PyTorch has it).
    pub label_smoothing: f32,
    /// The axis of the scores that counts the classes: 1 for `[N, C]` and `[N, C, H, W]` (ONNX's convention), -1 for
    /// `[batch, sequence, vocabulary]`.
    pub class_axis: i64,
    /// How the examples become one number.
    pub reduction: Reduction,
}

impl Default for CrossEntropy {
    fn default() -> Self {
        Self {
            ignore_index: None,
            class_weights: None,
            label_smoothing: 0.0,
            class_axis: 1,
            reduction: Reduction::Mean,
        }
    }
}

const LABELS: &str = "labels";

pub(super) fn add(
    edit: &mut LossGraph<'_>,
    settings: &CrossEntropy,
    input: &str,
) -> Result<String> {
    let fail = |text: String| Err(ArtifactsError::Loss(text));
    if edit.opset < 12 {
        return fail(format!(
            "cross-entropy needs ONNX operator set 12; the model has {}",
            edit.opset
        ));
    }
    if !(0.0..1.0).contains(&settings.label_smoothing) {
        return fail(format!(
            "label smoothing must be in [0, 1), not {}",
            settings.label_smoothing
        ));
    }
    let Some(dims) = edit.types.dims(input).map(<[_]>::to_vec) else {
        return fail(format!(
            "cross-entropy needs the rank of '{input}', which the model does not say"
        ));
    };
    let rank = dims.len() as i64;
    if rank < 2 {
        return fail(format!(
            "cross-entropy is computed from scores [N, C, …]; '{input}' has shape {}",
            show_shape(&dims)
        ));
    }
    let axis = if settings.class_axis < 0 {
        settings.class_axis + rank
    } else {
        settings.class_axis
    };
    if !(1..rank).contains(&axis) {
        return fail(format!(
            "class axis {} does not exist in '{input}' of shape {} (and 0 is the batch)",
            settings.class_axis,
            show_shape(&dims)
        ));
    }
    let classes = dims[axis as usize].known();
    let weights = settings.class_weights.as_ref().map(Vec::len);
    if let Some((weights, classes)) = weights
        .zip(classes)
        .filter(|(weights, classes)| *weights as i64 != *classes)
    {
        return fail(format!(
            "{weights} class weights for the {classes} classes of '{input}'"
        ));
    }

    let mut label_dims = dims;
    label_dims.remove(axis as usize);
    // The Python generator names the weights whether there are any or not.
    let weight_name = edit.names.fresh("celoss.weight");
    let labels = edit.target_name.unwrap_or(LABELS).to_owned();
    edit.target(&labels, data_type::INT64, Some(label_dims))?;
    let mut scores = edit.as_float(input)?;
    if axis != 1 {
        let mut order: Vec<i64> = (0..rank).filter(|&d| d != axis).collect();
        order.insert(1, axis);
        scores = edit.op_with("Transpose", &[&scores], [attribute::ints("perm", &order)]);
    }
    let weights = settings.class_weights.as_ref().map(|weights| {
        edit.constant(initializer_f32(
            &weight_name,
            &[weights.len() as i64],
            weights,
        ))
    });

    let loss = edit.names.fresh("loss");
    // ONNX Runtime's gradient reads the second output.
    let log_prob = edit.names.fresh("log_prob");
    let name = edit.names.fresh("SoftmaxCrossEntropyLoss");
    let mut inputs = vec![scores.as_str(), &labels];
    inputs.extend(weights.as_deref());
    let mut added = node(
        "SoftmaxCrossEntropyLoss",
        name,
        &inputs,
        &[&loss, &log_prob],
    );
    added.attribute.extend(
        settings
            .ignore_index
            .map(|index| attribute::int("ignore_index", index)),
    );
    added
        .attribute
        .push(attribute::string("reduction", settings.reduction.onnx()));
    edit.graph.node.push(added);
    if settings.label_smoothing == 0.0 {
        return Ok(loss);
    }
    let Some(classes) = classes.or(settings.class_weights.as_ref().map(|w| w.len() as i64)) else {
        return fail(format!(
            "label smoothing needs the number of classes of '{input}', which the model does not say"
        ));
    };
    if edit.opset < 13 {
        return fail(format!(
            "label smoothing needs ONNX operator set 13; the model has {}",
            edit.opset
        ));
    }
    let spread = even_spread(edit, settings, &scores, &labels, weights.as_deref(), rank)?;
    let (keep, share) = (
        edit.names.derived("onnx::celoss.keep"),
        edit.names.derived("onnx::celoss.share"),
    );
    let keep = edit.constant(scalar_f32(&keep, 1.0 - settings.label_smoothing));
    let share = edit.constant(scalar_f32(
        &share,
        settings.label_smoothing / classes as f32,
    ));
    let first = edit.op("Mul", &[&loss, &keep]);
    let second = edit.op("Mul", &[&spread, &share]);
    Ok(edit.op("Add", &[&first, &second]))
}

/// The loss against all classes at once: Σ_c -w_c·log p_c per example, reduced like the loss itself.
fn even_spread(
    edit: &mut LossGraph<'_>,
    settings: &CrossEntropy,
    scores: &str,
    labels: &str,
    weights: Option<&str>,
    rank: i64,
) -> Result<String> {
    let mut log_prob = edit.op_with("LogSoftmax", &[scores], [attribute::int("axis", 1)]);
    if let (Some(name), Some(values)) = (weights, &settings.class_weights) {
        let mut shape = vec![1; rank as usize];
        shape[1] = values.len() as i64;
        let broadcast = edit.names.derived(&format!("{name}.broadcast"));
        let broadcast = edit.constant(initializer_f32(&broadcast, &shape, values));
        log_prob = edit.op("Mul", &[&log_prob, &broadcast]);
    }
    let axes = edit.names.derived("onnx::celoss.axes");
    let axes = edit.constant(initializer_i64(&axes, &[1], &[1]));
    let sum = edit.op_with(
        "ReduceSum",
        &[&log_prob, &axes],
        [attribute::int("keepdims", 0)],
    );
    let mut per_example = edit.op("Neg", &[&sum]);

    let mask = settings.ignore_index.map(|index| {
        let ignored = edit.names.derived("onnx::celoss.ignored");
        let ignored = edit.constant(initializer_i64(&ignored, &[], &[index]));
        let is_ignored = edit.op("Equal", &[labels, &ignored]);
        let counts = edit.op("Not", &[&is_ignored]);
        let mask = edit.op_with(
            "Cast",
            &[&counts],
            [attribute::int("to", data_type::FLOAT.into())],
        );
        (is_ignored, mask)
    });
    if let Some((_, mask)) = &mask {
        per_example = edit.op("Mul", &[&per_example, mask]);
    }
    if settings.reduction == Reduction::Mean && (mask.is_some() || weights.is_some()) {
        // What the mean divides by: the labels' weights, those ignored left out. No gradient flows here.
        let count = match (weights, &mask) {
            (None, Some((_, mask))) => mask.clone(),
            (Some(weights), None) => edit.op("Gather", &[weights, labels]),
            (Some(weights), Some((is_ignored, mask))) => {
                let zero = edit.names.derived("onnx::celoss.zero");
                let zero = edit.constant(initializer_i64(&zero, &[], &[0]));
                let counted = edit.op("Where", &[is_ignored, &zero, labels]);
                let gathered = edit.op("Gather", &[weights, &counted]);
                edit.op("Mul", &[&gathered, mask])
            }
            (None, None) => unreachable!("one of them is there"),
        };
        let total = edit.reduce(Reduction::Sum, &per_example);
        let divisor = edit.reduce(Reduction::Sum, &count);
        return Ok(edit.op("Div", &[&total, &divisor]));
    }
    Ok(edit.reduce(settings.reduction, &per_example))
}
