//! What ONNX Runtime takes on trust when it loads a model: looked at before it does.
//!
//! - Sparse tensors are written into dense memory at the places that their indices say: see `sparse_tensor`.
//! - A function of the model that calls itself is inlined without end (onnx's `InferShapeForFunctionNode`).
//! - ConvTranspose reads the second dimension of weights that may have none (`convTransposeShapeInference`).
//! - Gradients are copied into accumulation buffers without a look at their sizes (gradient_control.cc,
//!   `InPlaceAccumulatorV2`).
//! - Shape inference of convolutions and pooling divides by their strides, and subtracts them from stated lengths one by
//!   one (onnx's `convPoolShapeInference`).
//! - LSTM multiplies weights by the sizes of its attributes and inputs (lstm_base.cc checks the biases alone).
//! - Shape inference reads constants that have less data than dimensions: see `tensor_data`.
//!
//! What is right by ONNX's rules passes. Ranks and shapes are looked at where the model states them.

use std::collections::BTreeMap;
use std::fmt;

use prost::Message;

use crate::sparse_tensor::{self, SparseTensorProto};

/// The longest dimension that a model may state: 64 Gi elements. No machine feeds one, and counting through longer ones
/// takes ONNX Runtime minutes to years.
const LONGEST: i64 = 1 << 36;

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "25")]
    functions: Vec<FunctionProto>,
}

#[derive(Clone, PartialEq, Message)]
struct FunctionProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "7")]
    node: Vec<NodeProto>,
    #[prost(string, tag = "10")]
    domain: String,
    #[prost(string, tag = "13")]
    overload: String,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    node: Vec<NodeProto>,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<InitializerProto>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "13")]
    value_info: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "15")]
    sparse_initializer: Vec<SparseTensorProto>,
}

/// An initializer without its data.
#[derive(Clone, PartialEq, Message)]
struct InitializerProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    dims: Vec<i64>,
    #[prost(string, tag = "8")]
    name: String,
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
    #[prost(string, tag = "7")]
    domain: String,
    #[prost(string, tag = "8")]
    overload: String,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "3")]
    i: i64,
    #[prost(message, optional, tag = "6")]
    g: Option<GraphProto>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    ints: Vec<i64>,
    #[prost(message, repeated, tag = "11")]
    graphs: Vec<GraphProto>,
    #[prost(message, optional, tag = "22")]
    sparse_tensor: Option<SparseTensorProto>,
    #[prost(message, repeated, tag = "23")]
    sparse_tensors: Vec<SparseTensorProto>,
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
}

impl ValueInfoProto {
    /// The dimensions, where they are numbers. A negative one stands for none.
    fn shape(&self) -> Option<Vec<Option<i64>>> {
        let tensor = self.r#type.as_ref()?.tensor_type.as_ref()?;
        let dimensions = tensor.shape.as_ref()?.dim.iter();
        Some(
            dimensions
                .map(|dimension| dimension.dim_value.filter(|&length| length >= 0))
                .collect(),
        )
    }
}

/// Checks a model whose bytes have been found to be one; says what is wrong.
pub(crate) fn check(model: &[u8]) -> Result<(), String> {
    crate::tensor_data::check(model)?;
    let model = ModelProto::decode(model).map_err(|error| error.to_string())?;
    check_functions(&model.functions)?;
    if let Some(graph) = &model.graph {
        check_graph(graph)?;
    }
    model
        .functions
        .iter()
        .try_for_each(|function| check_nodes(&function.node, &Shapes::new()))
}

/// The dimensions that a graph states of its values, as far as they are numbers.
type Shapes<'a> = BTreeMap<&'a str, Vec<Option<i64>>>;

