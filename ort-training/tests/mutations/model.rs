//! Changes of models that leave a well-formed protobuf message: what only ONNX Runtime can refuse.

use ort_training::artifacts::onnx::{
    AttributeProto, Bytes, Dimension, DimensionValue, FunctionProto, GraphProto, MapType,
    ModelProto, NodeProto, OperatorSetIdProto, SequenceType, SparseTensorProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TypeProto, TypeValue, ValueInfoProto,
    attribute_type,
};
use prost::Message;

use crate::nodes;
use crate::random::Random;

const NUMBERS: [i64; 14] = [
    0,
    1,
    -1,
    2,
    3,
    -2,
    7,
    64,
    65_537,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 40,
    i64::MAX,
    i64::MIN,
];

/// The model with one or two things changed; bytes of it one time in eight.
pub fn mutate(model: &[u8], random: &mut Random) -> Vec<u8> {
    if random.one_in(8) {
        let mut bytes = model.to_vec();
        crate::bytes::mutate(&mut bytes, random);
        return match ModelProto::decode(bytes.as_slice()) {
            Ok(model) => without_hazard(model).unwrap_or(bytes),
            Err(_) => bytes,
        };
    }
    let mut model = ModelProto::decode(model).expect("the fixtures are models");
    // More than one change seldom leaves anything that loads.
    for _ in 0..=random.below(8) / 6 {
        change(&mut model, random);
    }
    let bytes = model.encode_to_vec();
    without_hazard(model).unwrap_or(bytes)
}

/// The model, if it accumulates gradients, with each brought to the shape of its buffer first: a run fails where it has
/// another size. Without that ONNX Runtime writes behind the buffer's end (hazard `gradient-shape`), which may be noticed
/// inputs later or never, and a test cannot tell where that came from.
fn without_hazard(mut model: ModelProto) -> Option<Vec<u8>> {
    let mut found = false;
    if let Some(graph) = &mut model.graph {
        guard(&mut graph.node, &mut found);
    }
    for function in &mut model.functions {
        guard(&mut function.node, &mut found);
    }
    found.then(|| model.encode_to_vec())
}

fn guard(nodes: &mut Vec<NodeProto>, found: &mut bool) {
    let mut guarded = Vec::with_capacity(nodes.len());
    for mut node in std::mem::take(nodes) {
        for attribute in &mut node.attribute {
            for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
                guard(&mut graph.node, found);
            }
        }
        let accumulates = node.op_type.as_deref() == Some("InPlaceAccumulatorV2");
        if let (true, [buffer, gradient, ..]) = (accumulates, node.input.as_mut_slice()) {
            *found = true;
            let at = guarded.len();
            let (shape, shaped) = (format!("shape for {at}"), format!("guarded for {at}"));
            let made = |operator: &str, input: Vec<String>, output: &str| NodeProto {
                op_type: Some(operator.to_owned()),
                input,
                output: vec![output.to_owned()],
                ..NodeProto::default()
            };
            guarded.push(made("Shape", vec![buffer.clone()], &shape));
            guarded.push(made("Reshape", vec![gradient.clone(), shape], &shaped));
            *gradient = shaped;
        }
        guarded.push(node);
    }
    *nodes = guarded;
}

