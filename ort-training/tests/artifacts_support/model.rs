//! Small ONNX models, put together in code.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ort_training::artifacts::onnx::{
    AttributeProto, Bytes, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto, TensorType,
    TypeProto, TypeValue, ValueInfoProto, attribute_type, data_type,
};
use prost::Message;

/// A value of an attribute.
pub enum Attr<'a> {
    Int(i64),
    Float(f32),
    Ints(&'a [i64]),
    Text(&'a str),
}

pub struct Model {
    pub proto: ModelProto,
}

impl Model {
    pub fn new(opset: i64) -> Self {
        Self {
            proto: ModelProto {
                ir_version: Some(8),
                producer_name: Some("test".to_owned()),
                opset_import: vec![OperatorSetIdProto {
                    domain: Some(String::new()),
                    version: Some(opset),
                }],
                graph: Some(GraphProto {
                    name: Some("forward".to_owned()),
                    ..GraphProto::default()
                }),
                ..ModelProto::default()
            },
        }
    }

    pub fn graph(&mut self) -> &mut GraphProto {
        self.proto.graph.as_mut().expect("made above")
    }

    pub fn input(mut self, name: &str, dims: &[i64]) -> Self {
        self.graph().input.push(info(name, data_type::FLOAT, dims));
        self
    }

    pub fn input_of(mut self, name: &str, elem_type: i32, dims: &[i64]) -> Self {
        self.graph().input.push(info(name, elem_type, dims));
        self
    }

    pub fn output(mut self, name: &str, dims: &[i64]) -> Self {
        self.graph().output.push(info(name, data_type::FLOAT, dims));
        self
    }

    pub fn weight(mut self, name: &str, dims: &[i64], values: &[f64]) -> Self {
        let raw: Vec<u8> = values
            .iter()
            .flat_map(|&v| (v as f32).to_le_bytes())
            .collect();
        self.graph().initializer.push(TensorProto {
            name: Some(name.to_owned()),
            data_type: Some(data_type::FLOAT),
            dims: dims.to_vec(),
            raw_data: Some(Bytes::from(raw)),
            ..TensorProto::default()
        });
        self
    }

    pub fn integers(mut self, name: &str, values: &[i64]) -> Self {
        self.graph().initializer.push(TensorProto {
            name: Some(name.to_owned()),
            data_type: Some(data_type::INT64),
            dims: vec![values.len() as i64],
            int64_data: values.to_vec(),
            ..TensorProto::default()
        });
        self
    }

    /// A constant of a formula: without dimensions, so that it is not taken for a parameter.
    pub fn scalar(mut self, name: &str, value: f32) -> Self {
        self.graph().initializer.push(TensorProto {
            name: Some(name.to_owned()),
            data_type: Some(data_type::FLOAT),
            float_data: vec![value],
            ..TensorProto::default()
        });
        self
    }

    pub fn flag(mut self, name: &str, value: bool) -> Self {
        self.graph().initializer.push(TensorProto {
            name: Some(name.to_owned()),
            data_type: Some(data_type::BOOL),
            int32_data: vec![value.into()],
            ..TensorProto::default()
        });
        self
    }

    pub fn node(self, op_type: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        self.node_with(op_type, inputs, outputs, &[])
    }

    pub fn node_with(
        mut self,
        op_type: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, Attr)],
    ) -> Self {
        let name = format!("{op_type}_{}", self.graph().node.len());
        let attribute = attributes
            .iter()
            .map(|(name, value)| {
                let mut attribute = AttributeProto {
                    name: Some((*name).to_owned()),
                    ..AttributeProto::default()
                };
                match value {
                    Attr::Int(v) => {
                        (attribute.i, attribute.r#type) = (Some(*v), Some(attribute_type::INT))
                    }
                    Attr::Float(v) => {
                        (attribute.f, attribute.r#type) = (Some(*v), Some(attribute_type::FLOAT))
                    }
                    Attr::Ints(v) => {
                        (attribute.ints, attribute.r#type) =
                            (v.to_vec(), Some(attribute_type::INTS))
                    }
                    Attr::Text(v) => {
                        attribute.s = Some(Bytes::copy_from_slice(v.as_bytes()));
                        attribute.r#type = Some(attribute_type::STRING);
                    }
                }
                attribute
            })
            .collect();
        self.graph().node.push(NodeProto {
            input: inputs.iter().map(|s| s.to_string()).collect(),
            output: outputs.iter().map(|s| s.to_string()).collect(),
            name: Some(name),
            op_type: Some(op_type.to_owned()),
            attribute,
            ..NodeProto::default()
        });
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.proto.encode_to_vec()
    }
}

/// The bytes of a weight that protobuf cannot hold.
pub const TOO_LARGE: u64 = 16 * 1024 * 36 * 1024 * 4;

/// Writes `y = x·w + b` with its weight, of `TOO_LARGE` bytes, in a file beside it: zeros, which take no place on the disk,
/// but for 2 as its first element and 3 as its last. `x` has 16 × 1024 elements, `b` is 0.5.
pub fn more_than_protobuf_holds(folder: &Path) -> PathBuf {
    let (rows, columns) = (16 * 1024, 36 * 1024);
    let weights = fs::File::create(folder.join("weights.bin")).expect("made");
    weights.set_len(TOO_LARGE).expect("sparse");
    for (value, offset) in [(2f32, 0), (3f32, TOO_LARGE - 4)] {
        weights
            .write_all_at(&value.to_le_bytes(), offset)
            .expect("written");
    }
    let mut model = Model::new(17)
        .input("x", &[1, rows])
        .weight("w", &[rows, columns], &[])
        .node("MatMul", &["x", "w"], &["h"])
        .weight("b", &[columns], &vec![0.5; columns as usize])
        .node("Add", &["h", "b"], &["y"])
        .output("y", &[1, columns]);
    let tensor = &mut model.graph().initializer[0];
    tensor.raw_data = None;
    tensor.data_location = Some(1);
    tensor.external_data = vec![StringStringEntryProto {
        key: Some("location".to_owned()),
        value: Some("weights.bin".to_owned()),
    }];
    let path = folder.join("model.onnx");
    fs::write(&path, model.bytes()).expect("written");
    path
}

/// A tensor value; -1 is a dimension without a number, each with a name of its own.
pub fn info(name: &str, elem_type: i32, dims: &[i64]) -> ValueInfoProto {
    let dim = dims
        .iter()
        .enumerate()
        .map(|(i, &d)| Dimension {
            value: Some(if d < 0 {
                DimensionValue::DimParam(format!("free{i}"))
            } else {
                DimensionValue::DimValue(d)
            }),
            denotation: None,
        })
        .collect();
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto {
            value: Some(TypeValue::Tensor(TensorType {
                elem_type: Some(elem_type),
                shape: Some(TensorShapeProto { dim }),
            })),
            denotation: None,
        }),
        ..ValueInfoProto::default()
    }
}

