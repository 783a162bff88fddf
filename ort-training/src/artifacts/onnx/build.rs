//! Makers of messages.

use prost::bytes::Bytes;

use super::messages::*;

/// A node of the default operator set.
pub(crate) fn node(
    op_type: &str,
    name: impl Into<String>,
    inputs: &[&str],
    outputs: &[&str],
) -> NodeProto {
    NodeProto {
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        name: Some(name.into()),
        op_type: Some(op_type.to_owned()),
        ..NodeProto::default()
    }
}

/// Makers of attributes.
pub(crate) mod attribute {
    use super::*;

    fn named(name: &str, kind: i32) -> AttributeProto {
        AttributeProto {
            name: Some(name.to_owned()),
            r#type: Some(kind),
            ..AttributeProto::default()
        }
    }

    pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
        AttributeProto {
            i: Some(value),
            ..named(name, attribute_type::INT)
        }
    }

    pub(crate) fn float(name: &str, value: f32) -> AttributeProto {
        AttributeProto {
            f: Some(value),
            ..named(name, attribute_type::FLOAT)
        }
    }

    pub(crate) fn string(name: &str, value: &str) -> AttributeProto {
        AttributeProto {
            s: Some(Bytes::copy_from_slice(value.as_bytes())),
            ..named(name, attribute_type::STRING)
        }
    }

    pub(crate) fn ints(name: &str, values: &[i64]) -> AttributeProto {
        AttributeProto {
            ints: values.to_vec(),
            ..named(name, attribute_type::INTS)
        }
    }
}

impl NodeProto {
    /// The same node with an attribute more.
    pub(crate) fn with(mut self, attribute: AttributeProto) -> Self {
        self.attribute.push(attribute);
        self
    }

    /// The same node in another domain.
    pub(crate) fn in_domain(mut self, domain: &str) -> Self {
        self.domain = Some(domain.to_owned());
        self
    }

    pub(crate) fn op(&self) -> &str {
        self.op_type.as_deref().unwrap_or_default()
    }

    /// Whether it is an operator of ONNX's default domain.
    pub(crate) fn is_onnx(&self) -> bool {
        matches!(self.domain.as_deref(), None | Some("" | "ai.onnx"))
    }

    /// The node's name, or its first output when it has none.
    pub(crate) fn label(&self) -> &str {
        match self.name.as_deref() {
            Some(name) if !name.is_empty() => name,
            _ => self.output.first().map_or("", String::as_str),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&AttributeProto> {
        self.attribute
            .iter()
            .find(|a| a.name.as_deref() == Some(name))
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.find(name).and_then(|a| a.i)
    }

    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        self.find(name).and_then(|a| a.f)
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.find(name).map(|a| a.ints.as_slice())
    }

    pub(crate) fn string(&self, name: &str) -> Option<&str> {
        self.find(name)
            .and_then(|a| a.s.as_ref())
            .and_then(|s| std::str::from_utf8(s).ok())
    }

    /// The name of input `index`; `None` when it is left out.
    pub(crate) fn input_name(&self, index: usize) -> Option<&str> {
        self.input
            .get(index)
            .map(String::as_str)
            .filter(|s| !s.is_empty())
    }

    /// The name of output `index`; `None` when it is left out.
    pub(crate) fn output_name(&self, index: usize) -> Option<&str> {
        self.output
            .get(index)
            .map(String::as_str)
            .filter(|s| !s.is_empty())
    }
}

impl TensorProto {
    pub(crate) fn label(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn elem_type(&self) -> i32 {
        self.data_type.unwrap_or_default()
    }
}

impl ValueInfoProto {
    pub(crate) fn label(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn tensor(&self) -> Option<&TensorType> {
        match self.r#type.as_ref()?.value.as_ref()? {
            TypeValue::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }
}

impl Dimension {
    pub(crate) fn fixed(value: i64) -> Self {
        Self {
            value: Some(DimensionValue::DimValue(value)),
            denotation: None,
        }
    }

    /// The dimension when it is a known number.
    pub(crate) fn known(&self) -> Option<i64> {
        match self.value {
            Some(DimensionValue::DimValue(value)) => Some(value),
            _ => None,
        }
    }
}

/// A tensor value of a graph.
pub(crate) fn tensor_info(
    name: &str,
    elem_type: i32,
    dim: Option<Vec<Dimension>>,
) -> ValueInfoProto {
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto {
            value: Some(TypeValue::Tensor(TensorType {
                elem_type: Some(elem_type),
                shape: dim.map(|dim| TensorShapeProto { dim }),
            })),
            denotation: None,
        }),
        ..ValueInfoProto::default()
    }
}

fn initializer(name: &str, elem_type: i32, dims: &[i64], raw: Vec<u8>) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(elem_type),
        dims: dims.to_vec(),
        raw_data: Some(Bytes::from(raw)),
        ..TensorProto::default()
    }
}

pub(crate) fn initializer_f32(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    initializer(
        name,
        data_type::FLOAT,
        dims,
        values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    )
}

pub(crate) fn initializer_i64(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    initializer(
        name,
        data_type::INT64,
        dims,
        values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    )
}

/// A scalar.
pub(crate) fn scalar_f32(name: &str, value: f32) -> TensorProto {
    initializer_f32(name, &[], &[value])
}
