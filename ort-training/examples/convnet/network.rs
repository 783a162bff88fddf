//! Residual networks as ONNX models: He and others, "Deep Residual Learning for Image Recognition", with basic blocks.

use ort_training::artifacts::onnx::{
    AttributeProto, Bytes, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue,
    ValueInfoProto, attribute_type, data_type,
};
use prost::Message;

use super::random::Random;

/// Which network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Two stages of one block, for 8 by 8 pixels and ten classes.
    Digits,
    /// ResNet-18: four stages of two blocks, for 224 by 224 pixels in three colours and 1,000 classes.
    ResNet18,
}

impl Network {
    pub fn name(self) -> &'static str {
        match self {
            Self::Digits => "digits-resnet",
            Self::ResNet18 => "resnet18",
        }
    }

    /// The shape of a batch of images.
    pub fn input(self, batch_size: usize) -> [usize; 4] {
        match self {
            Self::Digits => [batch_size, 1, 8, 8],
            Self::ResNet18 => [batch_size, 3, 224, 224],
        }
    }

    /// The model, images to logits, with weights drawn from a seed.
    pub fn model(self, seed: u64) -> Vec<u8> {
        let mut graph = Graph {
            proto: GraphProto {
                name: Some(self.name().to_owned()),
                ..GraphProto::default()
            },
            random: Random::new(seed, 18),
            last: "images".to_owned(),
            channels: self.input(1)[1],
        };
        let (widths, blocks, classes): (&[usize], usize, usize) = match self {
            Self::Digits => {
                graph.convolution(16, 3, 1);
                (&[16, 32], 1, 10)
            }
            Self::ResNet18 => {
                graph.convolution(64, 7, 2);
                (&[64, 128, 256, 512], 2, 1000)
            }
        };
        graph.normalize();
        graph.node("Relu", &[], &[]);
        if self == Self::ResNet18 {
            let window: [(&str, &[i64]); 3] = [
                ("kernel_shape", &[3, 3]),
                ("strides", &[2, 2]),
                ("pads", &[1, 1, 1, 1]),
            ];
            graph.node("MaxPool", &[], &window);
        }
        for (stage, &width) in widths.iter().enumerate() {
            for block in 0..blocks {
                graph.block(width, if stage > 0 && block == 0 { 2 } else { 1 });
            }
        }
        graph.node("GlobalAveragePool", &[], &[]);
        graph.node("Flatten", &[], &[]);
        let features = graph.channels;
        let weight = graph.weight("fc.weight", &[features, classes], features);
        let bias = graph.weight("fc.bias", &[classes], features);
        graph.node("Gemm", &[&weight, &bias], &[]);
        let last = graph.proto.node.last_mut().expect("nodes were added");
        last.output = vec!["logits".to_owned()];

        let [_, colours, height, width] = self.input(1);
        let image = [None, Some(colours), Some(height), Some(width)];
        graph.proto.input.push(value("images", &image));
        graph
            .proto
            .output
            .push(value("logits", &[None, Some(classes)]));
        ModelProto {
            ir_version: Some(8),
            producer_name: Some("convnet".to_owned()),
            opset_import: vec![OperatorSetIdProto {
                domain: Some(String::new()),
                version: Some(15),
            }],
            graph: Some(graph.proto),
            ..ModelProto::default()
        }
        .encode_to_vec()
    }
}

struct Graph {
    proto: GraphProto,
    random: Random,
    /// The value that the next node takes, and how many channels it has.
    last: String,
    channels: usize,
}

impl Graph {
    fn weight(&mut self, name: &str, dims: &[usize], inputs: usize) -> String {
        let bound = (3.0 / inputs as f32).sqrt();
        let count: usize = dims.iter().product();
        let values: Vec<f32> = (0..count).map(|_| self.random.uniform(bound)).collect();
        self.tensor(name, dims, &values)
    }

    fn tensor(&mut self, name: &str, dims: &[usize], values: &[f32]) -> String {
        let name = format!("{}.{name}", self.proto.node.len());
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.proto.initializer.push(TensorProto {
            name: Some(name.clone()),
            data_type: Some(data_type::FLOAT),
            dims: dims.iter().map(|&d| d as i64).collect(),
            raw_data: Some(Bytes::from(raw)),
            ..TensorProto::default()
        });
        name
    }

    /// A node on the last value and the others.
    fn node(&mut self, operator: &str, others: &[&str], attributes: &[(&str, &[i64])]) {
        let name = format!("{operator}_{}", self.proto.node.len());
        let inputs = std::iter::once(self.last.clone());
        self.proto.node.push(NodeProto {
            input: inputs
                .chain(others.iter().map(|o| (*o).to_owned()))
                .collect(),
            output: vec![name.clone()],
            name: Some(name.clone()),
            op_type: Some(operator.to_owned()),
            attribute: attributes
                .iter()
                .map(|(name, values)| AttributeProto {
                    name: Some((*name).to_owned()),
                    ints: values.to_vec(),
                    r#type: Some(attribute_type::INTS),
                    ..AttributeProto::default()
                })
                .collect(),
            ..NodeProto::default()
        });
        self.last = name;
    }

    fn convolution(&mut self, channels: usize, window: usize, stride: i64) {
        let dims = [channels, self.channels, window, window];
        let weight = self.weight("weight", &dims, self.channels * window * window);
        let pad = (window / 2) as i64;
        let attributes: [(&str, &[i64]); 3] = [
            ("kernel_shape", &[window as i64; 2]),
            ("strides", &[stride; 2]),
            ("pads", &[pad; 4]),
        ];
        self.node("Conv", &[&weight], &attributes);
        self.channels = channels;
    }

    fn normalize(&mut self) {
        let dims = [self.channels];
        let (zeros, ones) = (vec![0.0; self.channels], vec![1.0; self.channels]);
        let scale = self.tensor("scale", &dims, &ones);
        let bias = self.tensor("bias", &dims, &zeros);
        let mean = self.tensor("mean", &dims, &zeros);
        let variance = self.tensor("variance", &dims, &ones);
        self.node(
            "BatchNormalization",
            &[&scale, &bias, &mean, &variance],
            &[],
        );
    }

    /// Two convolutions, added to what goes past them.
    fn block(&mut self, channels: usize, stride: i64) {
        let (before, channels_before) = (self.last.clone(), self.channels);
        self.convolution(channels, 3, stride);
        self.normalize();
        self.node("Relu", &[], &[]);
        self.convolution(channels, 3, 1);
        self.normalize();
        let through = std::mem::replace(&mut self.last, before);
        if stride != 1 || channels_before != channels {
            self.channels = channels_before;
            self.convolution(channels, 1, stride);
            self.normalize();
        }
        self.node("Add", &[&through], &[]);
        self.node("Relu", &[], &[]);
    }
}

/// A float32 value; None is the length of the batch.
fn value(name: &str, dims: &[Option<usize>]) -> ValueInfoProto {
    let dim = dims.iter().map(|length| Dimension {
        value: Some(match length {
            Some(length) => DimensionValue::DimValue(*length as i64),
            None => DimensionValue::DimParam("batch".to_owned()),
        }),
        denotation: None,
    });
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto {
            value: Some(TypeValue::Tensor(TensorType {
                elem_type: Some(data_type::FLOAT),
                shape: Some(TensorShapeProto { dim: dim.collect() }),
            })),
            denotation: None,
        }),
        ..ValueInfoProto::default()
    }
}
