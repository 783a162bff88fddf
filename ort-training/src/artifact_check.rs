//! Whether models and checkpoint belong together, found out before ONNX Runtime builds a session on them.
//!
//! ONNX Runtime reports part of this late or not at all: an evaluation model with its parameters in another order is fed
//! the wrong ones, a parameter without a shape is a null pointer, one larger than the model says overruns a buffer.

use crate::checkpoint::Checkpoint;
use crate::element::ElementType;
use crate::error::{Error, ErrorCode, Result};
use crate::model_io::IoInfo;
use crate::onnx_model::OnnxModel;

/// `ACCUMULATE_GRAD_CONTROL_INPUT_NAME` of module.cc.
const RESET_INPUT: &str = "lazy_reset_grad";

/// `GRAD_SUFFIX` of utils.cc, in its order.
const GRADIENT_SUFFIXES: [&str; 3] = [
    "_grad.accumulation.buffer",
    "_grad",
    "_grad.accumulation.out",
];

/// `CommonOptimizerInputs` of optimizer.cc.
const OPTIMIZER_INPUTS: [&str; 4] = ["learning_rate", "step", "params", "gradients"];

fn refuse(message: String) -> Error {
    Error::new(ErrorCode::InvalidGraph, message)
}

/// The parameter whose gradient `name` is, by its suffix.
fn gradient_of(name: &str) -> Option<&str> {
    GRADIENT_SUFFIXES
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
}

fn names(infos: &[IoInfo]) -> Vec<&str> {
    infos.iter().map(|info| info.name.as_str()).collect()
}

/// What the training model's inputs and outputs are to ONNX Runtime (module.cc, constructor of `Module`).
#[derive(Debug)]
pub(crate) struct TrainingRoles {
    /// The parameters in the order of the model's inputs, with the shape that it declares.
    pub(crate) parameters: Vec<ParameterSlot>,
    pub(crate) inputs: Vec<IoInfo>,
    pub(crate) outputs: Vec<IoInfo>,
}

/// Where a parameter lies in the contiguous buffer of all parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterSlot {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) requires_grad: bool,
    pub(crate) element_type: ElementType,
}

impl ParameterSlot {
    /// The parameter's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its dimensions.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of its elements.
    #[must_use]
    pub fn element_count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it is trained.
    #[must_use]
    pub fn requires_grad(&self) -> bool {
        self.requires_grad
    }
}

