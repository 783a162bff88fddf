//! Parts of putting artifacts together that need nothing of the builder.

use prost::Message;
use prost::bytes::Bytes;

use super::analysis::{Types, is_float};
use super::error::{ArtifactsError, Result};
use super::native::Native;
use super::onnx::{GraphProto, ModelProto, TensorProto, data_type, tensor_info, type_name};
use super::parameters::{Parameters, is_setting};

/// Protobuf counts bytes in a signed 32-bit number.
const PROTOBUF_LIMIT: usize = i32::MAX as usize;

/// The outputs of a graph, by name.
pub(super) fn set_outputs(graph: &mut GraphProto, types: &Types, names: &[String], loss: &str) {
    let outputs = names
        .iter()
        .map(|name| {
            if let Some(declared) = graph.output.iter().find(|o| o.label() == name) {
                return declared.clone();
            }
            let elem_type = types.elem_type(name).unwrap_or(data_type::FLOAT);
            let dims = types.dims(name).map(<[_]>::to_vec);
            // Losses that are reduced here are scalars.
            tensor_info(
                name,
                elem_type,
                if name == loss {
                    Some(dims.unwrap_or_default())
                } else {
                    dims
                },
            )
        })
        .collect();
    graph.output = outputs;
    graph
        .value_info
        .retain(|info| !names.iter().any(|n| n == info.label()));
}

pub(super) fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

/// The parameters' values, trained and frozen, each as raw bytes.
pub(super) fn values(
    graph: &GraphProto,
    parameters: &Parameters,
) -> Result<(Vec<TensorProto>, Vec<TensorProto>)> {
    let take = |names: &[String]| {
        graph
            .initializer
            .iter()
            .filter(|t| names.iter().any(|n| n == t.label()))
            .map(|tensor| {
                // A copy of `Bytes` shares its memory; only data in typed fields is copied.
                let raw = match &tensor.raw_data {
                    Some(raw) if tensor.dense().is_some() => raw.clone(),
                    _ => Bytes::from(
                        tensor
                            .dense()
                            .ok_or_else(|| {
                                ArtifactsError::InvalidModel(format!(
                                    "the data of parameter '{}' does not fit its type {} and shape {:?}",
                                    tensor.label(),
                                    type_name(tensor.elem_type()),
                                    tensor.dims
                                ))
                            })?
                            .into_owned(),
                    ),
                };
                Ok(TensorProto {
                    name: tensor.name.clone(),
                    data_type: tensor.data_type,
                    dims: tensor.dims.clone(),
                    raw_data: Some(raw),
                    ..TensorProto::default()
                })
            })
            .collect::<Result<Vec<_>>>()
    };
    Ok((take(&parameters.trainable)?, take(&parameters.frozen)?))
}

pub(super) fn constants(
    graph: &GraphProto,
    parameters: &Parameters,
    count: usize,
) -> Vec<(String, String)> {
    graph
        .initializer
        .iter()
        .take(count)
        .filter(|t| is_float(t.elem_type()) && !parameters.contains(t.label()))
        .map(|tensor| {
            let why = if is_setting(graph, tensor.label()) {
                "a setting of an operator"
            } else if tensor.dims.is_empty() {
                "it has no dimensions"
            } else {
                "not chosen, or no gradient reaches it"
            };
            (tensor.label().to_owned(), why.to_owned())
        })
        .collect()
}

pub(super) fn encode(model: &ModelProto, what: &str) -> Result<Vec<u8>> {
    let size = model.encoded_len();
    if size > PROTOBUF_LIMIT {
        return Err(ArtifactsError::TooLarge(format!(
            "{what} has {size} bytes; an ONNX model in one piece has {PROTOBUF_LIMIT} at most. Parameters that are \
             trained or frozen do not count, constants do: freeze them by name, so that they go into the checkpoint"
        )));
    }
    Ok(model.encode_to_vec())
}

/// Replaces calls of the model's own functions by their nodes, which alone can be differentiated.
pub(super) fn inline_functions(native: Native, model: &mut ModelProto) -> Result<()> {
    let graph = model.graph.as_ref().expect("checked when it was read");
    let without_values = ModelProto {
        graph: Some(super::analysis::shallow(graph)),
        ..model.clone_without_graph()
    };
    let bytes = native.inline_functions(&without_values.encode_to_vec())?;
    let inlined = ModelProto::decode(Bytes::from_owner(bytes))
        .map_err(|e| ArtifactsError::Runtime(format!("its model cannot be read: {e}")))?;
    let graph = model.graph.as_mut().expect("checked when it was read");
    let inlined_graph = inlined.graph.unwrap_or_default();
    graph.node = inlined_graph.node;
    graph.value_info = inlined_graph.value_info;
    model.opset_import = inlined.opset_import;
    model.functions = inlined.functions;
    Ok(())
}
