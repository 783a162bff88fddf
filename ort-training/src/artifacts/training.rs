//! The training graph: what ONNX Runtime's gradient builder needs before it, and what a training session needs after.

use std::collections::{HashMap, HashSet};

use super::analysis::Types;
use super::error::{ArtifactsError, Result};
use super::names::Names;
use super::onnx::{
    Dimension, GraphProto, NodeProto, ValueInfoProto, data_type, initializer_i64, node, tensor_info,
};
use super::parameters::Parameters;

pub(crate) const LAZY_RESET_GRAD: &str = "lazy_reset_grad";

pub(crate) fn gradient_name(parameter: &str) -> String {
    format!("{parameter}_grad")
}

fn buffer_name(parameter: &str) -> String {
    format!("{parameter}_grad.accumulation.buffer")
}

fn accumulated_name(parameter: &str) -> String {
    format!("{parameter}_grad.accumulation.out")
}

/// Fails when the model already uses a name that the training graph adds.
pub(crate) fn check_added_names(names: &Names, parameters: &Parameters) -> Result<()> {
    let added = parameters
        .trainable
        .iter()
        .flat_map(|p| [gradient_name(p), buffer_name(p), accumulated_name(p)])
        .chain([LAZY_RESET_GRAD.to_owned()]);
    for name in added {
        if names.is_used(&name) {
            return Err(ArtifactsError::Name(format!(
                "the training model needs the name '{name}', which the forward model already uses"
            )));
        }
    }
    Ok(())
}

/// Gives operators the outputs that their gradients read, and recurrent layers all their inputs.
pub(crate) fn complete_nodes(graph: &mut GraphProto, names: &mut Names) {
    for node in &mut graph.node {
        // The gradients of recurrent layers take the inputs by position, also those that were left off at the end.
        let inputs = match node.op() {
            "LSTM" => 7,
            "GRU" => 6,
            _ => 0,
        };
        while node.input.len() < inputs {
            node.input.push(String::new());
        }
        let wanted = match node.op() {
            // The mask; only there when dropout can be on.
            "Dropout" if node.input_name(2).is_some() => 2,
            // Mean and inverse standard deviation.
            "LayerNormalization" => 3,
            "SimplifiedLayerNormalization" | "SoftmaxCrossEntropyLoss" => 2,
            // The indices. ONNX Runtime adds them itself, but not for all operator sets that it reads.
            "MaxPool" => 2,
            _ => continue,
        };
        let label = node.label().to_owned();
        while node.output.len() < wanted {
            node.output.push(String::new());
        }
        for (index, output) in node.output.iter_mut().enumerate().take(wanted) {
            if output.is_empty() {
                *output = names.derived(&format!("{label}.stash{index}"));
            }
        }
    }
}

/// Turns the parameters from initializers into inputs, in the initializers' order, after the model's own inputs.
pub(crate) fn parameters_to_inputs(graph: &mut GraphProto, parameters: &Parameters) {
    let (moved, kept) = std::mem::take(&mut graph.initializer)
        .into_iter()
        .partition(|tensor| parameters.contains(tensor.label()));
    graph.initializer = kept;
    let moved: Vec<super::onnx::TensorProto> = moved;
    graph
        .input
        .extend(moved.iter().map(super::analysis::describe));
}

