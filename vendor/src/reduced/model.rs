//! What operators and types an ONNX model has.

use std::fs;
use std::path::Path;

use prost::Message;

use super::{Operators, TYPES_ALWAYS, inserted, model_error};
use crate::error::{Error, Result};

/// `TensorProto.DataType` by number, as C++ names.
const TYPES: [(i32, &str); 18] = [
    (1, "float"),
    (2, "uint8_t"),
    (3, "int8_t"),
    (4, "uint16_t"),
    (5, "int16_t"),
    (6, "int32_t"),
    (7, "int64_t"),
    (8, "std::string"),
    (9, "bool"),
    (10, "MLFloat16"),
    (11, "double"),
    (12, "uint32_t"),
    (13, "uint64_t"),
    (16, "BFloat16"),
    (17, "Float8E4M3FN"),
    (18, "Float8E4M3FNUZ"),
    (19, "Float8E5M2"),
    (20, "Float8E5M2FNUZ"),
];

pub(super) fn is_type(name: &str) -> bool {
    TYPES.iter().any(|(_, known)| *known == name)
}

/// The fields of onnx.proto that tell operators and types; weights are skipped without being kept.
pub(super) mod onnx {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Model {
        #[prost(message, optional, boxed, tag = "7")]
        pub graph: Option<Box<Graph>>,
        #[prost(message, repeated, tag = "8")]
        pub opset_import: Vec<OpsetId>,
        #[prost(message, repeated, tag = "25")]
        pub functions: Vec<Function>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct OpsetId {
        #[prost(string, tag = "1")]
        pub domain: String,
        #[prost(int64, tag = "2")]
        pub version: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Function {
        #[prost(message, repeated, tag = "7")]
        pub node: Vec<Node>,
        #[prost(message, repeated, tag = "9")]
        pub opset_import: Vec<OpsetId>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Graph {
        #[prost(message, repeated, tag = "1")]
        pub node: Vec<Node>,
        #[prost(message, repeated, tag = "5")]
        pub initializer: Vec<Tensor>,
        #[prost(message, repeated, tag = "11")]
        pub input: Vec<ValueInfo>,
        #[prost(message, repeated, tag = "12")]
        pub output: Vec<ValueInfo>,
        #[prost(message, repeated, tag = "13")]
        pub value_info: Vec<ValueInfo>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Node {
        #[prost(string, tag = "4")]
        pub op_type: String,
        #[prost(message, repeated, tag = "5")]
        pub attribute: Vec<Attribute>,
        #[prost(string, tag = "7")]
        pub domain: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Attribute {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(int64, tag = "3")]
        pub i: i64,
        #[prost(message, optional, tag = "5")]
        pub t: Option<Tensor>,
        #[prost(message, optional, boxed, tag = "6")]
        pub g: Option<Box<Graph>>,
        #[prost(message, repeated, tag = "11")]
        pub graphs: Vec<Graph>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Tensor {
        #[prost(int32, tag = "2")]
        pub data_type: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ValueInfo {
        #[prost(message, optional, tag = "2")]
        pub r#type: Option<Type>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Type {
        #[prost(message, optional, tag = "1")]
        pub tensor: Option<Elem>,
        #[prost(message, optional, boxed, tag = "4")]
        pub sequence: Option<Box<Inner>>,
        #[prost(message, optional, boxed, tag = "9")]
        pub optional: Option<Box<Inner>>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Elem {
        #[prost(int32, tag = "1")]
        pub elem_type: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Inner {
        #[prost(message, optional, boxed, tag = "1")]
        pub elem_type: Option<Box<Type>>,
    }
}

/// The operators of a model file, with those that ONNX Runtime may insert.
pub(super) fn operators(file: &Path) -> Result<Operators> {
    let bytes = fs::read(file).map_err(Error::io(format!("reading {}", file.display())))?;
    let model = onnx::Model::decode(bytes.as_slice())
        .map_err(|error| model_error(file, format!("expected an ONNX model, found: {error}")))?;
    let Some(graph) = &model.graph else {
        return Err(model_error(
            file,
            "expected an ONNX model, found one without a graph".into(),
        ));
    };
    let mut collector = Collector {
        operators: Operators::default(),
        functions: model.functions.len(),
    };
    collector.operators.types = TYPES_ALWAYS.iter().map(|name| (*name).to_owned()).collect();
    let mut found = collector.graph(graph, &model.opset_import);
    for function in &model.functions {
        let opsets = if function.opset_import.is_empty() {
            &model.opset_import
        } else {
            &function.opset_import
        };
        found = found.and_then(|()| collector.nodes(&function.node, opsets));
    }
    found.map_err(|problem| model_error(file, problem))?;
    let imported = model
        .opset_import
        .iter()
        .find(|opset| named(&opset.domain) == "ai.onnx")
        .and_then(|opset| u64::try_from(opset.version).ok());
    inserted::add(&mut collector.operators, imported);
    Ok(collector.operators)
}

struct Collector {
    operators: Operators,
    functions: usize,
}

impl Collector {
    fn graph(&mut self, graph: &onnx::Graph, opsets: &[onnx::OpsetId]) -> Result<(), String> {
        for tensor in &graph.initializer {
            self.add_type(tensor.data_type);
        }
        for value in graph
            .input
            .iter()
            .chain(&graph.output)
            .chain(&graph.value_info)
        {
            self.add_value_type(value.r#type.as_ref());
        }
        self.nodes(&graph.node, opsets)
    }

    fn nodes(&mut self, nodes: &[onnx::Node], opsets: &[onnx::OpsetId]) -> Result<(), String> {
        for node in nodes {
            let domain = named(&node.domain);
            match opsets.iter().find(|opset| named(&opset.domain) == domain) {
                Some(opset) => {
                    self.operators
                        .by_opset
                        .entry((domain.to_owned(), u64::try_from(opset.version).unwrap_or(0)))
                        .or_default()
                        .insert(node.op_type.clone());
                }
                // A call of a function of the model may name a domain that is imported nowhere.
                None if self.functions > 0 => {}
                None => {
                    return Err(format!(
                        "operator {} of domain {domain}: expected an opset_import of that domain, found none",
                        node.op_type
                    ));
                }
            }
            for attribute in &node.attribute {
                if matches!(attribute.name.as_str(), "to" | "dtype" | "output_dtype") {
                    self.add_type(i32::try_from(attribute.i).unwrap_or(0));
                }
                if let Some(tensor) = &attribute.t {
                    self.add_type(tensor.data_type);
                }
                for graph in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
                    self.graph(graph, opsets)?;
                }
            }
        }
        Ok(())
    }

    fn add_type(&mut self, number: i32) {
        if let Some((_, name)) = TYPES.iter().find(|(known, _)| *known == number) {
            self.operators.types.insert((*name).to_owned());
        }
    }

    fn add_value_type(&mut self, value: Option<&onnx::Type>) {
        let Some(value) = value else { return };
        if let Some(tensor) = &value.tensor {
            self.add_type(tensor.elem_type);
        }
        for inner in [&value.sequence, &value.optional].into_iter().flatten() {
            self.add_value_type(inner.elem_type.as_deref());
        }
    }
}

fn named(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}