fn check_graph(graph: &GraphProto) -> Result<(), String> {
    for tensor in &graph.sparse_initializer {
        sparse_tensor::check(tensor)
            .map_err(|what| format!("sparse initializer {:?}: {what}", tensor.name()))?;
    }
    let infos = graph.input.iter().chain(&graph.value_info);
    let mut shapes = Shapes::new();
    for info in infos.chain(&graph.output) {
        let Some(shape) = info.shape() else {
            continue;
        };
        if let Some(long) = shape.iter().flatten().find(|length| **length > LONGEST) {
            return Err(format!(
                "value {:?}: expected dimensions up to {LONGEST}, found {long}",
                info.name
            ));
        }
        shapes.insert(&info.name, shape);
    }
    for tensor in &graph.initializer {
        let dims = tensor.dims.iter().copied().map(Some).collect();
        shapes.insert(&tensor.name, dims);
    }
    check_nodes(&graph.node, &shapes)
}

fn check_nodes(nodes: &[NodeProto], shapes: &Shapes<'_>) -> Result<(), String> {
    for node in nodes {
        check_node(node, shapes)?;
        for attribute in &node.attribute {
            let tensors = attribute
                .sparse_tensor
                .iter()
                .chain(&attribute.sparse_tensors);
            for tensor in tensors {
                let output = node.output.first().map_or("", String::as_str);
                sparse_tensor::check(tensor)
                    .map_err(|what| format!("sparse tensor of the node of {output:?}: {what}"))?;
            }
            attribute
                .g
                .iter()
                .chain(&attribute.graphs)
                .try_for_each(check_graph)?;
        }
    }
    Ok(())
}

