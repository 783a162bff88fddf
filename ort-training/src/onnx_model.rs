//! What an ONNX model's bytes say about its inputs and outputs.
//!
//! The training C API gives names only. Types and shapes come from the model itself, read here with the few protobuf
//! fields that matter (numbers from `onnx.proto`); the rest, weights above all, is skipped. Reading the model first also
//! tells apart a missing file, a truncated one and one that is no model, in words that name the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::class_labels::{LabelRange, NodeView, label_ranges};
use crate::element::ElementType;
use crate::error::{Error, ErrorCode, Result};
use crate::model_io::{Dimension, IoInfo};
use crate::prepacking;

/// The oldest IR version that ONNX Runtime loads (`Model::Model` in model.cc: "Unsupported model IR version" below 3).
const OLDEST_IR_VERSION: i64 = 3;

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(int64, optional, tag = "1")]
    ir_version: Option<i64>,
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    opset_import: Vec<OperatorSetIdProto>,
}

#[derive(Clone, PartialEq, Message)]
struct OperatorSetIdProto {
    #[prost(string, tag = "1")]
    domain: String,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    node: Vec<NodeProto>,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "13")]
    value_info: Vec<ValueInfoProto>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    output: Vec<String>,
    #[prost(string, tag = "4")]
    op_type: String,
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<AttributeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "3")]
    i: i64,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    dims: Vec<i64>,
    #[prost(string, tag = "8")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfoProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    r#type: Option<TypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeProto {
    #[prost(message, optional, tag = "1")]
    tensor_type: Option<TensorTypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorTypeProto {
    #[prost(int32, tag = "1")]
    elem_type: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    dim: Vec<DimensionProto>,
}

#[derive(Clone, PartialEq, Message)]
struct DimensionProto {
    #[prost(int64, optional, tag = "1")]
    dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    dim_param: Option<String>,
}

/// Where a model comes from.
#[derive(Debug, Clone)]
pub(crate) enum ModelSource {
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl ModelSource {
    /// What messages call it; `role` is for instance `training model`.
    pub(crate) fn subject(&self, role: &str) -> String {
        match self {
            Self::File(path) => format!("{role} {}", path.display()),
            Self::Bytes(_) => format!("{role} (from bytes)"),
        }
    }
}

/// A model's graph, as far as this crate looks at it.
#[derive(Debug, Clone)]
pub(crate) struct OnnxModel {
    /// Graph inputs that are no initializers: what must be fed.
    pub(crate) inputs: Vec<IoInfo>,
    pub(crate) outputs: Vec<IoInfo>,
    /// The names of all values that nodes compute.
    pub(crate) computed: BTreeSet<String>,
    pub(crate) operators: BTreeSet<String>,
    /// Inputs that hold class labels.
    pub(crate) labels: Vec<LabelRange>,
    /// Whether a constant is too large for ONNX Runtime to pack.
    pub(crate) too_large_to_pack: bool,
}

impl OnnxModel {
    pub(crate) fn read(source: &ModelSource, role: &str) -> Result<Self> {
        let subject = source.subject(role);
        match source {
            ModelSource::File(path) => Self::parse(&read_file(path, role)?, &subject),
            ModelSource::Bytes(bytes) => Self::parse(bytes, &subject),
        }
    }

    pub(crate) fn parse(bytes: &[u8], subject: &str) -> Result<Self> {
        let refuse = |found: String| {
            Error::new(
                ErrorCode::InvalidProtobuf,
                format!("{subject}: expected an ONNX model, found {found}"),
            )
        };
        if bytes.is_empty() {
            return Err(refuse("0 bytes".into()));
        }
        if i32::try_from(bytes.len()).is_err() {
            return Err(refuse(format!(
                "{} bytes, more than protobuf's 2 GiB; put its weights into external data",
                bytes.len()
            )));
        }
        for (position, magic, what) in [
            (4, "ORTM", "a model in ORT format"),
            (4, "ODTC", "an ONNX Runtime training checkpoint"),
            (0, "PK\u{3}\u{4}", "a zip archive (a PyTorch file?)"),
        ] {
            if bytes.get(position..position + 4) == Some(magic.as_bytes()) {
                return Err(refuse(what.into()));
            }
        }
        let model = ModelProto::decode(bytes).map_err(|error| {
            refuse(format!(
                "{} bytes that are none, or a truncated one ({error})",
                bytes.len()
            ))
        })?;
        let graph = model
            .graph
            .ok_or_else(|| refuse(format!("{} bytes without a graph", bytes.len())))?;
        match model.ir_version {
            Some(version) if version >= OLDEST_IR_VERSION => {}
            version => {
                let found = version.map_or("none".to_owned(), |version| version.to_string());
                return Err(Error::new(
                    ErrorCode::InvalidProtobuf,
                    format!(
                        "{subject}: expected ONNX IR version {OLDEST_IR_VERSION} or newer, found {found}"
                    ),
                ));
            }
        }
        // They are written behind the graph, so a file that is cut there is still a protobuf message.
        if model.opset_import.is_empty() {
            return Err(refuse(format!(
                "{} bytes without opset_import, perhaps a truncated one",
                bytes.len()
            )));
        }
        if graph.output.is_empty() {
            return Err(refuse("a graph without outputs".into()));
        }
        crate::model_trust::check(bytes)
            .map_err(|what| Error::new(ErrorCode::InvalidGraph, format!("{subject}: {what}")))?;
        let initializers: BTreeSet<&str> = graph
            .initializer
            .iter()
            .map(|tensor| tensor.name.as_str())
            .collect();
        let inputs = graph
            .input
            .iter()
            .filter(|input| !initializers.contains(input.name.as_str()))
            .map(io_info)
            .collect();
        let outputs = graph.output.iter().map(io_info).collect();
        let labels = labels(&graph);
        let too_large_to_pack = too_large_to_pack(&graph);
        let mut computed = BTreeSet::new();
        let mut operators = BTreeSet::new();
        for node in graph.node {
            computed.extend(node.output.into_iter().filter(|name| !name.is_empty()));
            operators.insert(node.op_type);
        }
        Ok(Self {
            inputs,
            outputs,
            computed,
            operators,
            labels,
            too_large_to_pack,
        })
    }

