//! From a forward model to training artifacts.

use std::path::{Path, PathBuf};

use prost::Message;
use prost::bytes::Bytes;

use super::analysis::{Types, without_leftovers};
use super::assemble::{constants, distinct, encode, inline_functions, set_outputs, values};
use super::error::{ArtifactsError, Result};
use super::loss::{self, Loss, LossGraph};
use super::model::Forward;
use super::names::{Names, suggest};
use super::native::Native;
use super::onnx::{GraphProto, ModelProto, ValueInfoProto, data_type, type_name};
use super::optimizer::Optimizer;
use super::output::Artifacts;
use super::parameters::{Parameters, Selection, select};
use super::report::Report;
use super::{evaluation, rewrite, training};

/// Makes training artifacts from a forward ONNX model: what `onnxruntime.training.artifacts.generate_artifacts` does
/// in Python.
///
/// ```no_run
/// use ort_training::artifacts::{ArtifactsBuilder, Loss, Optimizer};
///
/// # fn main() -> Result<(), ort_training::artifacts::ArtifactsError> {
/// ArtifactsBuilder::from_path("digits.onnx")
///     .loss(Loss::cross_entropy())
///     .optimizer(Optimizer::adamw())
///     .build()?
///     .write_to("artifacts")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ArtifactsBuilder {
    source: Source,
    external_data_dir: Option<PathBuf>,
    selection: Selection,
    loss: Loss,
    loss_inputs: Vec<String>,
    target_name: Option<String>,
    optimizer: Option<Optimizer>,
    clip_grad_norm: Option<f32>,
    extra_outputs: Vec<String>,
    prefix: String,
    batch_norm: BatchNorm,
    rewrites: bool,
    nominal_checkpoint: bool,
}

#[derive(Clone, Debug)]
enum Source {
    Path(PathBuf),
    Bytes(Bytes),
}

/// How the training model normalizes batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchNorm {
    /// By the statistics of the batch, updating the running ones, whatever form the forward model has. What ONNX
    /// Runtime's Python generator does.
    #[default]
    Train,
    /// By the running statistics, which stay as they are; scale and bias are still trained. For fine-tuning with small
    /// batches.
    Frozen,
}