/// Checks the training model against the checkpoint.
pub(crate) fn training_roles(
    subject: &str,
    model: &OnnxModel,
    checkpoint: &Checkpoint,
) -> Result<TrainingRoles> {
    let info = |name: &str| {
        checkpoint
            .parameters()
            .iter()
            .find(|info| info.name == name)
    };
    let mut roles = TrainingRoles {
        parameters: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let mut gradients = Vec::new();
    let mut has_reset = false;
    for input in &model.inputs {
        if let Some(parameter) = info(&input.name) {
            let shape = parameter_shape(subject, input)?;
            if input.element_type != Some(parameter.element_type)
                || !(checkpoint.is_nominal() || shape == parameter.shape)
            {
                return Err(refuse(format!(
                    "{subject}: parameter {:?}: expected {input} (the model's input), found {} {:?} in the checkpoint",
                    input.name, parameter.element_type, parameter.shape
                )));
            }
            if checkpoint.is_nominal() && parameter.element_type != ElementType::Float32 {
                return Err(refuse(format!(
                    "{subject}: parameter {:?}: a nominal checkpoint is filled from a float32 buffer, found {}",
                    input.name, parameter.element_type
                )));
            }
            roles.parameters.push(ParameterSlot {
                name: input.name.clone(),
                shape,
                requires_grad: parameter.requires_grad,
                element_type: parameter.element_type,
            });
        } else if input.name == RESET_INPUT {
            has_reset = true;
        } else if let Some(parameter) = gradient_of(&input.name) {
            gradients.push((input.name.as_str(), parameter));
        } else {
            roles.inputs.push(input.clone());
        }
    }
    if !has_reset || gradients.is_empty() {
        return Err(refuse(format!(
            "{subject}: expected a training model, with gradient accumulation buffers and {RESET_INPUT:?} among its \
             inputs, found the inputs {:?}; is it a forward or evaluation model?",
            names(&model.inputs)
        )));
    }
    if roles.parameters.is_empty() {
        return Err(refuse(format!(
            "{subject}: expected the checkpoint's parameters {:?} among the model's inputs, found {:?}; \
             do model and checkpoint belong together?",
            checkpoint
                .parameters()
                .iter()
                .map(|info| info.name.as_str())
                .collect::<Vec<_>>(),
            names(&model.inputs)
        )));
    }
    for (gradient, parameter) in &gradients {
        let slot = roles.parameters.iter().find(|slot| slot.name == *parameter);
        if !slot.is_some_and(|slot| slot.requires_grad) {
            return Err(refuse(format!(
                "{subject}: input {gradient:?}: expected the gradient of a trainable parameter, found none named \
                 {parameter:?} in the checkpoint"
            )));
        }
    }
    for parameter in checkpoint
        .parameters()
        .iter()
        .filter(|info| info.requires_grad)
    {
        if !roles
            .parameters
            .iter()
            .any(|slot| slot.name == parameter.name)
        {
            return Err(refuse(format!(
                "{subject}: expected the checkpoint's trainable parameter {:?} among the model's inputs, found {:?}",
                parameter.name,
                names(&model.inputs)
            )));
        }
        if !gradients.iter().any(|(_, of)| *of == parameter.name) {
            return Err(refuse(format!(
                "{subject}: expected the gradient accumulation buffer of trainable parameter {:?} among the inputs, \
                 found none",
                parameter.name
            )));
        }
    }
    roles.outputs = model
        .outputs
        .iter()
        .filter(|output| gradient_of(&output.name).is_none())
        .cloned()
        .collect();
    if roles.outputs.is_empty() {
        return Err(refuse(format!(
            "{subject}: expected the loss among the model's outputs, found gradients only: {:?}",
            names(&model.outputs)
        )));
    }
    Ok(roles)
}

fn parameter_shape(subject: &str, input: &IoInfo) -> Result<Vec<usize>> {
    input.fixed_shape().ok_or_else(|| {
        refuse(format!(
            "{subject}: parameter {:?}: expected fixed dimensions, found {input}",
            input.name
        ))
    })
}

/// Checks the evaluation model; returns its own inputs.
pub(crate) fn eval_inputs(
    subject: &str,
    model: &OnnxModel,
    training: &TrainingRoles,
    checkpoint: &Checkpoint,
) -> Result<Vec<IoInfo>> {
    let (parameters, inputs): (Vec<&IoInfo>, Vec<&IoInfo>) =
        model.inputs.iter().partition(|input| {
            checkpoint
                .parameters()
                .iter()
                .any(|info| info.name == input.name)
        });
    // ONNX Runtime feeds it the training model's parameters by position (module.cc, `EvalStep`).
    let found: Vec<&str> = parameters.iter().map(|input| input.name.as_str()).collect();
    let wanted: Vec<&str> = training
        .parameters
        .iter()
        .map(|slot| slot.name.as_str())
        .collect();
    if found != wanted {
        return Err(refuse(format!(
            "{subject}: expected the parameters of the training model in its order, {wanted:?}, found {found:?}"
        )));
    }
    for (input, slot) in parameters.iter().zip(&training.parameters) {
        if input.element_type != Some(slot.element_type)
            || parameter_shape(subject, input)? != slot.shape
        {
            return Err(refuse(format!(
                "{subject}: parameter {:?}: expected {} {:?} as in the training model, found {input}",
                slot.name, slot.element_type, slot.shape
            )));
        }
    }
    Ok(inputs.into_iter().cloned().collect())
}

/// Checks the optimizer model; returns how many moments it keeps for each parameter.
pub(crate) fn optimizer_moments(
    subject: &str,
    model: &OnnxModel,
    checkpoint: &Checkpoint,
) -> Result<usize> {
    let moments: &[&str] = if model.operators.contains("AdamWOptimizer") {
        &["first_order_moments", "second_order_moments"]
    } else if model.operators.contains("SGDOptimizerV2") {
        &["first_order_moments"]
    } else {
        return Err(refuse(format!(
            "{subject}: expected an optimizer model with an AdamWOptimizer or SGDOptimizerV2, found the operators {:?}",
            model.operators
        )));
    };
    let wanted: Vec<&str> = OPTIMIZER_INPUTS.iter().chain(moments).copied().collect();
    if names(&model.inputs) != wanted {
        return Err(refuse(format!(
            "{subject}: expected the inputs {wanted:?}, found {:?}",
            names(&model.inputs)
        )));
    }
    if checkpoint.moments != 0 && checkpoint.moments != moments.len() {
        return Err(refuse(format!(
            "{subject}: expected optimizer state with {} moments for each parameter, found {} in the checkpoint: \
             it was saved with another optimizer",
            moments.len(),
            checkpoint.moments
        )));
    }
    Ok(moments.len())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::onnx_model::ModelSource;

    fn path(artifacts: &str, file: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures")
            .join(artifacts)
            .join(file)
    }

    fn model(file: &str) -> OnnxModel {
        OnnxModel::read(&ModelSource::File(path("regression", file)), "model").unwrap()
    }

    fn checkpoint(artifacts: &str) -> Checkpoint {
        Checkpoint::load(path(artifacts, "checkpoint")).unwrap()
    }

    /// A trainable parameter of the fixture.
    fn trainable() -> String {
        let checkpoint = checkpoint("regression");
        let parameter = checkpoint
            .parameters()
            .iter()
            .find(|info| info.requires_grad);
        parameter.unwrap().name.clone()
    }

    #[track_caller]
    fn refused<T>(result: Result<T>, words: &[&str]) {
        let Err(error) = result else {
            panic!("accepted; expected an error with {words:?}")
        };
        for word in words {
            assert!(
                error.to_string().contains(word),
                "{word:?} is not in {error}"
            );
        }
    }

    /// The training model after `change`, checked against its checkpoint.
    fn training(change: impl FnOnce(&mut OnnxModel)) -> Result<TrainingRoles> {
        let mut model = model("training_model.onnx");
        change(&mut model);
        training_roles("training model x", &model, &checkpoint("regression"))
    }

    fn evaluation(change: impl FnOnce(&mut OnnxModel)) -> Result<Vec<IoInfo>> {
        let roles = training(|_| {}).unwrap();
        let mut model = model("eval_model.onnx");
        change(&mut model);
        eval_inputs("eval model x", &model, &roles, &checkpoint("regression"))
    }

    #[test]
    fn what_belongs_together_passes() {
        let roles = training(|_| {}).unwrap();
        assert!(roles.parameters.iter().any(|slot| slot.requires_grad));
        assert!(
            roles.parameters.iter().any(|slot| !slot.requires_grad),
            "the fixture has a frozen parameter"
        );
        evaluation(|_| {}).unwrap();
        let moments = optimizer_moments(
            "x",
            &model("optimizer_model.onnx"),
            &checkpoint("regression"),
        );
        assert_eq!(moments.unwrap(), 2);
    }

    #[test]
    fn a_model_without_gradients_is_named() {
        refused(
            training_roles(
                "eval model x",
                &model("eval_model.onnx"),
                &checkpoint("regression"),
            ),
            &[
                "eval model x",
                "expected a training model",
                "lazy_reset_grad",
            ],
        );
        refused(
            training(|model| model.inputs.retain(|input| input.name != RESET_INPUT)),
            &["lazy_reset_grad"],
        );
    }

    #[test]
    fn a_parameter_without_its_gradient_is_named() {
        let (name, gradient) = (
            trainable(),
            format!("{}_grad.accumulation.buffer", trainable()),
        );
        refused(
            training(|model| model.inputs.retain(|input| input.name != gradient)),
            &["gradient accumulation buffer", &name],
        );
        refused(
            training(|model| {
                let input = model
                    .inputs
                    .iter_mut()
                    .find(|input| input.name == gradient)
                    .unwrap();
                input.name = "nobody_grad.accumulation.buffer".into();
            }),
            &["nobody", "no"],
        );
    }

    #[test]
    fn a_missing_parameter_is_named() {
        let name = trainable();
        refused(
            training(|model| {
                model.inputs.retain(|input| !input.name.starts_with(&name));
            }),
            &["trainable parameter", &name],
        );
    }

    #[test]
    fn another_shape_or_type_is_named() {
        let name = trainable();
        let change = |change: fn(&mut IoInfo)| {
            training(|model| {
                change(
                    model
                        .inputs
                        .iter_mut()
                        .find(|input| input.name == name)
                        .unwrap(),
                )
            })
        };
        refused(
            change(|input| input.dimensions = Some(vec![crate::model_io::Dimension::Fixed(1)])),
            &[&name, "[1]"],
        );
        refused(
            change(|input| input.element_type = Some(ElementType::Float64)),
            &[&name, "float64", "float32"],
        );
        refused(
            change(|input| input.dimensions = None),
            &[&name, "fixed dimensions"],
        );
    }

    #[test]
    fn a_model_that_returns_gradients_only_is_named() {
        refused(
            training(|model| {
                model
                    .outputs
                    .retain(|output| gradient_of(&output.name).is_some())
            }),
            &["expected the loss", "gradients only"],
        );
    }

    #[test]
    fn an_eval_model_with_its_parameters_in_another_order_is_refused() {
        refused(
            evaluation(|model| model.inputs.reverse()),
            &["eval model x", "in its order"],
        );
        let name = trainable();
        refused(
            evaluation(|model| model.inputs.retain(|input| input.name != name)),
            &["eval model x", "in its order"],
        );
        refused(
            evaluation(|model| {
                let input = model
                    .inputs
                    .iter_mut()
                    .find(|input| input.name == name)
                    .unwrap();
                input.dimensions = Some(vec![crate::model_io::Dimension::Fixed(3)]);
            }),
            &["eval model x", &name, "[3]"],
        );
    }

    #[test]
    fn an_optimizer_model_of_another_kind_is_named() {
        let check = |change: fn(&mut OnnxModel)| {
            let mut model = model("optimizer_model.onnx");
            change(&mut model);
            optimizer_moments("optimizer model x", &model, &checkpoint("regression"))
        };
        refused(
            check(|model| model.operators.clear()),
            &["optimizer model x", "AdamWOptimizer"],
        );
        refused(
            check(|model| model.inputs.swap(0, 1)),
            &["expected the inputs", "learning_rate"],
        );
        let mut other = checkpoint("regression");
        other.moments = 1;
        refused(
            optimizer_moments("optimizer model x", &model("optimizer_model.onnx"), &other),
            &["2 moments", "found 1", "another optimizer"],
        );
    }
}
