//! A loss given as an ONNX model.

use std::collections::HashMap;

use super::super::error::{ArtifactsError, Result};
use super::super::names::suggest;
use super::super::onnx::{GraphProto, ModelProto};
use super::LossGraph;

pub(super) fn add(edit: &mut LossGraph<'_>, model: &ModelProto) -> Result<String> {
    let fail = |text: String| Err(ArtifactsError::Loss(text));
    let opset = model
        .opset_import
        .iter()
        .find(|o| matches!(o.domain.as_deref(), None | Some("" | "ai.onnx")))
        .and_then(|o| o.version)
        .unwrap_or_default();
    if opset != edit.opset {
        return fail(format!(
            "the loss model uses ONNX operator set {opset}; the forward model uses {}",
            edit.opset
        ));
    }
    if !model.functions.is_empty() {
        return fail("the loss model has functions of its own, which are not supported".to_owned());
    }
    let graph = model.graph.as_ref().expect("checked when it was read");
    let known: Vec<String> = edit
        .graph
        .output
        .iter()
        .chain(&edit.graph.input)
        .map(|info| info.label().to_owned())
        .chain(edit.graph.node.iter().flat_map(|n| n.output.clone()))
        .collect();

    // Names inside the loss → names in the training model.
    let mut renamed: HashMap<String, String> = HashMap::new();
    let mut connected = 0;
    for input in &graph.input {
        let name = input.label();
        if known.iter().any(|k| k == name) {
            renamed.insert(name.to_owned(), name.to_owned());
            connected += usize::from(edit.types.elem_type(name).is_some());
            continue;
        }
        if edit.names.is_used(name) {
            return Err(ArtifactsError::Name(format!(
                "the loss model's input '{name}' bears the name of something else in the forward model"
            )));
        }
        let Some(tensor) = input.tensor() else {
            return fail(format!("the loss model's input '{name}' is not a tensor"));
        };
        edit.names.reserve(name);
        edit.types.insert(
            name,
            tensor.elem_type.unwrap_or_default(),
            tensor.shape.as_ref().map(|s| s.dim.clone()),
        );
        edit.graph.input.push(input.clone());
        renamed.insert(name.to_owned(), name.to_owned());
    }
    if connected == 0 {
        let inputs: Vec<&str> = graph.input.iter().map(|i| i.label()).collect();
        return fail(format!(
            "no input of the loss model ({}) bears the name of an output of the forward model{}",
            inputs.join(", "),
            suggest(
                inputs.first().copied().unwrap_or_default(),
                edit.graph.output.iter().map(|o| o.label())
            )
        ));
    }

    for tensor in &graph.initializer {
        let name = edit.names.derived(tensor.label());
        renamed.insert(tensor.label().to_owned(), name.clone());
        let mut tensor = tensor.clone();
        tensor.name = Some(name);
        edit.graph.initializer.push(tensor);
    }
    for source in &graph.node {
        for output in source.output.iter().filter(|o| !o.is_empty()) {
            let name = edit.names.derived(output);
            renamed.insert(output.clone(), name);
        }
    }
    for source in &graph.node {
        let mut added = source.clone();
        if let Some(name) = source.name.as_deref().filter(|n| !n.is_empty()) {
            added.name = Some(edit.names.derived(name));
        }
        rename(&mut added.input, &renamed);
        rename(&mut added.output, &renamed);
        for attribute in &mut added.attribute {
            attribute
                .g
                .iter_mut()
                .chain(&mut attribute.graphs)
                .for_each(|g| rename_captured(g, &renamed));
        }
        edit.graph.node.push(added);
    }
    let output = graph.output.first().expect("checked when it was read");
    let Some(loss) = renamed.get(output.label()) else {
        return fail(format!(
            "no node of the loss model makes its output '{}'",
            output.label()
        ));
    };
    if let Some(tensor) = output.tensor() {
        edit.types.insert(
            loss,
            tensor.elem_type.unwrap_or_default(),
            tensor.shape.as_ref().map(|s| s.dim.clone()),
        );
    }
    edit.check_scalar(loss, "the loss model's output")?;
    Ok(loss.clone())
}

fn rename(names: &mut [String], renamed: &HashMap<String, String>) {
    for name in names {
        if let Some(new) = renamed.get(name.as_str()) {
            new.clone_into(name);
        }
    }
}

/// A subgraph sees the values around it under their names; its own keep theirs.
fn rename_captured(graph: &mut GraphProto, renamed: &HashMap<String, String>) {
    let mut visible = renamed.clone();
    for own in graph
        .input
        .iter()
        .map(|i| i.label())
        .chain(graph.initializer.iter().map(|t| t.label()))
    {
        visible.remove(own);
    }
    for own in graph.node.iter().flat_map(|n| &n.output) {
        visible.remove(own);
    }
    for node in &mut graph.node {
        rename(&mut node.input, &visible);
        for attribute in &mut node.attribute {
            attribute
                .g
                .iter_mut()
                .chain(&mut attribute.graphs)
                .for_each(|g| rename_captured(g, &visible));
        }
    }
}
