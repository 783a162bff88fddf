//! The evaluation form of a graph: normalization by running statistics, no dropout, whatever form it came in.

use std::collections::HashSet;

use super::assemble::inline_functions;
use super::error::{ArtifactsError, Result};
use super::native::Native;
use super::onnx::{GraphProto, ModelProto, NodeProto, node};

/// Turns a model that was exported for training into what PyTorch calls evaluation mode: BatchNormalization uses its
/// running statistics, Dropout passes its input. The model's own functions are inlined; external data is not touched.
///
/// # Errors
/// The model has no graph; it has functions, and the ONNX Runtime in this process cannot make artifacts.
pub fn evaluation_form(model: &mut ModelProto) -> Result<()> {
    to_inference(graph(model)?);
    Ok(())
}

/// Lets Dropout pass its input, and leaves everything else as it is: for training steps that are compared with others.
/// The model's own functions are inlined; external data is not touched.
///
/// # Errors
/// As [`evaluation_form`].
pub fn without_dropout(model: &mut ModelProto) -> Result<()> {
    let graph = graph(model)?;
    let mut used: HashSet<String> = graph.output.iter().map(|o| o.label().to_owned()).collect();
    captured(graph, &mut used);
    for node in &mut graph.node {
        if node.is_onnx() && node.op() == "Dropout" {
            let bare = std::mem::take(node);
            *node = dropout(bare, &used);
            // Where nobody reads the mask it is an Identity, through which gradients pass as they are.
            if node.output_name(1).is_none() {
                node.op_type = Some("Identity".to_owned());
                node.input.truncate(1);
                node.output.truncate(1);
                node.attribute.clear();
            }
        }
    }
    Ok(())
}

/// The graph, once functions are inlined into it.
fn graph(model: &mut ModelProto) -> Result<&mut GraphProto> {
    if model.graph.is_none() {
        return Err(ArtifactsError::InvalidModel(
            "the model has no graph: it is not an ONNX model, or a truncated one".to_owned(),
        ));
    }
    if !model.functions.is_empty() {
        inline_functions(Native::get()?, model)?;
    }
    Ok(model.graph.as_mut().expect("looked at above"))
}

/// Turns BatchNormalization and Dropout into their inference form, in subgraphs, too.
pub(crate) fn to_inference(graph: &mut GraphProto) {
    let mut used: HashSet<String> = graph.output.iter().map(|o| o.label().to_owned()).collect();
    captured(graph, &mut used);
    let mut nodes = Vec::with_capacity(graph.node.len());
    for mut node in graph.node.drain(..) {
        for attribute in &mut node.attribute {
            attribute
                .g
                .iter_mut()
                .chain(&mut attribute.graphs)
                .for_each(to_inference);
        }
        if !node.is_onnx() {
            nodes.push(node);
            continue;
        }
        match node.op() {
            "BatchNormalization" => batch_normalization(node, &used, &mut nodes),
            "Dropout" => nodes.push(dropout(node, &used)),
            _ => nodes.push(node),
        }
    }
    graph.node = nodes;
}

/// Names that nodes read, those of subgraphs included.
fn captured(graph: &GraphProto, used: &mut HashSet<String>) {
    for node in &graph.node {
        used.extend(node.input.iter().cloned());
        for attribute in &node.attribute {
            for inner in attribute.g.iter().chain(&attribute.graphs) {
                used.extend(inner.output.iter().map(|o| o.label().to_owned()));
                captured(inner, used);
            }
        }
    }
}

fn batch_normalization(mut bn: NodeProto, used: &HashSet<String>, nodes: &mut Vec<NodeProto>) {
    if let Some(mode) = bn
        .attribute
        .iter_mut()
        .find(|a| a.name.as_deref() == Some("training_mode"))
    {
        mode.i = Some(0);
    }
    // In inference the statistics do not change: whoever reads the new ones gets the ones that went in. (The fourth
    // and fifth output of old operator sets are the batch's own statistics, of which inference has none.)
    for (output, input) in [(1, 3), (2, 4)] {
        let output = bn.output_name(output).filter(|name| used.contains(*name));
        if let (Some(output), Some(input)) = (output, bn.input_name(input)) {
            nodes.push(node(
                "Identity",
                format!("{}.{output}", bn.label()),
                &[input],
                &[output],
            ));
        }
    }
    bn.output.truncate(1);
    nodes.push(bn);
}

fn dropout(mut dropout: NodeProto, used: &HashSet<String>) -> NodeProto {
    // The third input switches dropout on; without it the output is the input and the mask is all true.
    dropout.input.truncate(2);
    if dropout
        .output_name(1)
        .is_some_and(|mask| !used.contains(mask))
    {
        dropout.output.truncate(1);
    }
    dropout
}
