//! The loss: what is added to the forward graph before it is differentiated.

mod bce;
mod cross_entropy;
mod custom;
mod elementwise;

use std::sync::Arc;

pub use bce::BceWithLogits;
pub use cross_entropy::CrossEntropy;

use super::analysis::{Types, is_float};
use super::error::{ArtifactsError, Result};
use super::names::Names;
use super::onnx::{
    Dimension, GraphProto, ModelProto, TensorProto, attribute, data_type, node, tensor_info,
    type_name,
};

/// The function that training makes small.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// Cross-entropy of class scores with integer labels. Adds the input `labels` (int64).
    CrossEntropy(CrossEntropy),
    /// Binary cross-entropy of scores before the sigmoid. Adds the input `target` (like the output).
    BceWithLogits(BceWithLogits),
    /// Mean (or sum) of squared differences. Adds the input `target` (like the output).
    Mse(Reduction),
    /// Mean (or sum) of absolute differences. Adds the input `target` (like the output).
    L1(Reduction),
    /// A loss given as an ONNX model. See [`Loss::custom`].
    Custom(Arc<ModelProto>),
    /// The caller computes the loss: the training model takes dL/dy for the model's output y as the input
    /// `<output>.gradient` (like the output), and the evaluation model gives y and has no loss.
    ///
    /// A step is: forward with the evaluation model, loss and dL/dy by the caller, then a training step with the same
    /// inputs and dL/dy. The training model's first output is Σ y·dL/dy, a number without meaning of its own.
    OutputGradient,
    /// The forward model ends in the loss: the output that the loss is computed from is itself the loss, and must be
    /// one float.
    InModel,
}

/// How a loss per element becomes one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// The mean (weighted, where there are weights).
    #[default]
    Mean,
    /// The sum.
    Sum,
}

impl Reduction {
    pub(crate) fn onnx(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Sum => "sum",
        }
    }
}

impl Loss {
    /// Cross-entropy with the default settings.
    pub fn cross_entropy() -> Self {
        Self::CrossEntropy(CrossEntropy::default())
    }

    /// Binary cross-entropy on logits with the default settings.
    pub fn bce_with_logits() -> Self {
        Self::BceWithLogits(BceWithLogits::default())
    }

    /// Mean squared error.
    pub fn mse() -> Self {
        Self::Mse(Reduction::Mean)
    }

    /// Mean absolute error.
    pub fn l1() -> Self {
        Self::L1(Reduction::Mean)
    }

    /// A loss written as an ONNX model, of the forward model's operator set.
    ///
    /// Its inputs that bear the name of an output (or another value) of the forward model are connected to it; the
    /// others become inputs of the training and evaluation models, under their own names. Its first output is the
    /// loss and must be one float. Its nodes and constants are renamed where they collide.
    ///
    /// # Errors
    /// The bytes are not an ONNX model.
    pub fn custom(model: impl Into<prost::bytes::Bytes>) -> Result<Self> {
        let model = super::model::Forward::from_bytes(model.into(), None, "the loss")?;
        Ok(Self::Custom(Arc::new(model.model)))
    }
}

/// The graph while the loss is added to it.
pub(crate) struct LossGraph<'a> {
    pub(crate) graph: &'a mut GraphProto,
    pub(crate) names: &'a mut Names,
    pub(crate) types: &'a mut Types,
    pub(crate) opset: i64,
    /// The caller's name for the target input.
    pub(crate) target_name: Option<&'a str>,
}

/// What adding a loss made.
pub(crate) struct LossOutput {
    /// The scalar to differentiate.
    pub(crate) loss: String,
    /// Whether the evaluation model has the loss, too.
    pub(crate) in_evaluation: bool,
}

/// Adds `loss` on top of the values `inputs` (the first, for the built-in ones).
pub(crate) fn add(edit: &mut LossGraph<'_>, loss: &Loss, inputs: &[String]) -> Result<LossOutput> {
    let input = inputs.first().expect("a model has outputs");
    let output = match loss {
        Loss::CrossEntropy(settings) => cross_entropy::add(edit, settings, input)?,
        Loss::BceWithLogits(settings) => bce::add(edit, settings, input)?,
        Loss::Mse(reduction) => elementwise::squared(edit, *reduction, input)?,
        Loss::L1(reduction) => elementwise::absolute(edit, *reduction, input)?,
        Loss::Custom(model) => custom::add(edit, model)?,
        Loss::OutputGradient => return elementwise::output_gradient(edit, inputs),
        Loss::InModel => {
            edit.check_scalar(input, "the forward model's loss")?;
            input.clone()
        }
    };
    Ok(LossOutput {
        loss: output,
        in_evaluation: true,
    })
}

