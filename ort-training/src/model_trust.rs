//! What ONNX Runtime takes on trust when it loads a model: looked at before it does.
//!
//! - Sparse tensors are written into dense memory at the places that their indices say, without a look at the bounds
//!   (tensorprotoutils.cc, `CopySparseData`).
//! - A function of the model that calls itself is inlined without end (onnx's `InferShapeForFunctionNode`).
//! - ConvTranspose reads the second dimension of weights that may have none (`convTransposeShapeInference`).
//! - Gradients are copied into accumulation buffers without a look at their sizes (gradient_control.cc,
//!   `InPlaceAccumulatorV2`).
//! - Shape inference of convolutions and pooling divides by their strides, and subtracts them from stated lengths one by
//!   one (onnx's `convPoolShapeInference`).
//! - Shape inference reads constants that have less data than dimensions: see `tensor_data`.
//!
//! What is right by ONNX's rules passes. Ranks and shapes are looked at where the model states them.

use std::collections::BTreeMap;

use prost::Message;

use crate::shape::element_count;

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
    fn shape(&self) -> Option<&[DimensionProto]> {
        let tensor = self.r#type.as_ref()?.tensor_type.as_ref()?;
        Some(&tensor.shape.as_ref()?.dim)
    }
}

impl DimensionProto {
    /// Whether the two lengths are not known to differ.
    fn may_be(&self, other: &Self) -> bool {
        match (self.dim_value, other.dim_value) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct SparseTensorProto {
    #[prost(message, optional, tag = "1")]
    values: Option<ValuesProto>,
    #[prost(message, optional, tag = "2")]
    indices: Option<IndicesProto>,
    #[prost(int64, repeated, packed = "false", tag = "3")]
    dims: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct ValuesProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    dims: Vec<i64>,
    #[prost(string, tag = "8")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct IndicesProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(int32, repeated, tag = "5")]
    int32_data: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    int64_data: Vec<i64>,
    #[prost(bytes = "vec", optional, tag = "9")]
    raw_data: Option<Vec<u8>>,
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

/// The dimensions that a graph states of its values.
type Shapes<'a> = BTreeMap<&'a str, &'a [DimensionProto]>;

fn check_graph(graph: &GraphProto) -> Result<(), String> {
    for tensor in &graph.sparse_initializer {
        let name = tensor.values.as_ref().map_or("", |values| &values.name);
        check_sparse(tensor).map_err(|what| format!("sparse initializer {name:?}: {what}"))?;
    }
    let stated = graph.input.iter().chain(&graph.value_info);
    for info in stated.clone().chain(&graph.output) {
        let long = info.shape().unwrap_or_default().iter();
        if let Some(long) = long
            .filter_map(|dimension| dimension.dim_value)
            .find(|&length| length > LONGEST)
        {
            return Err(format!(
                "value {:?}: expected dimensions up to {LONGEST}, found {long}",
                info.name
            ));
        }
    }
    let shapes = stated
        .filter_map(|info| Some((info.name.as_str(), info.shape()?)))
        .collect();
    check_nodes(&graph.node, &shapes)?;
    for node in graph
        .node
        .iter()
        .filter(|node| node.op_type == "ConvTranspose")
    {
        let weights = graph
            .initializer
            .iter()
            .find(|tensor| node.input.get(1) == Some(&tensor.name));
        if let Some(weights) = weights {
            check_kernel(&weights.name, weights.dims.len())?;
        }
    }
    Ok(())
}

fn check_kernel(weights: &str, rank: usize) -> Result<(), String> {
    if rank < 3 {
        return Err(format!(
            "ConvTranspose: expected weights {weights:?} of rank 3 or more, found rank {rank}"
        ));
    }
    Ok(())
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
                check_sparse(tensor)
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
    let shape = |index: usize| shapes.get(node.input.get(index)?.as_str()).copied();
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
            Some(shape) => check_kernel(&node.input[1], shape.len()),
            None => Ok(()),
        },
        "InPlaceAccumulatorV2" => {
            let (Some(buffer), Some(gradient)) = (shape(0), shape(1)) else {
                return Ok(());
            };
            let fits = buffer.len() == gradient.len()
                && buffer
                    .iter()
                    .zip(gradient)
                    .all(|(one, other)| one.may_be(other));
            if fits {
                return Ok(());
            }
            let lengths = |shape: &[DimensionProto]| -> Vec<Option<i64>> {
                shape.iter().map(|dimension| dimension.dim_value).collect()
            };
            Err(format!(
                "gradient {:?}: expected the shape of its accumulation buffer, {:?}, found {:?}",
                node.input[1],
                lengths(buffer),
                lengths(gradient)
            ))
        }
        _ => Ok(()),
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

/// A shape of numbers that may be anything, and the number of its elements.
fn sized(what: &str, dims: &[i64]) -> Result<(Vec<usize>, usize), String> {
    let refuse = || format!("impossible dimensions {dims:?} of {what}");
    let shape: Vec<usize> = dims
        .iter()
        .map(|&dim| usize::try_from(dim).map_err(|_| refuse()))
        .collect::<Result<_, _>>()?;
    let count = element_count(&shape).map_err(|_| refuse())?;
    Ok((shape, count))
}

fn check_sparse(tensor: &SparseTensorProto) -> Result<(), String> {
    let empty = ValuesProto::default();
    let (shape, dense) = sized("the tensor", &tensor.dims)?;
    let (_, count) = sized("its values", &tensor.values.as_ref().unwrap_or(&empty).dims)?;
    // Without values ONNX Runtime looks at no index. A tensor without dimensions has one element.
    if count == 0 {
        return Ok(());
    }
    let indices = tensor.indices.clone().unwrap_or_default();
    let (indices_shape, indices_count) = sized("its indices", &indices.dims)?;
    let places = indices.values()?;
    let per_value = match indices_shape.as_slice() {
        [_] => 1,
        [_, rank] if *rank == shape.len() => *rank,
        _ => {
            return Err(format!(
                "expected indices of shape [{count}] or [{count}, {}], found {indices_shape:?}",
                shape.len()
            ));
        }
    };
    if indices_count != places.len() || count.checked_mul(per_value) != Some(indices_count) {
        return Err(format!(
            "expected indices for {count} values, found {} numbers in shape {indices_shape:?}",
            places.len()
        ));
    }
    let limits = if indices_shape.len() == 1 {
        &[dense]
    } else {
        shape.as_slice()
    };
    for place in places.chunks(per_value.max(1)) {
        for (&index, &limit) in place.iter().zip(limits) {
            if usize::try_from(index).map_or(true, |index| index >= limit) {
                return Err(format!("expected indices below {limit}, found {index}"));
            }
        }
    }
    Ok(())
}

impl IndicesProto {
    fn values(&self) -> Result<Vec<i64>, String> {
        // TensorProto.DataType: INT8, INT16, INT32, INT64.
        fn read<const N: usize>(raw: &[u8], number: fn([u8; N]) -> i64) -> Vec<i64> {
            raw.as_chunks()
                .0
                .iter()
                .map(|bytes| number(*bytes))
                .collect()
        }
        match (self.data_type, &self.raw_data) {
            (3, Some(raw)) => Ok(read(raw, |bytes| i8::from_le_bytes(bytes).into())),
            (5, Some(raw)) => Ok(read(raw, |bytes| i16::from_le_bytes(bytes).into())),
            (6, Some(raw)) => Ok(read(raw, |bytes| i32::from_le_bytes(bytes).into())),
            (7, Some(raw)) => Ok(read(raw, i64::from_le_bytes)),
            (6, None) => Ok(self.int32_data.iter().map(|&index| index.into()).collect()),
            (7, None) => Ok(self.int64_data.clone()),
            (other, _) => Err(format!(
                "expected indices of type int8, int16, int32 or int64 inside the model, found type {other}"
            )),
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

    fn sparse(dims: &[i64], count: i64, indices: &[i64], shape: &[i64]) -> SparseTensorProto {
        SparseTensorProto {
            values: Some(ValuesProto {
                dims: vec![count],
                name: "w".into(),
            }),
            indices: Some(IndicesProto {
                dims: shape.to_vec(),
                data_type: 7,
                int64_data: indices.to_vec(),
                ..IndicesProto::default()
            }),
            dims: dims.to_vec(),
        }
    }

    /// The answer for a model that has the tensor as an initializer, which is that for one that has it in a branch.
    fn check_tensor(tensor: SparseTensorProto) -> Result<(), String> {
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
        let answer = check(&model(inner));
        for attribute in [branch, constant] {
            let node = NodeProto {
                attribute: vec![attribute],
                ..NodeProto::default()
            };
            let graph = GraphProto {
                node: vec![node],
                ..GraphProto::default()
            };
            assert_eq!(check(&model(graph)).is_ok(), answer.is_ok());
        }
        answer
    }

    #[test]
    fn sparse_tensors_in_order_pass() {
        for tensor in [
            sparse(&[2, 3], 2, &[0, 5], &[2]),
            sparse(&[2, 3], 2, &[0, 0, 1, 2], &[2, 2]),
            sparse(&[0], 0, &[], &[0]),
            sparse(&[], 1, &[0], &[1]),
        ] {
            check_tensor(tensor).unwrap();
        }
        let mut small = sparse(&[300], 2, &[], &[2]);
        small.indices = Some(IndicesProto {
            dims: vec![2],
            data_type: 5,
            raw_data: Some(vec![1, 0, 43, 1]),
            ..IndicesProto::default()
        });
        check_tensor(small.clone()).unwrap();
        small.dims = vec![299];
        let error = check_tensor(small).unwrap_err();
        assert!(error.contains("below 299, found 299"), "{error}");
    }

    #[test]
    fn indices_out_of_range_are_named() {
        for (tensor, words) in [
            (sparse(&[2, 3], 1, &[6], &[1]), "below 6, found 6"),
            (sparse(&[2, 3], 1, &[-1], &[1]), "below 6, found -1"),
            (sparse(&[2, 3], 1, &[1, 3], &[1, 2]), "below 3, found 3"),
            (sparse(&[2, 3], 1, &[0], &[1, 1]), "[1, 1]"),
            (sparse(&[2, 3], 2, &[0], &[1]), "2 values"),
            (sparse(&[2, 3], 2, &[0], &[2]), "found 1 numbers"),
            (sparse(&[2, 3], i64::MAX, &[0], &[1]), "found 1 numbers"),
            (sparse(&[2, -3], 1, &[0], &[1]), "impossible"),
            (sparse(&[i64::MAX, 3], 1, &[0], &[1]), "impossible"),
        ] {
            let error = check_tensor(tensor).unwrap_err();
            assert!(error.contains(words), "{words:?} is not in {error}");
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
}