    pub(crate) fn input(&self, name: &str) -> Option<&IoInfo> {
        self.inputs.iter().find(|input| input.name == name)
    }
}

/// Whether a node may pack a constant that is too large for it. Tables that rows are gathered from are not packed.
fn too_large_to_pack(graph: &GraphProto) -> bool {
    let large: BTreeSet<&str> = graph
        .initializer
        .iter()
        .filter(|tensor| prepacking::is_too_large(&tensor.dims))
        .map(|tensor| tensor.name.as_str())
        .collect();
    graph.node.iter().any(|node| {
        node.op_type != "Gather"
            && node
                .input
                .iter()
                .any(|input| large.contains(input.as_str()))
    })
}

fn labels(graph: &GraphProto) -> Vec<LabelRange> {
    let nodes: Vec<NodeView<'_>> = graph
        .node
        .iter()
        .map(|node| NodeView {
            operator: &node.op_type,
            inputs: &node.input,
            outputs: &node.output,
            ignore_index: node
                .attribute
                .iter()
                .find(|attribute| attribute.name == "ignore_index")
                .map(|attribute| attribute.i),
        })
        .collect();
    let values: BTreeMap<&str, IoInfo> = graph
        .value_info
        .iter()
        .chain(&graph.output)
        .chain(&graph.input)
        .map(|value| (value.name.as_str(), io_info(value)))
        .collect();
    label_ranges(&nodes, &values)
}

/// Reads a whole file; the error names the role and the path.
pub(crate) fn read_file(path: &Path, role: &str) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| Error::io(format_args!("{role} {}", path.display()), &error))
}

fn io_info(value: &ValueInfoProto) -> IoInfo {
    let tensor = value
        .r#type
        .as_ref()
        .and_then(|kind| kind.tensor_type.as_ref());
    IoInfo {
        name: value.name.clone(),
        element_type: tensor
            .and_then(|tensor| u32::try_from(tensor.elem_type).ok())
            .filter(|&element| element != 0)
            .map(ElementType::from_raw),
        dimensions: tensor
            .and_then(|tensor| tensor.shape.as_ref())
            .map(|shape| {
                shape
                    .dim
                    .iter()
                    .map(
                        |dimension| match (dimension.dim_value, &dimension.dim_param) {
                            (Some(value), _) => usize::try_from(value)
                                .map_or(Dimension::Symbolic(String::new()), Dimension::Fixed),
                            (None, Some(name)) => Dimension::Symbolic(name.clone()),
                            (None, None) => Dimension::Symbolic(String::new()),
                        },
                    )
                    .collect()
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(bytes: &[u8]) -> String {
        OnnxModel::parse(bytes, "model x").unwrap_err().to_string()
    }

    fn bytes(ir_version: Option<i64>, graph: Option<GraphProto>) -> Vec<u8> {
        let opset_import = vec![OperatorSetIdProto::default()];
        ModelProto {
            ir_version,
            graph,
            opset_import,
        }
        .encode_to_vec()
    }

    fn graph() -> GraphProto {
        GraphProto {
            output: vec![ValueInfoProto {
                name: "y".into(),
                r#type: None,
            }],
            ..GraphProto::default()
        }
    }

    #[test]
    fn what_is_no_model_is_named() {
        assert!(error(b"").contains("found 0 bytes"));
        assert!(error(b"hello, world").contains("model x: expected an ONNX model"));
        assert!(error(b"\0\0\0\0ORTM....").contains("ORT format"));
        assert!(error(b"\0\0\0\0ODTC....").contains("checkpoint"));
        assert!(error(&bytes(Some(8), None)).contains("without a graph"));
        assert!(error(&bytes(Some(8), Some(GraphProto::default()))).contains("without outputs"));
    }

    #[test]
    fn an_old_model_is_named() {
        let text = error(&bytes(Some(2), Some(graph())));
        assert!(
            text.contains("IR version 3") && text.contains("found 2"),
            "{text}"
        );
        assert!(error(&bytes(None, Some(graph()))).contains("found none"));
    }

    #[test]
    fn truncated_models_are_refused() {
        let whole = bytes(Some(8), Some(graph()));
        OnnxModel::parse(&whole, "x").unwrap();
        for len in 0..whole.len() {
            OnnxModel::parse(&whole[..len], "x").unwrap_err();
        }
    }
}