fn check_node(node: &NodeProto, shapes: &Shapes<'_>) -> Result<(), String> {
    let shape = |index: usize| {
        let name = node.input.get(index)?.as_str();
        Some((name, shapes.get(name)?.as_slice()))
    };
    if node.op_type.contains("Conv") || node.op_type.contains("Pool") {
        for attribute in &node.attribute {
            let named = ["strides", "dilations"].contains(&attribute.name.as_str());
            if let Some(wrong) = attribute.ints.iter().find(|&&step| named && step < 1) {
                return Err(format!(
                    "{}: expected {} of 1 or more, found {wrong}",
                    node.op_type, attribute.name
                ));
            }
        }
    }
    match node.op_type.as_str() {
        "ConvTranspose" => match shape(1) {
            Some((name, shape)) if shape.len() < 3 => Err(format!(
                "ConvTranspose: expected weights {name:?} of rank 3 or more, found rank {}",
                shape.len()
            )),
            _ => Ok(()),
        },
        "InPlaceAccumulatorV2" => match (shape(0), shape(1)) {
            (Some((_, buffer)), Some((name, gradient))) if !may_be(buffer, gradient) => {
                Err(format!(
                    "gradient {name:?}: expected the shape of its accumulation buffer, {}, found {}",
                    Listed(buffer),
                    Listed(gradient)
                ))
            }
            _ => Ok(()),
        },
        "LSTM" => {
            let hidden = node
                .attribute
                .iter()
                .find(|attribute| attribute.name == "hidden_size")
                .map(|attribute| attribute.i);
            let gates = hidden.and_then(|hidden| hidden.checked_mul(4));
            let features = shape(0).and_then(|(_, shape)| *shape.get(2)?);
            for (index, last) in [(1, features), (2, hidden)] {
                let wanted = [None, gates, last];
                match shape(index) {
                    Some((name, found)) if !may_be(&wanted, found) => {
                        return Err(format!(
                            "LSTM: expected weights {name:?} of shape {}, found {}",
                            Listed(&wanted),
                            Listed(found)
                        ));
                    }
                    _ => {}
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether two shapes are not known to differ.
fn may_be(one: &[Option<i64>], other: &[Option<i64>]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| one.is_none() || other.is_none() || one == other)
}

/// A shape for messages: `[?, 3]`.
struct Listed<'a>(&'a [Option<i64>]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths: Vec<String> = self
            .0
            .iter()
            .map(|length| length.map_or("?".to_owned(), |length| length.to_string()))
            .collect();
        write!(f, "[{}]", lengths.join(", "))
    }
}

/// Refuses functions that call themselves, be it through others.
fn check_functions(functions: &[FunctionProto]) -> Result<(), String> {
    // Those that a function calls, by their place in the list.
    let calls: Vec<Vec<usize>> = functions
        .iter()
        .map(|function| {
            let mut found = Vec::new();
            called(&function.node, functions, &mut found);
            found
        })
        .collect();
    // A function is sound once all that it calls are: what is left in the end calls itself.
    let mut sound = vec![false; functions.len()];
    while let Some(next) = (0..functions.len())
        .find(|&index| !sound[index] && calls[index].iter().all(|&called| sound[called]))
    {
        sound[next] = true;
    }
    match sound.iter().position(|sound| !sound) {
        Some(index) => Err(format!(
            "function {:?}: expected functions that do not call themselves, found one that does, itself or through \
             others",
            functions[index].name
        )),
        None => Ok(()),
    }
}

fn called(nodes: &[NodeProto], functions: &[FunctionProto], found: &mut Vec<usize>) {
    for node in nodes {
        found.extend(functions.iter().position(|function| {
            function.name == node.op_type
                && function.domain == node.domain
                && function.overload == node.overload
        }));
        for graph in node
            .attribute
            .iter()
            .flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
        {
            called(&graph.node, functions, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(graph: GraphProto) -> Vec<u8> {
        ModelProto {
            graph: Some(graph),
            functions: Vec::new(),
        }
        .encode_to_vec()
    }

    /// A sparse tensor is found as an initializer, in a branch and in a constant.
    #[test]
    fn sparse_tensors_are_found() {
        // Without indices for its value.
        let bytes: &[u8] = &[0x0a, 0x02, 0x08, 0x01, 0x18, 0x01];
        let tensor = SparseTensorProto::decode(bytes).unwrap();
        let inner = GraphProto {
            sparse_initializer: vec![tensor.clone()],
            ..GraphProto::default()
        };
        let branch = AttributeProto {
            g: Some(inner.clone()),
            ..AttributeProto::default()
        };
        let constant = AttributeProto {
            sparse_tensor: Some(tensor),
            ..AttributeProto::default()
        };
        let around = |attribute| GraphProto {
            node: vec![NodeProto {
                attribute: vec![attribute],
                ..NodeProto::default()
            }],
            ..GraphProto::default()
        };
        for graph in [inner, around(branch), around(constant)] {
            let error = check(&model(graph)).unwrap_err();
            assert!(error.starts_with("sparse"), "{error}");
        }
    }

    fn function(name: &str, overload: &str, calls: &[(&str, &str)]) -> FunctionProto {
        FunctionProto {
            name: name.into(),
            overload: overload.into(),
            node: calls
                .iter()
                .map(|(name, overload)| NodeProto {
                    op_type: (*name).into(),
                    overload: (*overload).into(),
                    ..NodeProto::default()
                })
                .collect(),
            ..FunctionProto::default()
        }
    }

    #[test]
    fn functions_that_call_themselves_are_named() {
        check_functions(&[
            function("a", "", &[("b", ""), ("Relu", "")]),
            function("b", "", &[("b", "other")]),
            function("b", "other", &[("Add", "")]),
        ])
        .unwrap();
        let error = check_functions(&[function("self", "", &[("self", "")])]).unwrap_err();
        assert!(error.contains("self"), "{error}");
        check_functions(&[
            function("a", "", &[("b", "")]),
            function("b", "", &[("c", "")]),
            function("c", "", &[("a", "")]),
        ])
        .unwrap_err();
    }

    fn info(name: &str, dims: &[i64]) -> ValueInfoProto {
        let dim = dims
            .iter()
            .map(|&dim| DimensionProto {
                dim_value: (dim >= 0).then_some(dim),
            })
            .collect();
        ValueInfoProto {
            name: name.into(),
            r#type: Some(TypeProto {
                tensor_type: Some(TensorTypeProto {
                    shape: Some(TensorShapeProto { dim }),
                }),
            }),
        }
    }

    fn check_op(op_type: &str, shapes: [&[i64]; 2]) -> Result<(), String> {
        let node = NodeProto {
            op_type: op_type.into(),
            input: vec!["0".into(), "1".into()],
            ..NodeProto::default()
        };
        check(&model(GraphProto {
            node: vec![node],
            input: vec![info("0", shapes[0])],
            value_info: vec![info("1", shapes[1])],
            ..GraphProto::default()
        }))
    }

    #[test]
    fn gradients_of_another_shape_are_named() {
        check_op("InPlaceAccumulatorV2", [&[2, 3], &[2, 3]]).unwrap();
        check_op("InPlaceAccumulatorV2", [&[2, 3], &[-1, 3]]).unwrap();
        for other in [&[2, 4][..], &[3], &[2, 3, 1]] {
            let error = check_op("InPlaceAccumulatorV2", [&[2, 3], other]).unwrap_err();
            assert!(error.contains("gradient \"1\""), "{error}");
        }
    }

    #[test]
    fn weights_without_a_kernel_are_named() {
        check_op("ConvTranspose", [&[1, 2, 8], &[2, 3, 4]]).unwrap();
        let error = check_op("ConvTranspose", [&[1, 2], &[]]).unwrap_err();
        assert!(error.contains("rank 0"), "{error}");
    }

    #[test]
    fn strides_and_lengths_out_of_range_are_named() {
        let with = |operator: &str, name: &str, ints: &[i64], length: i64| {
            let attribute = AttributeProto {
                name: name.into(),
                ints: ints.to_vec(),
                ..AttributeProto::default()
            };
            let node = NodeProto {
                op_type: operator.into(),
                attribute: vec![attribute],
                ..NodeProto::default()
            };
            check(&model(GraphProto {
                node: vec![node],
                output: vec![info("y", &[length])],
                ..GraphProto::default()
            }))
        };
        with("Conv", "strides", &[1, 2], 1 << 20).unwrap();
        with("Conv", "pads", &[0, 0], 8).unwrap();
        with("Slice", "dilations", &[0], 8).unwrap();
        for (operator, name) in [("Conv", "strides"), ("MaxPool", "dilations")] {
            let error = with(operator, name, &[1, 0], 8).unwrap_err();
            assert!(error.contains(operator) && error.contains(name), "{error}");
        }
        let error = with("Conv", "strides", &[1], i64::MAX).unwrap_err();
        assert!(error.contains("\"y\""), "{error}");
    }

    #[test]
    fn weights_of_another_size_than_an_lstm_has_are_named() {
        let with = |hidden: i64, x: &[i64], w: &[i64], r: &[i64]| {
            let attribute = AttributeProto {
                name: "hidden_size".into(),
                i: hidden,
                ..AttributeProto::default()
            };
            let node = NodeProto {
                op_type: "LSTM".into(),
                input: ["x", "w", "r"].map(String::from).to_vec(),
                attribute: vec![attribute],
                ..NodeProto::default()
            };
            let initializer = |name: &str, dims: &[i64]| InitializerProto {
                name: name.into(),
                dims: dims.to_vec(),
            };
            let mut graph = GraphProto {
                node: vec![node],
                input: vec![info("x", x)],
                ..GraphProto::default()
            };
            graph.initializer = vec![initializer("w", w), initializer("r", r)];
            // Their data are the affair of another check.
            check_graph(&graph)
        };
        with(2, &[-1, -1, 5], &[1, 8, 5], &[1, 8, 2]).unwrap();
        with(2, &[-1, -1, -1], &[2, 8, 5], &[2, 8, 2]).unwrap();
        for (hidden, x, w, r) in [
            (3, [-1, -1, 5], &[1, 8, 5][..], &[1, 8, 2][..]),
            (2, [-1, -1, 4], &[1, 8, 5], &[1, 8, 2]),
            (2, [-1, -1, 5], &[8, 5], &[1, 8, 2]),
            (2, [-1, -1, 5], &[1, 8, 5], &[1, 8, 3]),
            (i64::MAX, [-1, -1, 5], &[1, 8, 5], &[1, 8, 2]),
        ] {
            let error = with(hidden, &x, w, r).unwrap_err();
            assert!(error.contains("LSTM"), "{error}");
        }
    }
}
