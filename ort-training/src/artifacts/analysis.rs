//! What is known of a graph's values: their types, and which of them the loss depends on differentiably.

use std::collections::{HashMap, HashSet};

use prost::Message;
use prost::bytes::Bytes;

use super::error::{ArtifactsError, Result};
use super::native::Native;
use super::onnx::{
    Dimension, GraphProto, ModelProto, NodeProto, TensorProto, TensorType, TensorValues, data_type,
    tensor_info,
};

/// Constants up to this size take part in type inference (they may be shapes); larger ones are only described.
const SMALL: usize = 4096;

/// Types of the values of a graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Types(HashMap<String, TensorType>);

impl Types {
    /// Asks ONNX Runtime for the types of all values of `model`.
    pub(crate) fn infer(native: Native, model: &ModelProto) -> Result<Self> {
        let graph = model.graph.as_ref().expect("a model that was checked");
        let mut light_graph = GraphProto {
            initializer: Vec::new(),
            ..shallow(graph)
        };
        for tensor in &graph.initializer {
            if tensor.encoded_len() <= SMALL || tensor.elem_type() == data_type::STRING {
                light_graph.initializer.push(tensor.clone());
            } else {
                light_graph.input.push(describe(tensor));
            }
        }
        let light = ModelProto {
            graph: Some(light_graph),
            ..model.clone_without_graph()
        };
        let bytes = native.infer_types(&light.encode_to_vec())?;
        let inferred = ModelProto::decode(Bytes::from_owner(bytes))
            .map_err(|e| ArtifactsError::Runtime(format!("its model cannot be read: {e}")))?;
        let inferred = inferred.graph.unwrap_or_default();
        let mut types = HashMap::new();
        for info in inferred
            .value_info
            .iter()
            .chain(&inferred.input)
            .chain(&inferred.output)
        {
            if let Some(tensor) = info.tensor() {
                types.insert(info.label().to_owned(), tensor.clone());
            }
        }
        for tensor in &graph.initializer {
            if let Some(described) = describe(tensor).tensor() {
                types.insert(tensor.label().to_owned(), described.clone());
            }
        }
        Ok(Self(types))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&TensorType> {
        self.0.get(name)
    }

    pub(crate) fn elem_type(&self, name: &str) -> Option<i32> {
        self.0.get(name).and_then(|t| t.elem_type)
    }

    pub(crate) fn dims(&self, name: &str) -> Option<&[Dimension]> {
        self.0
            .get(name)
            .and_then(|t| t.shape.as_ref())
            .map(|s| s.dim.as_slice())
    }

    pub(crate) fn rank(&self, name: &str) -> Option<usize> {
        self.dims(name).map(<[_]>::len)
    }

    /// The shape when every dimension is a number.
    pub(crate) fn fixed_shape(&self, name: &str) -> Option<Vec<i64>> {
        self.dims(name)?.iter().map(Dimension::known).collect()
    }

    pub(crate) fn insert(&mut self, name: &str, elem_type: i32, dims: Option<Vec<Dimension>>) {
        if let Some(tensor) = tensor_info(name, elem_type, dims).tensor() {
            self.0.insert(name.to_owned(), tensor.clone());
        }
    }
}

impl ModelProto {
    pub(crate) fn clone_without_graph(&self) -> Self {
        Self {
            ir_version: self.ir_version,
            opset_import: self.opset_import.clone(),
            producer_name: self.producer_name.clone(),
            producer_version: self.producer_version.clone(),
            domain: self.domain.clone(),
            model_version: self.model_version,
            doc_string: self.doc_string.clone(),
            graph: None,
            metadata_props: self.metadata_props.clone(),
            training_info: self.training_info.clone(),
            functions: self.functions.clone(),
        }
    }
}

/// The graph without its initializers' values.
pub(crate) fn shallow(graph: &GraphProto) -> GraphProto {
    GraphProto {
        node: graph.node.clone(),
        name: graph.name.clone(),
        initializer: Vec::new(),
        sparse_initializer: graph.sparse_initializer.clone(),
        doc_string: graph.doc_string.clone(),
        input: graph.input.clone(),
        output: graph.output.clone(),
        value_info: graph.value_info.clone(),
        quantization_annotation: graph.quantization_annotation.clone(),
        metadata_props: graph.metadata_props.clone(),
    }
}

/// A tensor's name, type and shape as a graph value.
pub(crate) fn describe(tensor: &TensorProto) -> super::onnx::ValueInfoProto {
    let dims = tensor.dims.iter().map(|&d| Dimension::fixed(d)).collect();
    tensor_info(tensor.label(), tensor.elem_type(), Some(dims))
}

pub(crate) fn is_float(elem_type: i32) -> bool {
    matches!(
        elem_type,
        data_type::FLOAT | data_type::FLOAT16 | data_type::DOUBLE | data_type::BFLOAT16
    )
}

/// Whether no gradient flows into input `index` of a node: the rules of ONNX Runtime's gradient builder, and inputs
/// that are settings rather than operands.
pub(crate) fn stops_gradient(node: &NodeProto, index: usize) -> bool {
    match node.op() {
        "Cast" => !is_float(
            node.int("to")
                .and_then(|to| i32::try_from(to).ok())
                .unwrap_or_default(),
        ),
        "Not" | "And" | "Or" | "Xor" | "Equal" | "Less" | "LessOrEqual" | "Greater"
        | "GreaterOrEqual" | "IsInf" | "IsNaN" | "NonZero" | "Shape" | "Size" | "ArgMax"
        | "ArgMin" | "OneHot" | "Range" | "ConstantOfShape" | "Multinomial"
        | "RandomNormalLike" | "RandomUniformLike" | "EyeLike" => true,
        "BatchNormalization" => index >= 3,
        "Pow" | "Tile" | "TopK" | "Squeeze" | "Unsqueeze" | "Split" | "Reshape" | "Expand"
        | "Gather" | "GatherND" | "GatherElements" | "ReduceSum" | "ReduceMean" | "ReduceMax"
        | "ReduceMin" | "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp"
        | "ReduceProd" | "ReduceSumSquare" | "CumSum" | "Trilu" => index >= 1,
        "Clip"
        | "Pad"
        | "Dropout"
        | "Resize"
        | "Upsample"
        | "Slice"
        | "SoftmaxCrossEntropyLoss"
        | "NegativeLogLikelihoodLoss" => index >= 1,
        "QuantizeLinear" | "DequantizeLinear" => index >= 1,
        "Scatter" | "ScatterElements" | "ScatterND" => index == 1,
        "Where" => index == 0,
        "LSTM" | "GRU" | "RNN" => index == 4,
        _ => false,
    }
}

/// Values that the value `target` depends on along edges that carry a gradient.
pub(crate) fn differentiable_values(
    graph: &GraphProto,
    types: &Types,
    target: &str,
) -> HashSet<String> {
    let producers: HashMap<&str, &NodeProto> = graph
        .node
        .iter()
        .flat_map(|node| {
            node.output
                .iter()
                .map(move |output| (output.as_str(), node))
        })
        .collect();
    let mut found = HashSet::from([target.to_owned()]);
    let mut queue = vec![target];
    while let Some(value) = queue.pop() {
        let Some(node) = producers.get(value) else {
            continue;
        };
        for (index, input) in node.input.iter().enumerate() {
            let carries = !input.is_empty()
                && !stops_gradient(node, index)
                && types.elem_type(input).is_none_or(is_float);
            if carries && found.insert(input.clone()) {
                queue.push(input);
            }
        }
        // No gradient passes through a subgraph; what it uses counts, so that this is noticed.
        let mut captured = HashSet::new();
        for attribute in &node.attribute {
            attribute
                .g
                .iter()
                .chain(&attribute.graphs)
                .for_each(|g| used_values(g, &mut captured));
        }
        for value in captured {
            let own = producers
                .get_key_value(value.as_str())
                .map(|(name, _)| *name);
            if types.elem_type(&value).is_some_and(is_float) && found.insert(value) {
                queue.extend(own);
            }
        }
    }
    found
}

/// Values that depend on one of `parameters` along edges that carry a gradient, those included.
pub(crate) fn dependent_values<'a>(
    graph: &GraphProto,
    types: &Types,
    parameters: impl IntoIterator<Item = &'a str>,
) -> HashSet<String> {
    let mut found: HashSet<String> = parameters.into_iter().map(str::to_owned).collect();
    // ONNX requires nodes in topological order.
    for node in &graph.node {
        let depends = node
            .input
            .iter()
            .enumerate()
            .any(|(index, input)| found.contains(input) && !stops_gradient(node, index));
        if depends {
            let carried = node
                .output
                .iter()
                .filter(|o| types.elem_type(o).is_none_or(is_float));
            found.extend(carried.cloned());
        }
    }
    found
}

