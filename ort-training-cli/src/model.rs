//! ONNX models as protobuf, for looking into them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use ort_training::ElementType;
use ort_training::artifacts::onnx::{
    DimensionValue, GraphProto, ModelProto, TensorProto, TypeValue, ValueInfoProto,
};
use prost::Message;
use prost::bytes::Bytes;

/// What the name of a gradient buffer ends with: an input of a training model.
pub const GRADIENT_SUFFIX: &str = "_grad.accumulation.buffer";

/// A file that is an ONNX model.
pub struct Model {
    pub proto: ModelProto,
    pub bytes: u64,
}

impl Model {
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let size = bytes.len() as u64;
        let expected = || {
            format!(
                "{}: expected an ONNX model, found {size} bytes that are none (a truncated or another file?)",
                path.display()
            )
        };
        let proto = ModelProto::decode(Bytes::from(bytes)).with_context(expected)?;
        let has_nodes = proto
            .graph
            .as_ref()
            .is_some_and(|graph| !graph.node.is_empty() || !graph.output.is_empty());
        if !has_nodes {
            bail!("{}", expected());
        }
        Ok(Self { proto, bytes: size })
    }

    pub fn graph(&self) -> &GraphProto {
        self.proto.graph.as_ref().expect("checked when it was read")
    }

    /// Operator sets: domain (`ai.onnx` for ONNX's own) and version.
    pub fn opsets(&self) -> Vec<(String, i64)> {
        self.proto
            .opset_import
            .iter()
            .map(|opset| {
                let domain = match opset.domain.as_deref() {
                    None | Some("") => "ai.onnx",
                    Some(domain) => domain,
                };
                (domain.to_owned(), opset.version.unwrap_or_default())
            })
            .collect()
    }

    /// The operator sets of the graph's own nodes: a model that was made by ONNX Runtime declares many more.
    pub fn used_opsets(&self) -> Vec<(String, i64)> {
        let used = |domain: &str| {
            self.graph().node.iter().any(|node| {
                let found = match node.domain.as_deref() {
                    None | Some("") => "ai.onnx",
                    Some(domain) => domain,
                };
                found == domain
            })
        };
        let mut opsets = self.opsets();
        opsets.retain(|(domain, _)| used(domain));
        opsets
    }

    /// How often each operator occurs, in the graph itself.
    pub fn operators(&self) -> BTreeMap<String, usize> {
        let mut operators = BTreeMap::new();
        for node in &self.graph().node {
            let op_type = node.op_type.as_deref().unwrap_or("?");
            let name = match node.domain.as_deref() {
                None | Some("" | "ai.onnx") => op_type.to_owned(),
                Some(domain) => format!("{domain}.{op_type}"),
            };
            *operators.entry(name).or_default() += 1;
        }
        operators
    }

    /// Inputs that no initializer gives a value to.
    pub fn inputs(&self) -> Vec<&ValueInfoProto> {
        let graph = self.graph();
        let initialized: HashSet<&str> = graph
            .initializer
            .iter()
            .filter_map(|tensor| tensor.name.as_deref())
            .collect();
        graph
            .input
            .iter()
            .filter(|input| !initialized.contains(name(input)))
            .collect()
    }

    /// Whether an initializer is trained by default: floating-point, with dimensions, and no running statistic.
    pub fn trained_by_default(&self, tensor: &TensorProto) -> bool {
        let element_type = element_type(tensor.data_type.unwrap_or_default());
        let is_float = matches!(
            element_type,
            ElementType::Float32
                | ElementType::Float64
                | ElementType::Float16
                | ElementType::Bfloat16
        );
        let statistic = self.graph().node.iter().any(|node| {
            node.op_type.as_deref() == Some("BatchNormalization")
                && node
                    .input
                    .iter()
                    .skip(3)
                    .any(|input| Some(input) == tensor.name.as_ref())
        });
        is_float && !tensor.dims.is_empty() && !statistic
    }

    /// Everything that a node computes.
    pub fn computed(&self) -> HashSet<&str> {
        self.graph()
            .node
            .iter()
            .flat_map(|node| &node.output)
            .map(String::as_str)
            .filter(|name| !name.is_empty())
            .collect()
    }

    /// The parameters of a training model, by its gradient buffers.
    pub fn gradients(&self) -> Vec<&str> {
        self.graph()
            .input
            .iter()
            .filter_map(|input| name(input).strip_suffix(GRADIENT_SUFFIX))
            .collect()
    }
}

pub fn name(value: &ValueInfoProto) -> &str {
    value.name.as_deref().unwrap_or_default()
}

/// ONNX's number of an element type is that of the C API, where both have one.
pub fn element_type(number: i32) -> ElementType {
    ElementType::from_raw(u32::try_from(number).unwrap_or_default())
}

/// Element type and shape of an input or output, as text.
pub fn type_and_shape(value: &ValueInfoProto) -> (String, String) {
    let of_tensor = |tensor: &ort_training::artifacts::onnx::TensorType| {
        let element = element_type(tensor.elem_type.unwrap_or_default()).to_string();
        let shape = tensor.shape.as_ref().map_or_else(
            || "any".to_owned(),
            |shape| {
                crate::table::shape(shape.dim.iter().map(|dimension| match &dimension.value {
                    Some(DimensionValue::DimValue(size)) => size.to_string(),
                    Some(DimensionValue::DimParam(name)) => name.clone(),
                    None => "?".to_owned(),
                }))
            },
        );
        (element, shape)
    };
    let value = value
        .r#type
        .as_ref()
        .and_then(|r#type| r#type.value.as_ref());
    let other = |text: &str| (text.to_owned(), String::new());
    match value {
        Some(TypeValue::Tensor(tensor)) => of_tensor(tensor),
        Some(TypeValue::Sequence(sequence)) => {
            let element = sequence.elem_type.as_ref().and_then(|e| e.value.as_ref());
            match element {
                Some(TypeValue::Tensor(tensor)) => (
                    format!("sequence of {}", of_tensor(tensor).0),
                    String::new(),
                ),
                _ => other("sequence"),
            }
        }
        Some(TypeValue::Map(_)) => other("map"),
        Some(TypeValue::Optional(_)) => other("optional"),
        Some(TypeValue::SparseTensor(tensor)) => {
            let (element, shape) = of_tensor(tensor);
            (format!("sparse {element}"), shape)
        }
        Some(TypeValue::Opaque(_)) => other("opaque"),
        None => other("not declared"),
    }
}