/// Orders the outputs of a graph with gradients (own outputs, then gradients in the order of the parameters) and lets
/// each gradient be added to a buffer.
pub(crate) fn accumulate_gradients(
    graph: &mut GraphProto,
    own_outputs: &[String],
    parameters: &Parameters,
) -> Result<()> {
    let find = |outputs: &[ValueInfoProto], name: &str| {
        outputs
            .iter()
            .find(|o| o.label() == name)
            .cloned()
            .ok_or_else(|| {
                ArtifactsError::Runtime(format!("the gradient graph has no output '{name}'"))
            })
    };
    let mut outputs = own_outputs
        .iter()
        .map(|n| find(&graph.output, n))
        .collect::<Result<Vec<_>>>()?;
    let trainable: HashSet<&str> = parameters.trainable.iter().map(String::as_str).collect();
    let order: Vec<String> = graph
        .input
        .iter()
        .map(|i| i.label())
        .filter(|n| trainable.contains(n))
        .map(str::to_owned)
        .collect();
    for parameter in order {
        let gradient = gradient_name(&parameter);
        let mut buffer = find(&graph.output, &gradient)?;
        let (buffer_name, accumulated) = (buffer_name(&parameter), accumulated_name(&parameter));
        graph.node.push(accumulator(
            outputs.len(),
            &buffer_name,
            &gradient,
            &accumulated,
        ));
        buffer.name = Some(buffer_name);
        graph.input.push(buffer);
        outputs.push(flag(&accumulated));
    }
    graph.input.push(flag(LAZY_RESET_GRAD));
    graph.output = outputs;
    Ok(())
}

fn accumulator(index: usize, buffer: &str, gradient: &str, output: &str) -> NodeProto {
    node(
        "InPlaceAccumulatorV2",
        format!("GradientAccumulator{index}"),
        &[buffer, gradient, LAZY_RESET_GRAD],
        &[output],
    )
    .in_domain("com.microsoft")
}

fn flag(name: &str) -> ValueInfoProto {
    tensor_info(name, data_type::BOOL, Some(vec![Dimension::fixed(1)]))
}

/// Joins reshapings that follow each other, where the first takes its shape from a node and the last has a fixed one:
/// ONNX Runtime's own attempt at that fails, and with it the session. `infer` gives the types of the graph's values.
pub(crate) fn join_reshapings(
    graph: &mut GraphProto,
    names: &mut Names,
    infer: impl FnOnce(&GraphProto) -> Result<Types>,
) -> Result<()> {
    let pairs = |graph: &GraphProto| -> Vec<(usize, usize)> {
        let produced: HashSet<&str> = graph
            .node
            .iter()
            .flat_map(|n| &n.output)
            .map(String::as_str)
            .collect();
        let given: HashSet<&str> = graph.output.iter().map(|o| o.label()).collect();
        let mut consumers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, node) in graph.node.iter().enumerate() {
            for input in &node.input {
                consumers.entry(input).or_default().push(index);
            }
        }
        graph
            .node
            .iter()
            .enumerate()
            .filter(|(_, n)| {
                n.op() == "Reshape"
                    && n.input_name(1)
                        .is_some_and(|shape| produced.contains(shape))
            })
            .filter_map(|(index, n)| {
                let output = n.output_name(0).filter(|o| !given.contains(o))?;
                let [next] = consumers.get(output)?.as_slice() else {
                    return None;
                };
                let follows = matches!(graph.node[*next].op(), "Reshape" | "Squeeze" | "Unsqueeze")
                    && graph.node[*next].input_name(0) == Some(output);
                follows.then_some((index, *next))
            })
            .collect()
    };
    if pairs(graph).is_empty() {
        return Ok(());
    }
    let types = infer(graph)?;
    // Longer chains take several rounds, each of which removes a node.
    loop {
        let found = pairs(graph).into_iter().find_map(|(first, last)| {
            let shape = types.fixed_shape(graph.node[last].output_name(0)?)?;
            shape.iter().all(|&d| d > 0).then_some((first, last, shape))
        });
        let Some((first, last, shape)) = found else {
            return Ok(());
        };
        let constant = names.derived(&format!("{}.shape", graph.node[last].label()));
        graph
            .initializer
            .push(initializer_i64(&constant, &[shape.len() as i64], &shape));
        let source = graph.node[first].input[0].clone();
        let joined = &mut graph.node[last];
        joined.op_type = Some("Reshape".to_owned());
        joined.attribute.clear();
        joined.input = vec![source, constant];
        graph.node.remove(first);
    }
}