/// The same model in double precision.
pub fn to_double(model: &[u8]) -> Vec<u8> {
    let mut proto = ModelProto::decode(model).expect("a model");
    let graph = proto.graph.as_mut().expect("a graph");
    for info in graph
        .input
        .iter_mut()
        .chain(&mut graph.output)
        .chain(&mut graph.value_info)
    {
        match info.r#type.as_mut().and_then(|t| t.value.as_mut()) {
            Some(TypeValue::Tensor(tensor)) if tensor.elem_type == Some(data_type::FLOAT) => {
                tensor.elem_type = Some(data_type::DOUBLE);
            }
            _ => {}
        }
    }
    let settings: Vec<String> = graph
        .node
        .iter()
        .filter(|n| n.op_type.as_deref() == Some("Resize"))
        .flat_map(|n| n.input[1..].iter().cloned())
        .collect();
    for tensor in &mut graph.initializer {
        if !settings.contains(tensor.name.as_ref().expect("named")) {
            double_tensor(tensor);
        }
    }
    for node in &mut graph.node {
        for attribute in &mut node.attribute {
            if let Some(tensor) = &mut attribute.t {
                double_tensor(tensor);
            }
            if node.op_type.as_deref() == Some("Cast")
                && attribute.i == Some(data_type::FLOAT.into())
            {
                attribute.i = Some(data_type::DOUBLE.into());
            }
        }
    }
    proto.encode_to_vec()
}

fn double_tensor(tensor: &mut TensorProto) {
    if tensor.data_type != Some(data_type::FLOAT) {
        return;
    }
    let values: Vec<f32> = match &tensor.raw_data {
        Some(raw) => raw
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().expect("4")))
            .collect(),
        None => std::mem::take(&mut tensor.float_data),
    };
    tensor.data_type = Some(data_type::DOUBLE);
    tensor.raw_data = Some(
        values
            .iter()
            .flat_map(|&v| f64::from(v).to_le_bytes())
            .collect::<Vec<u8>>()
            .into(),
    );
}