impl LossGraph<'_> {
    /// Adds a node with one output, named after the Python generator's habit; returns the output's name.
    pub(crate) fn op(&mut self, op_type: &str, inputs: &[&str]) -> String {
        let output = self
            .names
            .fresh(&format!("{}_output", op_type.to_lowercase()));
        let name = self.names.fresh(op_type);
        self.graph
            .node
            .push(node(op_type, name, inputs, &[&output]));
        output
    }

    pub(crate) fn op_with(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = super::onnx::AttributeProto>,
    ) -> String {
        let output = self.op(op_type, inputs);
        let added = self.graph.node.last_mut().expect("just added");
        added.attribute.extend(attributes);
        output
    }

    pub(crate) fn constant(&mut self, tensor: TensorProto) -> String {
        let name = tensor.label().to_owned();
        self.graph.initializer.push(tensor);
        name
    }

    /// Mean or sum of all elements: a scalar.
    pub(crate) fn reduce(&mut self, reduction: Reduction, value: &str) -> String {
        let op_type = match reduction {
            Reduction::Mean => "ReduceMean",
            Reduction::Sum => "ReduceSum",
        };
        self.op_with(op_type, &[value], [attribute::int("keepdims", 0)])
    }

    /// The value as float; other floating-point types are cast, anything else is an error.
    pub(crate) fn as_float(&mut self, value: &str) -> Result<String> {
        match self.types.elem_type(value) {
            Some(data_type::FLOAT) | None => Ok(value.to_owned()),
            Some(other) if is_float(other) => Ok(self.op_with(
                "Cast",
                &[value],
                [attribute::int("to", data_type::FLOAT.into())],
            )),
            Some(other) => Err(ArtifactsError::Loss(format!(
                "the loss is computed from '{value}', which is {}; expected a floating-point tensor",
                type_name(other)
            ))),
        }
    }

    /// A new graph input, or the model's own of that name and type.
    pub(crate) fn target(
        &mut self,
        name: &str,
        elem_type: i32,
        dims: Option<Vec<Dimension>>,
    ) -> Result<()> {
        if let Some(existing) = self.graph.input.iter().find(|i| i.label() == name) {
            let found = existing
                .tensor()
                .and_then(|t| t.elem_type)
                .unwrap_or_default();
            if found == elem_type {
                return Ok(());
            }
            return Err(ArtifactsError::Loss(format!(
                "the loss takes its target from the input '{name}', which the model has as {}; expected {}",
                type_name(found),
                type_name(elem_type)
            )));
        }
        if self.names.is_used(name) {
            return Err(ArtifactsError::Name(format!(
                "the loss adds an input '{name}', but the model already has a value of that name; \
                 give another name with target_name"
            )));
        }
        self.names.reserve(name);
        self.types.insert(name, elem_type, dims.clone());
        self.graph.input.push(tensor_info(name, elem_type, dims));
        Ok(())
    }

    /// An input like a value, of type float: the caller's name, or `name`.
    pub(crate) fn target_like(&mut self, name: &str, value: &str) -> Result<String> {
        let name = self.target_name.unwrap_or(name).to_owned();
        let dims = self.types.dims(value).map(<[_]>::to_vec);
        self.target(&name, data_type::FLOAT, dims)?;
        Ok(name)
    }

    pub(crate) fn check_scalar(&self, value: &str, what: &str) -> Result<()> {
        check_scalar(self.types, value, what)
    }
}

/// Fails when a value is known not to be one float.
pub(crate) fn check_scalar(types: &Types, value: &str, what: &str) -> Result<()> {
    let elem_type = types.elem_type(value);
    if let Some(elem_type) = elem_type.filter(|found| *found != data_type::FLOAT) {
        return Err(ArtifactsError::Loss(format!(
            "{what} '{value}' is {}; expected float",
            type_name(elem_type)
        )));
    }
    let is_more = |dims: &&[Dimension]| dims.iter().any(|d| d.known() != Some(1));
    if let Some(dims) = types.dims(value).filter(is_more) {
        return Err(ArtifactsError::Loss(format!(
            "{what} '{value}' has shape {}; expected one element",
            show_shape(dims)
        )));
    }
    Ok(())
}

/// A shape for messages: `[batch, 10]`.
pub(crate) fn show_shape(dims: &[Dimension]) -> String {
    use super::onnx::DimensionValue::{DimParam, DimValue};
    let dims: Vec<String> = dims
        .iter()
        .map(|d| match &d.value {
            Some(DimValue(n)) => n.to_string(),
            Some(DimParam(name)) => name.clone(),
            None => "?".to_owned(),
        })
        .collect();
    format!("[{}]", dims.join(", "))
}