fn change(model: &mut ModelProto, random: &mut Random) {
    if random.one_in(16) {
        return around(model, random);
    }
    let graph = model.graph.get_or_insert_default();
    match random.below(10) {
        0..=4 => nodes::change(graph, random),
        5 | 6 => {
            let GraphProto {
                initializer, node, ..
            } = graph;
            let constants = node
                .iter_mut()
                .flat_map(|node| &mut node.attribute)
                .filter_map(|attribute| attribute.t.as_mut());
            let mut tensors: Vec<&mut TensorProto> =
                initializer.iter_mut().chain(constants).collect();
            if let Some(tensor) = random.any(&mut tensors) {
                change_tensor(tensor, random);
            }
        }
        7 => {
            let mut infos: Vec<&mut ValueInfoProto> = graph
                .input
                .iter_mut()
                .chain(&mut graph.output)
                .chain(&mut graph.value_info)
                .collect();
            if let Some(info) = random.any(&mut infos) {
                change_type(info.r#type.get_or_insert_default(), random);
            }
        }
        8 => change_list(graph, random),
        _ => change_initializers(graph, random),
    }
}

/// What stands around the graph: versions, operator sets, functions, metadata.
fn around(model: &mut ModelProto, random: &mut Random) {
    match random.below(7) {
        0 => model.ir_version = Some(*random.pick(&[0, 3, 4, 8, 10, 11, 99, i64::MAX, -1])),
        1 | 2 => {
            let version = *random.pick(&[0, -1, 1, 6, 7, 9, 11, 13, 17, 18, 21, 22, 99, i64::MAX]);
            if let Some(opset) = random.any(&mut model.opset_import) {
                opset.version = Some(version);
            }
        }
        3 => {
            let domain = nodes::domain(random);
            if let Some(opset) = random.any(&mut model.opset_import) {
                opset.domain = Some(domain);
            }
        }
        4 => {
            let at = random.place(model.opset_import.len());
            let opset = OperatorSetIdProto {
                domain: Some(nodes::domain(random)),
                version: Some(*random.pick(&[1, 13, 17])),
            };
            model.opset_import.insert(at, opset);
        }
        5 => add_function(model, random),
        _ => model.metadata_props.push(StringStringEntryProto {
            key: random.one_in(2).then(|| "\u{fffd}\0key".to_owned()),
            value: random.one_in(2).then(|| "v".repeat(1 << 16)),
        }),
    }
}

/// Makes one of the nodes a call of a function of the model; the function may call itself.
fn add_function(model: &mut ModelProto, random: &mut Random) {
    let graph = model.graph.get_or_insert_default();
    let Some(node) = random.any(&mut graph.node) else {
        return;
    };
    let inner = node.clone();
    node.op_type = Some("Changed".to_owned());
    node.domain = Some("changed".to_owned());
    let mut body = vec![inner];
    if random.one_in(3) {
        body.push(node.clone());
    }
    model.functions.push(FunctionProto {
        name: Some("Changed".to_owned()),
        domain: Some("changed".to_owned()),
        input: node.input.clone(),
        output: node.output.clone(),
        attribute: node
            .attribute
            .iter()
            .filter_map(|attribute| attribute.name.clone())
            .collect(),
        node: body,
        opset_import: model.opset_import.clone(),
        ..FunctionProto::default()
    });
    model.opset_import.push(OperatorSetIdProto {
        domain: Some("changed".to_owned()),
        version: Some(1),
    });
}

pub fn change_tensor(tensor: &mut TensorProto, random: &mut Random) {
    match random.below(9) {
        0 => {
            let number = *random.pick(&NUMBERS);
            match random.any(&mut tensor.dims) {
                Some(dim) => *dim = number,
                None => tensor.dims.push(number),
            }
        }
        1 => {
            let at = random.place(tensor.dims.len());
            tensor.dims.insert(at, *random.pick(&NUMBERS));
        }
        2 => drop(tensor.dims.pop()),
        3 => tensor.data_type = Some(random.below(26) as i32),
        4 => {
            let mut raw = tensor.raw_data.clone().unwrap_or_default().to_vec();
            match random.below(3) {
                0 => drop(raw.pop()),
                1 => raw.extend([0xff; 8]),
                _ => raw.clear(),
            }
            tensor.raw_data = Some(Bytes::from(raw));
        }
        5 => {
            // Other numbers of the right size: sizes, axes and indices are initializers, too.
            let mut raw = tensor.raw_data.clone().unwrap_or_default().to_vec();
            let number = random.pick(&NUMBERS).to_le_bytes();
            for (byte, new) in raw.iter_mut().zip(number.iter().cycle()) {
                *byte = *new;
            }
            if !raw.is_empty() {
                tensor.raw_data = Some(Bytes::from(raw));
            }
            for value in &mut tensor.int64_data {
                *value = *random.pick(&NUMBERS);
            }
        }
        6 => {
            tensor.raw_data = None;
            match random.below(3) {
                0 => tensor.float_data = vec![f32::NAN; random.below(64)],
                1 => tensor.int64_data = vec![*random.pick(&NUMBERS); random.below(64)],
                _ => tensor.string_data = vec![Bytes::from_static(b"\xff\0"); random.below(8)],
            }
        }
        7 => {
            tensor.data_location = Some(1);
            let entry = |key: &str, value: &str| StringStringEntryProto {
                key: Some(key.to_owned()),
                value: Some(value.to_owned()),
            };
            let location = ["", "nowhere", "../../../etc/passwd", "/dev/zero", "."];
            tensor.external_data = vec![entry("location", random.pick::<&str>(&location))];
            for key in ["offset", "length"] {
                if random.one_in(2) {
                    let value = *random.pick(&["0", "-1", "x", "99999999999999999999", "4096"]);
                    tensor.external_data.push(entry(key, value));
                }
            }
        }
        _ => tensor.name = Some(odd_name(random)),
    }
}

fn change_type(kind: &mut TypeProto, random: &mut Random) {
    if random.one_in(12) {
        let inner = kind.clone();
        kind.value = match random.below(3) {
            0 => None,
            1 => Some(TypeValue::Sequence(Box::new(SequenceType {
                elem_type: Some(Box::new(inner)),
            }))),
            _ => Some(TypeValue::Map(Box::new(MapType {
                key_type: Some(7),
                value_type: random.one_in(2).then(|| Box::new(inner)),
            }))),
        };
        return;
    }
    let Some(TypeValue::Tensor(tensor)) = &mut kind.value else {
        return;
    };
    if random.one_in(4) {
        tensor.elem_type = Some(random.below(26) as i32);
        return;
    }
    if random.one_in(8) {
        tensor.shape = random.one_in(2).then(TensorShapeProto::default);
        return;
    }
    let dims = &mut tensor.shape.get_or_insert_default().dim;
    let value = match random.below(4) {
        0 => None,
        1 => Some(DimensionValue::DimParam(odd_name(random))),
        _ => Some(DimensionValue::DimValue(*random.pick(&NUMBERS))),
    };
    let dimension = Dimension {
        value,
        denotation: None,
    };
    match random.below(4) {
        0 => drop(dims.pop()),
        1 => {
            let at = random.place(dims.len());
            dims.insert(at, dimension);
        }
        _ => match random.any(dims) {
            Some(place) => *place = dimension,
            None => dims.push(dimension),
        },
    }
}

/// Changes which inputs, outputs and known values a graph lists.
fn change_list(graph: &mut GraphProto, random: &mut Random) {
    let name = nodes::value_name(graph, random);
    let list = match random.below(5) {
        0 | 1 => &mut graph.input,
        2 | 3 => &mut graph.output,
        _ => &mut graph.value_info,
    };
    if list.is_empty() {
        return;
    }
    let at = random.below(list.len());
    match random.below(5) {
        0 => drop(list.remove(at)),
        1 => list.insert(0, list[at].clone()),
        2 => {
            let other = random.below(list.len());
            list.swap(at, other);
        }
        3 => list[at].name = Some(name),
        _ => {
            let copy = ValueInfoProto {
                name: Some(name),
                ..list[at].clone()
            };
            list.push(copy);
        }
    }
}

fn change_initializers(graph: &mut GraphProto, random: &mut Random) {
    let name = nodes::value_name(graph, random);
    if graph.initializer.is_empty() || random.one_in(3) {
        // A value gets a constant, too, or loses its producer to it.
        graph.initializer.push(TensorProto {
            name: Some(name),
            data_type: Some(*random.pick(&[1, 1, 7, 9, 11])),
            dims: vec![2; random.below(3)],
            raw_data: Some(Bytes::from(vec![0; 4 << random.below(4)])),
            ..TensorProto::default()
        });
        return;
    }
    let at = random.below(graph.initializer.len());
    match random.below(4) {
        0 => drop(graph.initializer.remove(at)),
        1 => graph.initializer.push(graph.initializer[at].clone()),
        2 => graph.initializer[at].name = Some(name),
        _ => {
            let values = graph.initializer.remove(at);
            let indices = TensorProto {
                data_type: Some(7),
                dims: vec![1],
                int64_data: vec![*random.pick(&NUMBERS)],
                ..TensorProto::default()
            };
            graph.sparse_initializer.push(SparseTensorProto {
                dims: values.dims.clone(),
                values: Some(values),
                indices: random.one_in(2).then_some(indices),
            });
        }
    }
}

pub fn change_attribute(attribute: &mut AttributeProto, random: &mut Random) {
    match random.below(8) {
        0 => attribute.name = Some(nodes::attribute_name(random)),
        1 => attribute.r#type = Some(random.below(16) as i32),
        2 => {
            attribute.f =
                Some(*random.pick(&[0.0, -1.0, f32::NAN, f32::INFINITY, f32::MIN, 1e-45]));
        }
        3 => {
            let texts: [&[u8]; 6] = [
                b"",
                b"none",
                b"sum",
                b"SAME_UPPER",
                b"\xff\xfe\0",
                b"linear",
            ];
            attribute.s = Some(Bytes::from_static(random.pick::<&[u8]>(&texts)));
        }
        4 => {
            let number = *random.pick(&NUMBERS);
            match random.any(&mut attribute.ints) {
                Some(value) => *value = number,
                None => attribute.ints.push(number),
            }
        }
        5 => match random.one_in(2) {
            true => drop(attribute.ints.pop()),
            false => attribute.ints.push(*random.pick(&NUMBERS)),
        },
        _ if attribute.t.is_some() => {
            change_tensor(attribute.t.as_mut().expect("looked at above"), random);
        }
        _ => attribute.i = Some(*random.pick(&NUMBERS)),
    }
}

/// An attribute that a node may have or not.
pub fn new_attribute(random: &mut Random) -> AttributeProto {
    let mut attribute = AttributeProto {
        name: Some(nodes::attribute_name(random)),
        ..AttributeProto::default()
    };
    match random.below(4) {
        0 => {
            attribute.r#type = Some(attribute_type::INTS);
            attribute.ints = (0..random.below(5))
                .map(|_| *random.pick(&NUMBERS))
                .collect();
        }
        1 => {
            attribute.r#type = Some(attribute_type::FLOAT);
            attribute.f = Some(*random.pick(&[0.0, 1.0, f32::NAN]));
        }
        _ => {
            attribute.r#type = Some(attribute_type::INT);
            attribute.i = Some(*random.pick(&NUMBERS));
        }
    }
    attribute
}

pub fn odd_name(random: &mut Random) -> String {
    match random.below(6) {
        0 => String::new(),
        1 => "n".repeat(1 << 16),
        2 => "größe \u{1F98A}".to_owned(),
        3 => "a\0b".to_owned(),
        4 => "%s%n/../".to_owned(),
        _ => "name".to_owned(),
    }
}