impl ArtifactsBuilder {
    /// Starts from an ONNX file; external data is looked for in its folder.
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        Self::new(Source::Path(path.into()))
    }

    /// Starts from a serialized ONNX model. A `Vec<u8>` or `Bytes` is taken without a copy.
    pub fn from_bytes(model: impl Into<Bytes>) -> Self {
        Self::new(Source::Bytes(model.into()))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            external_data_dir: None,
            selection: Selection::default(),
            loss: Loss::cross_entropy(),
            loss_inputs: Vec::new(),
            target_name: None,
            optimizer: Some(Optimizer::adamw()),
            clip_grad_norm: None,
            extra_outputs: Vec::new(),
            prefix: String::new(),
            batch_norm: BatchNorm::default(),
            rewrites: true,
            nominal_checkpoint: false,
        }
    }

    /// The folder of external data, for a model that came as bytes or whose data was moved.
    #[must_use]
    pub fn external_data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.external_data_dir = Some(directory.into());
        self
    }

    /// Parameters to train: names of initializers, or patterns with `*` and `?`.
    ///
    /// By default every floating-point initializer that a gradient of the loss reaches, except those without
    /// dimensions (constants of formulas) and running statistics. Initializers that are neither trained nor frozen
    /// stay constants inside the models.
    #[must_use]
    pub fn requires_grad<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.selection
            .requires_grad
            .get_or_insert_default()
            .extend(names.into_iter().map(Into::into));
        self
    }

    /// Parameters that are kept in the checkpoint but not trained: names or patterns. They win over patterns of
    /// [`Self::requires_grad`].
    #[must_use]
    pub fn frozen<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.selection
            .frozen
            .extend(names.into_iter().map(Into::into));
        self
    }

    /// The loss; cross-entropy by default.
    #[must_use]
    pub fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// The outputs that the loss is computed from, by name: the model's first by default. Only
    /// [`Loss::OutputGradient`] takes several.
    #[must_use]
    pub fn loss_inputs<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.loss_inputs = names.into_iter().map(Into::into).collect();
        self
    }

    /// The name of the input that carries labels or targets: `labels` or `target` by default.
    #[must_use]
    pub fn target_name(mut self, name: impl Into<String>) -> Self {
        self.target_name = Some(name.into());
        self
    }

    /// The optimizer; AdamW by default.
    #[must_use]
    pub fn optimizer(mut self, optimizer: Optimizer) -> Self {
        self.optimizer = Some(optimizer);
        self
    }

    /// Makes no optimizer model.
    #[must_use]
    pub fn without_optimizer(mut self) -> Self {
        self.optimizer = None;
        self
    }

    /// Scales the gradients down together whenever their global norm exceeds `norm`.
    #[must_use]
    pub fn clip_grad_norm(mut self, norm: f32) -> Self {
        self.clip_grad_norm = Some(norm);
        self
    }

    /// Values of the forward model that training and evaluation steps give after the loss.
    #[must_use]
    pub fn extra_outputs<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.extra_outputs.extend(names.into_iter().map(Into::into));
        self
    }

    /// What the files' names begin with.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How the training model normalizes batches.
    #[must_use]
    pub fn batch_norm(mut self, batch_norm: BatchNorm) -> Self {
        self.batch_norm = batch_norm;
        self
    }

    /// Whether operators that ONNX Runtime cannot differentiate on the CPU are rewritten into equal ones that it can,
    /// in the training model; true by default.
    #[must_use]
    pub fn rewrites(mut self, rewrites: bool) -> Self {
        self.rewrites = rewrites;
        self
    }

    /// Also makes a checkpoint with names and types only, for programs that load the values later.
    #[must_use]
    pub fn nominal_checkpoint(mut self, nominal: bool) -> Self {
        self.nominal_checkpoint = nominal;
        self
    }

    /// Makes the artifacts, in memory.
    ///
    /// # Errors
    /// See [`ArtifactsError`]; nothing is written.
    pub fn build(self) -> Result<Artifacts> {
        if let Some(optimizer) = &self.optimizer {
            optimizer.check(self.clip_grad_norm)?;
        }
        if self.prefix.contains(['/', '\\', '\0']) {
            return Err(ArtifactsError::Name(format!(
                "the prefix '{}' is not part of a file name",
                self.prefix
            )));
        }
        let mut forward = self.load()?;
        let native = Native::get()?;
        if !forward.model.functions.is_empty() {
            inline_functions(native, &mut forward.model)?;
        }
        let mut names = Names::of(forward.graph());
        let mut types = Types::infer(native, &forward.model)?;
        let loss_inputs = self.loss_values(forward.graph(), &types)?;
        self.check_extra_outputs(forward.graph(), &types)?;

        let forward_nodes = forward.graph().node.len();
        let forward_inputs = forward.graph().input.len();
        let forward_initializers = forward.graph().initializer.len();
        let opset = forward.opset;
        let loss = loss::add(
            &mut LossGraph {
                graph: forward.graph_mut(),
                names: &mut names,
                types: &mut types,
                opset,
                target_name: self.target_name.as_deref(),
            },
            &self.loss,
            &loss_inputs,
        )?;
        if let Loss::Custom(custom) = &self.loss {
            let imported = |domain: &Option<String>| {
                forward
                    .model
                    .opset_import
                    .iter()
                    .any(|o| o.domain == *domain)
            };
            let missing: Vec<_> = custom
                .opset_import
                .iter()
                .filter(|o| {
                    !matches!(o.domain.as_deref(), None | Some("" | "ai.onnx"))
                        && !imported(&o.domain)
                })
                .cloned()
                .collect();
            forward.model.opset_import.extend(missing);
            // What the loss model says of its values may be wrong, and of most it says nothing.
            types = Types::infer(native, &forward.model)?;
            loss::check_scalar(&types, &loss.loss, "the loss model's output")?;
        }
        let parameters = select(
            forward.graph(),
            &types,
            &loss.loss,
            &self.selection,
            forward_initializers,
        )?;
        self.check_optimizer(forward.graph(), &parameters)?;
        training::check_added_names(&names, &parameters)?;

        let mut report = Report {
            trainable: parameters.trainable.clone(),
            frozen: parameters.frozen.clone(),
            constants: constants(forward.graph(), &parameters, forward_initializers),
            inputs: forward
                .graph()
                .input
                .iter()
                .map(|i| i.label().to_owned())
                .collect(),
            unknown_fields: std::mem::take(&mut forward.unknown),
            ..Report::default()
        };
        let (trainable, frozen) = values(forward.graph(), &parameters)?;
        training::parameters_to_inputs(forward.graph_mut(), &parameters);

        let outputs = distinct(std::iter::once(&loss.loss).chain(&self.extra_outputs));
        let eval_outputs = if loss.in_evaluation {
            outputs.clone()
        } else {
            distinct(loss_inputs.iter().chain(&self.extra_outputs))
        };
        report.outputs = outputs.clone();
        report.eval_outputs = eval_outputs.clone();

        let mut evaluation = forward.model.clone();
        let graph = evaluation.graph.as_mut().expect("checked when it was read");
        without_leftovers(graph, |graph| {
            if !loss.in_evaluation {
                graph.node.truncate(forward_nodes);
                let own = graph.input.len() - parameters.trainable.len() - parameters.frozen.len();
                graph.input.drain(forward_inputs..own);
            }
            set_outputs(graph, &types, &eval_outputs, &loss.loss);
            evaluation::to_inference(graph);
        });
        let eval_model = encode(&evaluation, "the evaluation model")?;
        drop(evaluation);

        let mut model = forward.model;
        let graph = model.graph.as_mut().expect("checked when it was read");
        set_outputs(graph, &types, &outputs, &loss.loss);
        let mut rewriter =
            rewrite::Rewriter::new(graph, &types, &mut names, opset, &parameters, &loss.loss);
        report.rewrites = rewriter.run(self.rewrites, self.batch_norm)?;
        training::complete_nodes(graph, &mut names);
        let training_model =
            self.differentiate(native, &model, &loss.loss, &outputs, &parameters)?;
        let optimizer_model = self.optimizer.as_ref().map(|optimizer| {
            optimizer
                .model(opset, &mut names, self.clip_grad_norm)
                .encode_to_vec()
        });
        Ok(Artifacts {
            native,
            training_model,
            eval_model,
            optimizer_model,
            trainable,
            frozen,
            prefix: self.prefix,
            nominal: self.nominal_checkpoint,
            report,
        })
    }

    fn load(&self) -> Result<Forward> {
        match &self.source {
            Source::Path(path) => match &self.external_data_dir {
                None => Forward::from_path(path),
                Some(directory) => {
                    let bytes =
                        std::fs::read(path).map_err(|e| ArtifactsError::reading(path, e))?;
                    Forward::from_bytes(
                        Bytes::from(bytes),
                        Some(directory),
                        &path.display().to_string(),
                    )
                }
            },
            Source::Bytes(bytes) => Forward::from_bytes(
                bytes.clone(),
                self.external_data_dir.as_deref(),
                "the model",
            ),
        }
    }

    fn loss_values(&self, graph: &GraphProto, types: &Types) -> Result<Vec<String>> {
        let outputs = || graph.output.iter().map(ValueInfoProto::label);
        if self.loss_inputs.is_empty() {
            return Ok(outputs().take(1).map(str::to_owned).collect());
        }
        for name in &self.loss_inputs {
            if types.get(name).is_none() && !outputs().any(|o| o == name) {
                return Err(ArtifactsError::Name(format!(
                    "'{name}', which the loss is to be computed from, is not a value of the model{}",
                    suggest(name, outputs())
                )));
            }
        }
        if self.loss_inputs.len() > 1 && !matches!(self.loss, Loss::OutputGradient) {
            return Err(ArtifactsError::Loss(format!(
                "this loss is computed from one output; {} were given",
                self.loss_inputs.len()
            )));
        }
        Ok(self.loss_inputs.clone())
    }

    fn check_extra_outputs(&self, graph: &GraphProto, types: &Types) -> Result<()> {
        let produced: Vec<&str> = graph
            .node
            .iter()
            .flat_map(|n| &n.output)
            .map(String::as_str)
            .filter(|o| !o.is_empty())
            .collect();
        for name in &self.extra_outputs {
            if !produced.contains(&name.as_str()) {
                return Err(ArtifactsError::Name(format!(
                    "the extra output '{name}' is not a value that a node of the model computes{}",
                    suggest(name, produced.iter().copied())
                )));
            }
            let declared = graph.output.iter().any(|o| o.label() == name);
            if !declared && types.get(name).is_none() {
                return Err(ArtifactsError::Name(format!(
                    "the type of the extra output '{name}' is not known: the model does not say it"
                )));
            }
        }
        Ok(())
    }

    fn check_optimizer(&self, graph: &GraphProto, parameters: &Parameters) -> Result<()> {
        if self.optimizer.is_none() {
            return Ok(());
        }
        let other = graph.initializer.iter().find(|t| {
            parameters.trainable.iter().any(|p| p == t.label()) && t.elem_type() != data_type::FLOAT
        });
        match other {
            None => Ok(()),
            Some(tensor) => Err(ArtifactsError::Optimizer(format!(
                "ONNX Runtime's optimizers train float parameters; '{}' is {} (freeze it, or make artifacts without \
                 an optimizer)",
                tensor.label(),
                type_name(tensor.elem_type())
            ))),
        }
    }

    fn differentiate(
        &self,
        native: Native,
        model: &ModelProto,
        loss: &str,
        outputs: &[String],
        parameters: &Parameters,
    ) -> Result<Vec<u8>> {
        let bytes = encode(model, "the training model")?;
        let trainable: Vec<&str> = parameters.trainable.iter().map(String::as_str).collect();
        let built = native.build_gradient_model(&bytes, loss, &trainable)?;
        drop(bytes);
        let mut built = ModelProto::decode(Bytes::from_owner(built))
            .map_err(|e| ArtifactsError::Runtime(format!("its model cannot be read: {e}")))?;
        let versions = built.clone_without_graph();
        let graph = built.graph.get_or_insert_default();
        training::join_reshapings(graph, &mut Names::of(graph), |graph| {
            let model = ModelProto {
                graph: Some(graph.clone()),
                ..versions
            };
            Types::infer(native, &model)
        })?;
        training::accumulate_gradients(graph, outputs, parameters)?;
        encode(&built, "the training model")
    }
}

/// Operators that ONNX Runtime has gradients for: domain (empty for ONNX's own) and name.
///
/// A gradient is not yet a CPU kernel for it: [`ArtifactsBuilder::build`] says which are missing for a model.
///
/// # Errors
/// The ONNX Runtime in this process cannot make artifacts.
pub fn differentiable_operators() -> Result<Vec<(String, String)>> {
    Native::get()?.differentiable_operators()
}

/// Whether the ONNX Runtime in this process can make artifacts.
pub fn is_available() -> bool {
    Native::get().is_ok()
}

/// Writes nothing and builds nothing: reads the model and says whether it is one.
///
/// # Errors
/// It is not an ONNX model, or its external data is missing.
pub fn check_model(path: impl AsRef<Path>) -> Result<()> {
    Forward::from_path(path.as_ref()).map(drop)
}
