//! Which initializers are trained, which are kept beside them, and which stay constants of the graph.

use std::collections::HashSet;

use super::analysis::{Types, differentiable_values, is_float, stops_gradient};
use super::error::{ArtifactsError, Result};
use super::names::{is_pattern, matches, suggest};
use super::onnx::{GraphProto, TensorProto, type_name};

/// The initializers' parts, in the order of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) trainable: Vec<String>,
    pub(crate) frozen: Vec<String>,
}

impl Parameters {
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.trainable.iter().chain(&self.frozen).any(|n| n == name)
    }
}

/// Names and patterns as the caller gave them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// `None`: everything that can be trained.
    pub(crate) requires_grad: Option<Vec<String>>,
    pub(crate) frozen: Vec<String>,
}

/// Divides the first `count` initializers of a graph (the forward model's; the loss has constants of its own), whose
/// loss is `loss`.
pub(crate) fn select(
    graph: &GraphProto,
    types: &Types,
    loss: &str,
    selection: &Selection,
    count: usize,
) -> Result<Parameters> {
    let reach = differentiable_values(graph, types, loss);
    let statistics = running_statistics(graph);
    let initializers: Vec<&TensorProto> = graph.initializer.iter().take(count).collect();

    let frozen = expand(&selection.frozen, &initializers, "frozen")?;
    let trainable: HashSet<&str> = match &selection.requires_grad {
        None => initializers
            .iter()
            .filter(|t| {
                // A scalar without dimensions is a constant of a formula far more often than a parameter.
                is_float(t.elem_type())
                    && !t.dims.is_empty()
                    && t.element_count().is_some_and(|n| n > 0)
                    && reach.contains(t.label())
                    && !statistics.contains(t.label())
            })
            .map(|t| t.label())
            .filter(|name| !frozen.contains(name))
            .collect(),
        Some(patterns) => {
            let chosen = expand(patterns, &initializers, "trained")?;
            if let Some(both) = patterns
                .iter()
                .find(|p| !is_pattern(p) && frozen.contains(p.as_str()))
            {
                return Err(ArtifactsError::Name(format!(
                    "parameter '{both}' is to be both trained and frozen"
                )));
            }
            let explicit: HashSet<&str> = patterns.iter().map(String::as_str).collect();
            for tensor in &initializers {
                let name = tensor.label();
                if explicit.contains(name) {
                    check_trainable(tensor, &reach, &statistics, loss)?;
                }
            }
            initializers
                .iter()
                .filter(|t| chosen.contains(t.label()) && !frozen.contains(t.label()))
                .filter(|t| check_trainable(t, &reach, &statistics, loss).is_ok())
                .map(|t| t.label())
                .collect()
        }
    };
    if trainable.is_empty() {
        return Err(ArtifactsError::Name(no_parameter(
            graph,
            types,
            &initializers,
            &frozen,
        )));
    }

    let mut parameters = Parameters::default();
    for tensor in initializers {
        let name = tensor.label();
        if trainable.contains(name) {
            parameters.trainable.push(name.to_owned());
        } else if frozen.contains(name) || statistics.contains(name) {
            parameters.frozen.push(name.to_owned());
        }
    }
    Ok(parameters)
}

fn no_parameter(
    graph: &GraphProto,
    types: &Types,
    all: &[&TensorProto],
    frozen: &HashSet<&str>,
) -> String {
    let floats = all.iter().filter(|t| is_float(t.elem_type())).count();
    let constants = graph
        .node
        .iter()
        .filter(|n| n.op() == "Constant")
        .filter(|n| {
            n.output_name(0)
                .and_then(|o| types.elem_type(o))
                .is_some_and(is_float)
        });
    format!(
        "no parameter to train: the model has {} initializers, {floats} of them floating-point, {} frozen by name, \
         and a gradient of the loss reaches none of the others{}",
        all.len(),
        frozen.len(),
        match constants.count() {
            0 => String::new(),
            n => format!(" (its {n} floating-point Constant nodes are not parameters)"),
        }
    )
}

/// The running mean and variance of every batch normalization: training updates them in place, so they belong in the
/// checkpoint, but they have no gradient.
fn running_statistics(graph: &GraphProto) -> HashSet<&str> {
    graph
        .node
        .iter()
        .filter(|n| n.op() == "BatchNormalization" && n.is_onnx())
        .flat_map(|n| [n.input_name(3), n.input_name(4)])
        .flatten()
        .collect()
}

fn check_trainable(
    tensor: &TensorProto,
    reach: &HashSet<String>,
    statistics: &HashSet<&str>,
    loss: &str,
) -> Result<()> {
    let name = tensor.label();
    let fail = |text: String| {
        Err(ArtifactsError::Name(format!(
            "'{name}' cannot be trained: {text}"
        )))
    };
    if !is_float(tensor.elem_type()) {
        return fail(format!(
            "it is {}; expected a floating-point tensor",
            type_name(tensor.elem_type())
        ));
    }
    if statistics.contains(name) {
        return fail(
            "it is a running statistic of a batch normalization, which has no gradient".to_owned(),
        );
    }
    if !reach.contains(name) {
        return fail(format!("no gradient of the loss '{loss}' reaches it"));
    }
    Ok(())
}

/// The initializers that names and patterns stand for.
fn expand<'a>(
    wanted: &'a [String],
    all: &[&'a TensorProto],
    verb: &str,
) -> Result<HashSet<&'a str>> {
    let mut found = HashSet::new();
    for text in wanted {
        let hits: Vec<&str> = if is_pattern(text) {
            all.iter()
                .map(|t| t.label())
                .filter(|name| matches(text, name))
                .collect()
        } else {
            all.iter()
                .map(|t| t.label())
                .filter(|name| name == text)
                .collect()
        };
        if hits.is_empty() {
            let what = if is_pattern(text) {
                "matches no parameter"
            } else {
                "is not a parameter of the model"
            };
            return Err(ArtifactsError::Name(format!(
                "'{text}', to be {verb}, {what}{}",
                suggest(
                    text,
                    all.iter()
                        .filter(|t| is_float(t.elem_type()))
                        .map(|t| t.label())
                )
            )));
        }
        found.extend(hits);
    }
    Ok(found)
}

/// Where a parameter is used as a setting of an operator, for the report.
pub(crate) fn is_setting(graph: &GraphProto, name: &str) -> bool {
    graph
        .node
        .iter()
        .flat_map(|n| {
            n.input
                .iter()
                .enumerate()
                .map(move |(i, input)| (n, i, input))
        })
        .filter(|(_, _, input)| *input == name)
        .all(|(node, index, _)| stops_gradient(node, index))
}
