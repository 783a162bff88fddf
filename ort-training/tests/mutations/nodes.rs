//! Changes of nodes and of the edges between them.

use ort_training::artifacts::onnx::{AttributeProto, GraphProto, NodeProto, attribute_type};

use crate::model::{change_attribute, new_attribute, odd_name};
use crate::random::Random;

/// Operators that a node is turned into, or that are put on an edge: of each family some.
const OPERATORS: [&str; 64] = [
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Clip",
    "Compress",
    "Concat",
    "ConstantOfShape",
    "Conv",
    "ConvTranspose",
    "CumSum",
    "DepthToSpace",
    "Div",
    "Dropout",
    "Einsum",
    "Equal",
    "Expand",
    "EyeLike",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gemm",
    "GlobalAveragePool",
    "Greater",
    "Identity",
    "InstanceNormalization",
    "LayerNormalization",
    "LogSoftmax",
    "LSTM",
    "MatMul",
    "MaxPool",
    "Mod",
    "NonZero",
    "OneHot",
    "Pad",
    "Pow",
    "Range",
    "ReduceMean",
    "ReduceSum",
    "Relu",
    "Reshape",
    "Resize",
    "ReverseSequence",
    "ScatterElements",
    "ScatterND",
    "Shape",
    "Slice",
    "Softmax",
    "SoftmaxCrossEntropyLoss",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Sub",
    "Sum",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
];

/// Those of ONNX Runtime's own domain.
const MICROSOFT: [&str; 18] = [
    "AdamWOptimizer",
    "SGDOptimizerV2",
    "InPlaceAccumulatorV2",
    "SoftmaxCrossEntropyLossGrad",
    "ReluGrad",
    "GatherGrad",
    "ConvGrad",
    "SliceGrad",
    "ConcatTraining",
    "SplitTraining",
    "BroadcastGradientArgs",
    "ReduceSumTraining",
    "FusedMatMul",
    "BiasGelu",
    "Gelu",
    "SoftmaxGrad_13",
    "LayerNormalizationGrad",
    "DropoutGrad",
];

const ATTRIBUTES: [&str; 24] = [
    "axis",
    "axes",
    "alpha",
    "beta",
    "dilations",
    "epsilon",
    "group",
    "ignore_index",
    "kernel_shape",
    "keepdims",
    "mode",
    "num_outputs",
    "pads",
    "perm",
    "reduction",
    "strides",
    "to",
    "transA",
    "transB",
    "training_mode",
    "value",
    "hidden_size",
    "largest",
    "blocksize",
];

pub fn domain(random: &mut Random) -> String {
    let domains = [
        "",
        "com.microsoft",
        "ai.onnx",
        "ai.onnx.ml",
        "ai.onnx.training",
        "com.microsoft.nchwc",
        "nobody's",
    ];
    (*random.pick(&domains)).to_owned()
}

pub fn attribute_name(random: &mut Random) -> String {
    (*random.pick(&ATTRIBUTES)).to_owned()
}

/// The name of a value of the graph, or an odd one.
pub fn value_name(graph: &GraphProto, random: &mut Random) -> String {
    if random.one_in(12) {
        return odd_name(random);
    }
    let names: Vec<&String> = graph
        .node
        .iter()
        .flat_map(|node| node.input.iter().chain(&node.output))
        .chain(graph.input.iter().filter_map(|info| info.name.as_ref()))
        .collect();
    match names.len() {
        0 => odd_name(random),
        len => names[random.below(len)].clone(),
    }
}

pub fn change(graph: &mut GraphProto, random: &mut Random) {
    if graph.node.is_empty() {
        return;
    }
    let at = random.below(graph.node.len());
    let name = value_name(graph, random);
    let other = random.below(graph.node.len());
    let node = &mut graph.node[at];
    match random.below(20) {
        0..=2 => rename(node, random),
        3 | 4 => {
            // An input becomes another value: of another shape, of later nodes (a cycle), or none.
            if let Some(input) = random.any(&mut node.input) {
                *input = name;
            }
        }
        5 => {
            if let Some(input) = random.any(&mut node.input) {
                input.clear();
            }
        }
        6 => match random.one_in(2) {
            true => drop(node.input.pop()),
            false => node.input.push(name),
        },
        7 => {
            let len = node.input.len();
            if len > 1 {
                node.input.swap(random.below(len), random.below(len));
            }
        }
        8 => {
            if let Some(output) = random.any(&mut node.output) {
                *output = name;
            }
        }
        9 => match random.one_in(2) {
            true => drop(node.output.pop()),
            false => node.output.push("more".to_owned()),
        },
        10..=12 => {
            if let Some(attribute) = random.any(&mut node.attribute) {
                change_attribute(attribute, random);
            } else {
                node.attribute.push(new_attribute(random));
            }
        }
        13 => node.attribute.push(new_attribute(random)),
        14 => drop(node.attribute.pop()),
        15 => node.domain = Some(domain(random)),
        16 => drop(graph.node.remove(at)),
        17 => {
            let copy = node.clone();
            let to = random.place(graph.node.len());
            graph.node.insert(to, copy);
        }
        18 => match random.one_in(4) {
            true => nest(graph, at, random),
            false => graph.node.swap(at, other),
        },
        _ => put_between(graph, at, random),
    }
}

fn rename(node: &mut NodeProto, random: &mut Random) {
    if random.one_in(4) {
        node.op_type = Some((*random.pick(&MICROSOFT)).to_owned());
        node.domain = Some("com.microsoft".to_owned());
    } else {
        node.op_type = Some((*random.pick(&OPERATORS)).to_owned());
        node.domain = None;
    }
}

/// Puts a node on an edge.
fn put_between(graph: &mut GraphProto, at: usize, random: &mut Random) {
    let second = value_name(graph, random);
    let Some(edge) = random.any(&mut graph.node[at].input) else {
        return;
    };
    let name = format!("{edge} between");
    let mut input = vec![std::mem::replace(edge, name.clone())];
    if random.one_in(2) {
        input.push(second);
    }
    let mut node = NodeProto {
        input,
        output: vec![name],
        op_type: Some((*random.pick(&OPERATORS)).to_owned()),
        ..NodeProto::default()
    };
    for _ in 0..random.below(3) {
        node.attribute.push(new_attribute(random));
    }
    graph.node.insert(at, node);
}

/// Puts a copy of the graph into a node of it.
fn nest(graph: &mut GraphProto, at: usize, random: &mut Random) {
    let inner = graph.clone();
    let (operator, names): (&str, &[&str]) = match random.below(3) {
        0 => ("If", &["then_branch", "else_branch"]),
        1 => ("Loop", &["body"]),
        _ => ("Scan", &["body"]),
    };
    let node = &mut graph.node[at];
    node.op_type = Some(operator.to_owned());
    node.domain = None;
    node.attribute = names
        .iter()
        .map(|name| AttributeProto {
            name: Some((*name).to_owned()),
            // GRAPH of the schema's AttributeType.
            r#type: Some(5),
            g: Some(inner.clone()),
            ..AttributeProto::default()
        })
        .collect();
    if operator == "Scan" {
        node.attribute.push(AttributeProto {
            name: Some("num_scan_inputs".to_owned()),
            r#type: Some(attribute_type::INT),
            i: Some(1),
            ..AttributeProto::default()
        });
    }
}