/// Values that nodes read or that the graph gives, inside subgraphs, too.
pub(crate) fn used_values(graph: &GraphProto, used: &mut HashSet<String>) {
    used.extend(graph.output.iter().map(|o| o.label().to_owned()));
    for node in &graph.node {
        used.extend(node.input.iter().cloned());
        for attribute in &node.attribute {
            attribute
                .g
                .iter()
                .chain(&attribute.graphs)
                .for_each(|g| used_values(g, used));
        }
    }
}

/// Runs `change` on a graph and removes the initializers that nothing reads any more.
pub(crate) fn without_leftovers<T>(
    graph: &mut GraphProto,
    change: impl FnOnce(&mut GraphProto) -> T,
) -> T {
    let (mut before, mut after) = (HashSet::new(), HashSet::new());
    used_values(graph, &mut before);
    let result = change(graph);
    used_values(graph, &mut after);
    graph
        .initializer
        .retain(|t| after.contains(t.label()) || !before.contains(t.label()));
    result
}

/// The constant behind a value: an initializer's, or a `Constant` node's.
pub(crate) fn constant(graph: &GraphProto, name: &str) -> Option<TensorValues> {
    if let Some(tensor) = graph.initializer.iter().find(|t| t.label() == name) {
        return tensor.values();
    }
    let node = graph
        .node
        .iter()
        .find(|n| n.op() == "Constant" && n.output_name(0) == Some(name))?;
    if let Some(tensor) = node.find("value").and_then(|a| a.t.as_ref()) {
        return tensor.values();
    }
    if let Some(value) = node.float("value_float") {
        return Some(TensorValues::Float(vec![value.into()]));
    }
    if let Some(values) = node.find("value_floats") {
        return Some(TensorValues::Float(
            values.floats.iter().map(|&v| v.into()).collect(),
        ));
    }
    if let Some(value) = node.int("value_int") {
        return Some(TensorValues::Int(vec![value]));
    }
    node.ints("value_ints")
        .map(|values| TensorValues::Int(values.to_vec()))
}
