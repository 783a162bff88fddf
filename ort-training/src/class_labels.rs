//! Class labels, checked before ONNX Runtime uses them as indices.
//!
//! The CPU kernels of `SoftmaxCrossEntropyLoss` read `log_prob[row * classes + label]` and `weight[label]` without looking
//! at the label (softmax_cross_entropy_loss.cc): one that is out of range reads whatever memory lies there. Safe Rust must
//! not reach that, so the labels that a model feeds to such a loss are compared with its number of classes here.

use std::collections::BTreeMap;

use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::model_io::{Dimension, IoInfo};
use crate::value::{AsValue, Value};

/// The losses whose second input holds class indices.
const LOSSES: [&str; 4] = [
    "SoftmaxCrossEntropyLoss",
    "SoftmaxCrossEntropyLossInternal",
    "NegativeLogLikelihoodLoss",
    "NegativeLogLikelihoodLossInternal",
];

/// Operators that hand labels on without changing their values.
const PASSING: [&str; 7] = [
    "Identity",
    "Cast",
    "Squeeze",
    "Unsqueeze",
    "Reshape",
    "Flatten",
    "Transpose",
];

/// ONNX Runtime's kernels ignore this label unless told otherwise.
const DEFAULT_IGNORED: i64 = -1;

/// What is known of a node of the graph.
pub(crate) struct NodeView<'a> {
    pub(crate) operator: &'a str,
    pub(crate) inputs: &'a [String],
    pub(crate) outputs: &'a [String],
    pub(crate) ignore_index: Option<i64>,
}

/// An input of a model that holds class labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelRange {
    pub(crate) input: String,
    classes: i64,
    ignored: i64,
}

/// The inputs that a loss takes as class labels, with the number of classes as the shapes in `values` tell it.
pub(crate) fn label_ranges(
    nodes: &[NodeView<'_>],
    values: &BTreeMap<&str, IoInfo>,
) -> Vec<LabelRange> {
    let producers: BTreeMap<&str, &NodeView<'_>> = nodes
        .iter()
        .flat_map(|node| {
            node.outputs
                .iter()
                .map(move |output| (output.as_str(), node))
        })
        .collect();
    let classes_of = |name: Option<&String>| {
        let dimensions = values.get(name?.as_str())?.dimensions.as_ref()?;
        match dimensions.get(1)? {
            Dimension::Fixed(classes) => i64::try_from(*classes).ok(),
            Dimension::Symbolic(_) => None,
        }
    };
    nodes
        .iter()
        .filter(|node| LOSSES.contains(&node.operator))
        .filter_map(|node| {
            // The logarithms of the probabilities (the second output) have the shape of the scores.
            let classes =
                classes_of(node.inputs.first()).or_else(|| classes_of(node.outputs.get(1)))?;
            let mut input = node.inputs.get(1)?.as_str();
            // A graph has no cycles, but a file may: no more steps than nodes.
            for _ in 0..nodes.len() {
                match producers.get(input) {
                    Some(node) if PASSING.contains(&node.operator) => {
                        input = node.inputs.first()?
                    }
                    _ => break,
                }
            }
            let ignored = node.ignore_index.unwrap_or(DEFAULT_IGNORED);
            Some(LabelRange {
                input: input.to_owned(),
                classes,
                ignored,
            })
        })
        .collect()
}

impl LabelRange {
    fn check(&self, call: &str, value: &Value) -> Result<()> {
        if !value.is_host()? {
            return Ok(());
        }
        let wrong = match value.element_type()? {
            ElementType::Int64 => value
                .data::<i64>()?
                .iter()
                .copied()
                .enumerate()
                .find(|(_, label)| self.rejects(*label)),
            ElementType::Int32 => value
                .data::<i32>()?
                .iter()
                .map(|&label| i64::from(label))
                .enumerate()
                .find(|(_, label)| self.rejects(*label)),
            // Other types reach a loss through a Cast only.
            _ => None,
        };
        match wrong {
            Some((position, label)) => Err(Error::invalid_argument(format!(
                "{call}: input {:?}: expected class labels from 0 to {} (or {}, which is ignored), found {label} at \
                 position {position}",
                self.input,
                self.classes - 1,
                self.ignored
            ))),
            None => Ok(()),
        }
    }

    fn rejects(&self, label: i64) -> bool {
        !(0..self.classes).contains(&label) && label != self.ignored
    }
}

/// Checks the labels among `values`, which are in the order of `inputs`.
pub(crate) fn check_labels<'v, V: AsValue + ?Sized + 'v>(
    call: &str,
    ranges: &[LabelRange],
    inputs: &[IoInfo],
    values: impl Fn(usize) -> &'v V,
) -> Result<()> {
    for range in ranges {
        if let Some(index) = inputs.iter().position(|info| info.name == range.input) {
            range.check(call, values(index).as_value())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    fn range() -> LabelRange {
        LabelRange {
            input: "labels".into(),
            classes: 10,
            ignored: -1,
        }
    }

    #[test]
    fn labels_in_range_and_the_ignored_one_pass() {
        let labels = Tensor::from_vec([3], vec![0i64, 9, -1]).unwrap();
        range().check("step", labels.as_value()).unwrap();
    }

    #[test]
    fn others_are_named() {
        for label in [10, -2, i64::MAX, i64::MIN] {
            let labels = Tensor::from_vec([2], vec![1, label]).unwrap();
            let error = range()
                .check("step", labels.as_value())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("from 0 to 9") && error.contains(&format!("{label} at position 1")),
                "{error}"
            );
        }
        let labels = Tensor::from_vec([1], vec![10i32]).unwrap();
        range().check("step", labels.as_value()).unwrap_err();
    }

    #[test]
    fn labels_are_followed_through_operators_that_hand_them_on() {
        let name = |text: &str| vec![text.to_owned()];
        let (cast_in, cast_out) = (name("labels"), name("cast"));
        let (loss_in, loss_out) = (vec!["scores".to_owned(), "cast".to_owned()], name("loss"));
        let nodes = [
            NodeView {
                operator: "Cast",
                inputs: &cast_in,
                outputs: &cast_out,
                ignore_index: None,
            },
            NodeView {
                operator: "SoftmaxCrossEntropyLoss",
                inputs: &loss_in,
                outputs: &loss_out,
                ignore_index: Some(255),
            },
        ];
        let scores = IoInfo {
            name: "scores".into(),
            element_type: None,
            dimensions: Some(vec![
                Dimension::Symbolic(String::new()),
                Dimension::Fixed(3),
            ]),
        };
        let values = BTreeMap::from([("scores", scores)]);
        let expected = LabelRange {
            input: "labels".into(),
            classes: 3,
            ignored: 255,
        };
        assert_eq!(label_ranges(&nodes, &values), [expected]);
    }
}
