//! Fields of a serialized model that this crate's messages do not have, from a schema newer than ONNX 1.17: decoding
//! leaves them out, which is to be noticed.

/// The messages, each with the numbers of its plain fields and of its fields that are messages themselves.
#[derive(Clone, Copy, Debug)]
enum Message {
    Model,
    OperatorSet,
    Entry,
    TrainingInfo,
    Function,
    Graph,
    Annotation,
    Node,
    Attribute,
    ValueInfo,
    Tensor,
    Segment,
    SparseTensor,
    Shape,
    Dimension,
    Type,
    TensorType,
    Sequence,
    Map,
    Optional,
    Opaque,
}

enum Field {
    Plain,
    Nested(Message),
    Unknown,
}

impl Message {
    fn field(self, number: u64) -> Field {
        use Field::{Nested, Plain, Unknown};
        match (self, number) {
            (Self::Model, 1..=6) => Plain,
            (Self::Model, 7) => Nested(Self::Graph),
            (Self::Model, 8) => Nested(Self::OperatorSet),
            (Self::Model, 14) => Nested(Self::Entry),
            (Self::Model, 20) => Nested(Self::TrainingInfo),
            (Self::Model, 25) => Nested(Self::Function),
            (Self::OperatorSet | Self::Entry | Self::Segment | Self::Opaque, 1 | 2) => Plain,
            (Self::TrainingInfo, 1 | 2) => Nested(Self::Graph),
            (Self::TrainingInfo, 3 | 4) => Nested(Self::Entry),
            (Self::Function, 1 | 4 | 5 | 6 | 8 | 10 | 13) => Plain,
            (Self::Function, 7) => Nested(Self::Node),
            (Self::Function, 9) => Nested(Self::OperatorSet),
            (Self::Function, 11) => Nested(Self::Attribute),
            (Self::Function, 12) => Nested(Self::ValueInfo),
            (Self::Function, 14) => Nested(Self::Entry),
            (Self::Graph, 2 | 10) => Plain,
            (Self::Graph, 1) => Nested(Self::Node),
            (Self::Graph, 5) => Nested(Self::Tensor),
            (Self::Graph, 11..=13) => Nested(Self::ValueInfo),
            (Self::Graph, 14) => Nested(Self::Annotation),
            (Self::Graph, 15) => Nested(Self::SparseTensor),
            (Self::Graph, 16) => Nested(Self::Entry),
            (Self::Annotation, 1) => Plain,
            (Self::Annotation, 2) => Nested(Self::Entry),
            (Self::Node, 1..=4 | 6..=8) => Plain,
            (Self::Node, 5) => Nested(Self::Attribute),
            (Self::Node, 9) => Nested(Self::Entry),
            (Self::Attribute, 1..=4 | 7..=9 | 13 | 20 | 21) => Plain,
            (Self::Attribute, 5 | 10) => Nested(Self::Tensor),
            (Self::Attribute, 6 | 11) => Nested(Self::Graph),
            (Self::Attribute, 14 | 15) => Nested(Self::Type),
            (Self::Attribute, 22 | 23) => Nested(Self::SparseTensor),
            (Self::ValueInfo, 1 | 3) => Plain,
            (Self::ValueInfo, 2) => Nested(Self::Type),
            (Self::ValueInfo, 4) => Nested(Self::Entry),
            (Self::Tensor, 1 | 2 | 4..=12 | 14) => Plain,
            (Self::Tensor, 3) => Nested(Self::Segment),
            (Self::Tensor, 13 | 16) => Nested(Self::Entry),
            (Self::SparseTensor, 1 | 2) => Nested(Self::Tensor),
            (Self::SparseTensor, 3) => Plain,
            (Self::Shape, 1) => Nested(Self::Dimension),
            (Self::Dimension, 1..=3) => Plain,
            (Self::Type, 6) => Plain,
            (Self::Type, 1 | 8) => Nested(Self::TensorType),
            (Self::Type, 4) => Nested(Self::Sequence),
            (Self::Type, 5) => Nested(Self::Map),
            (Self::Type, 7) => Nested(Self::Opaque),
            (Self::Type, 9) => Nested(Self::Optional),
            (Self::TensorType | Self::Map, 1) => Plain,
            (Self::TensorType, 2) => Nested(Self::Shape),
            (Self::Map, 2) | (Self::Sequence | Self::Optional, 1) => Nested(Self::Type),
            _ => Unknown,
        }
    }
}

/// The fields of a model that decoding leaves out: message and number, each once. The bytes have been decoded before,
/// so that their form is sound; where it is not, the search ends.
pub(crate) fn unknown_fields(model: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    search(model, Message::Model, &mut found);
    found.sort();
    found.dedup();
    found
}

fn search(mut bytes: &[u8], message: Message, found: &mut Vec<String>) {
    while let Some(key) = varint(&mut bytes) {
        let (number, wire_type) = (key >> 3, key & 7);
        let length = match wire_type {
            0 => match varint(&mut bytes) {
                Some(_) => 0,
                None => return,
            },
            1 => 8,
            2 => match varint(&mut bytes).map(usize::try_from) {
                Some(Ok(length)) => length,
                _ => return,
            },
            5 => 4,
            _ => return,
        };
        let Some((content, rest)) = bytes.split_at_checked(length) else {
            return;
        };
        bytes = rest;
        match message.field(number) {
            Field::Plain => {}
            Field::Nested(inner) if wire_type == 2 => search(content, inner, found),
            _ => found.push(format!("{message:?} field {number}")),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::{
        AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
        StringStringEntryProto, TensorProto, tensor_info,
    };
    use super::*;

    fn model() -> ModelProto {
        let entry = StringStringEntryProto {
            key: Some("k".to_owned()),
            value: Some("v".to_owned()),
        };
        let tensor = TensorProto {
            dims: vec![1],
            float_data: vec![1.0],
            ..TensorProto::default()
        };
        ModelProto {
            ir_version: Some(8),
            opset_import: vec![OperatorSetIdProto {
                domain: None,
                version: Some(17),
            }],
            metadata_props: vec![entry.clone()],
            graph: Some(GraphProto {
                node: vec![NodeProto {
                    attribute: vec![AttributeProto {
                        t: Some(tensor.clone()),
                        ..AttributeProto::default()
                    }],
                    metadata_props: vec![entry],
                    ..NodeProto::default()
                }],
                initializer: vec![tensor],
                input: vec![tensor_info(
                    "x",
                    1,
                    Some(vec![super::super::Dimension::fixed(3)]),
                )],
                ..GraphProto::default()
            }),
            ..ModelProto::default()
        }
    }

    #[test]
    fn what_is_known_is_not_reported() {
        assert_eq!(unknown_fields(&model().encode_to_vec()), [""; 0]);
    }

    #[test]
    fn what_is_not_known_is_named() {
        let mut bytes = model().encode_to_vec();
        // Field 99 of the model, a text.
        bytes.extend([0x9a, 0x06, 2, b'h', b'i']);
        // A second part of the graph, with a node that has a field 77 (a number).
        let node = [0xe8, 0x04, 5];
        let graph = [&[0x0a, node.len() as u8][..], &node].concat();
        bytes.extend([&[0x3a, graph.len() as u8][..], &graph].concat());
        assert_eq!(unknown_fields(&bytes), ["Model field 99", "Node field 77"]);
        assert!(ModelProto::decode(bytes.as_slice()).is_ok());
    }
}
