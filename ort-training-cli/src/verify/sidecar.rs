//! What PyTorch computed: the file that the exporter for PyTorch writes beside a model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ort_training::artifacts::onnx::{GraphProto, TensorProto};
use ort_training::artifacts::{CrossEntropy, Loss};
use ort_training::{Dimension, InferenceSession, IoInfo};
use serde_json::Value as Json;

use super::Arrays;
use crate::data::{Array, SafetensorsFile, read_safetensors};
use crate::files::folder_of;
use crate::model::element_type;
use crate::session::{declared, names};
use crate::suggest::suggest;
use crate::table::shape;

/// Saved inputs and outputs, and perhaps a training step.
pub struct Sidecar {
    path: PathBuf,
    pub inputs: Arrays,
    /// In evaluation mode.
    pub outputs: Arrays,
    pub step: Option<Step>,
    pub rtol: Option<f64>,
    pub atol: Option<f64>,
    /// Parameters that share another's tensor, and that other.
    tied: BTreeMap<String, String>,
    /// Which PyTorch, exporter and operator set.
    pub origin: String,
}

/// One training step: dropout passing its input, the rest in training mode.
pub struct Step {
    pub kind: Loss,
    /// The output that the loss is computed from.
    pub output: String,
    pub target: Array,
    pub loss: Array,
    /// By parameter.
    pub gradients: Arrays,
}

/// The loss as the metadata describe it.
struct LossInfo {
    kind: Loss,
    output: String,
    target: &'static str,
}

/// The reference that lies beside a model, if one does.
pub fn beside(model: &Path) -> Option<PathBuf> {
    let stem = model.file_stem()?.to_str()?;
    let path = folder_of(model).join(format!("{stem}.reference.safetensors"));
    path.is_file().then_some(path)
}

impl Sidecar {
    pub fn read(path: &Path) -> Result<Self> {
        let file = read_safetensors(path, |_| true)?;
        Self::parse(path, file).with_context(|| path.display().to_string())
    }

    fn parse(path: &Path, file: SafetensorsFile) -> Result<Self> {
        let SafetensorsFile { metadata, arrays } = file;
        let (mut inputs, mut outputs, mut gradients) = (Vec::new(), Vec::new(), Vec::new());
        let (mut targets, mut loss) = (Vec::new(), None);
        for (name, array) in arrays {
            match name.split_once('.') {
                Some(("input", rest)) => inputs.push((rest.to_owned(), array)),
                Some(("output", rest)) => outputs.push((rest.to_owned(), array)),
                Some(("grad", rest)) => gradients.push((rest.to_owned(), array)),
                Some(("target", rest)) => targets.push((rest.to_owned(), array)),
                None if name == "loss" => loss = Some(array),
                // A name that nobody reads must not mean that something is not compared.
                _ => bail!(
                    "expected tensors called input.NAME, output.NAME, target.NAME, grad.NAME and loss, found '{name}'"
                ),
            }
        }
        if outputs.is_empty() {
            bail!("expected at least one tensor output.NAME, found none");
        }
        let step = match metadata.get("loss") {
            Some(text) => {
                let info = loss_info(text)?;
                let at = targets.iter().position(|(name, _)| name == info.target);
                let at = at.with_context(|| {
                    format!(
                        "expected the tensor target.{}, which the loss of its metadata takes, found {}",
                        info.target,
                        match targets.first() {
                            Some((name, _)) => format!("target.{name}"),
                            None => "no target".to_owned(),
                        }
                    )
                })?;
                if gradients.is_empty() {
                    bail!("expected tensors grad.PARAMETER beside the loss, found none");
                }
                Some(Step {
                    kind: info.kind,
                    output: info.output,
                    target: targets.swap_remove(at).1,
                    loss: loss.context(
                        "expected the tensor loss, which its metadata describe; found none",
                    )?,
                    gradients,
                })
            }
            None if loss.is_some() || !gradients.is_empty() || !targets.is_empty() => bail!(
                "expected the entry 'loss' in the metadata, which says how loss and gradients were computed; found {}",
                keys(&metadata)
            ),
            None => None,
        };
        let tied = match metadata.get("tied") {
            Some(text) => serde_json::from_str(text)
                .with_context(|| format!("metadata: expected names in 'tied', found {text}"))?,
            None => BTreeMap::new(),
        };
        let origin = [
            ("torch", "PyTorch"),
            ("exporter", "exporter"),
            ("opset", "operator set"),
        ]
        .iter()
        .filter_map(|(key, word)| Some(format!("{word} {}", metadata.get(*key)?)))
        .collect::<Vec<_>>()
        .join(", ");
        Ok(Self {
            path: path.to_owned(),
            inputs,
            outputs,
            step,
            rtol: tolerance(&metadata, "rtol")?,
            atol: tolerance(&metadata, "atol")?,
            tied,
            origin,
        })
    }

    /// The initializer of a parameter, under its own name or that of the one whose tensor it shares.
    fn initializer<'a>(&self, graph: &'a GraphProto, parameter: &str) -> Option<&'a TensorProto> {
        let find = |name: &str| {
            graph
                .initializer
                .iter()
                .find(|tensor| tensor.name.as_deref() == Some(name))
        };
        find(parameter).or_else(|| find(self.tied.get(parameter)?))
    }

    /// What the model calls a parameter.
    pub fn name_in_model(&self, graph: &GraphProto, parameter: &str) -> String {
        self.initializer(graph, parameter)
            .and_then(|tensor| tensor.name.clone())
            .unwrap_or_else(|| parameter.to_owned())
    }

    /// Whether it is a reference for this model: everything that does not fit is in the error.
    pub fn check(&self, session: &InferenceSession, graph: &GraphProto) -> Result<()> {
        let mut wrong = Vec::new();
        for (word, specs, arrays) in [
            ("input", session.inputs(), &self.inputs),
            ("output", session.outputs(), &self.outputs),
        ] {
            for (name, array) in arrays {
                match specs.iter().find(|spec| spec.name() == name) {
                    Some(spec) => wrong.extend(misfit(word, spec, array)),
                    None => wrong.push(format!(
                        "{word} '{name}': the model has none of this name{}",
                        suggest(name, names(specs))
                    )),
                }
            }
        }
        for spec in session.inputs() {
            if !self.inputs.iter().any(|(name, _)| name == spec.name()) {
                wrong.push(format!(
                    "input '{}': expected {}, found no tensor input.{}",
                    spec.name(),
                    declared(spec),
                    spec.name()
                ));
            }
        }
        if let Some(step) = &self.step {
            let known = names(session.outputs());
            if !known.contains(&step.output.as_str()) {
                wrong.push(format!(
                    "loss: it is computed from '{}', which is no output of the model{}",
                    step.output,
                    suggest(&step.output, known)
                ));
            }
            for (name, gradient) in &step.gradients {
                let Some(tensor) = self.initializer(graph, name) else {
                    let known = graph.initializer.iter();
                    wrong.push(format!(
                        "gradient '{name}': the model has no initializer of this name{}",
                        suggest(name, known.filter_map(|tensor| tensor.name.as_deref()))
                    ));
                    continue;
                };
                let wanted = element_type(tensor.data_type.unwrap_or_default());
                let found = gradient.elements.element_type();
                let sizes = tensor.dims.iter().map(|&size| usize::try_from(size));
                let same = sizes.eq(gradient.shape.iter().map(|&size| Ok(size)));
                if wanted != found || !same {
                    wrong.push(format!(
                        "gradient '{name}': expected {wanted} {}, as the parameter, found {found} {}",
                        shape(&tensor.dims),
                        shape(&gradient.shape)
                    ));
                }
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        bail!(
            "{} is the reference of another model:\n  {}",
            self.path.display(),
            wrong.join("\n  ")
        )
    }
}

/// What keeps an array from being this input or output.
fn misfit(word: &str, spec: &IoInfo, array: &Array) -> Option<String> {
    let same_type = spec.element_type() == Some(array.elements.element_type());
    let same_shape = spec.dimensions().is_none_or(|dimensions| {
        dimensions.len() == array.shape.len()
            && dimensions
                .iter()
                .zip(&array.shape)
                .all(|(dimension, size)| match dimension {
                    Dimension::Fixed(fixed) => fixed == size,
                    Dimension::Symbolic(_) => true,
                })
    });
    (!same_type || !same_shape).then(|| {
        format!(
            "{word} '{}': expected {}, found {} {}",
            spec.name(),
            declared(spec),
            array.elements.element_type(),
            shape(&array.shape)
        )
    })
}

fn loss_info(text: &str) -> Result<LossInfo> {
    let what = || format!("metadata: expected kind and output in 'loss', found {text}");
    let json: Json = serde_json::from_str(text).with_context(what)?;
    let word = |key: &str| json.get(key).and_then(Json::as_str).with_context(what);
    let (kind, target) = match word("kind")? {
        "cross_entropy" => {
            let class_axis = match json.get("class_axis") {
                None => 1,
                Some(axis) => axis.as_i64().with_context(|| {
                    format!(
                        "metadata: expected a whole number as class_axis of 'loss', found {axis}"
                    )
                })?,
            };
            let loss = Loss::CrossEntropy(CrossEntropy {
                class_axis,
                ..CrossEntropy::default()
            });
            (loss, "labels")
        }
        "bce_with_logits" => (Loss::bce_with_logits(), "target"),
        "mse" => (Loss::mse(), "target"),
        "l1" => (Loss::l1(), "target"),
        other => bail!(
            "metadata: expected the kind of loss cross_entropy, bce_with_logits, mse or l1, found '{other}'"
        ),
    };
    Ok(LossInfo {
        kind,
        output: word("output")?.to_owned(),
        target,
    })
}

fn tolerance(metadata: &BTreeMap<String, String>, key: &str) -> Result<Option<f64>> {
    metadata
        .get(key)
        .map(|text| {
            text.parse()
                .ok()
                .with_context(|| format!("metadata: expected a number as {key}, found '{text}'"))
        })
        .transpose()
}

fn keys(metadata: &BTreeMap<String, String>) -> String {
    if metadata.is_empty() {
        return "no metadata".to_owned();
    }
    let keys: Vec<&str> = metadata.keys().map(String::as_str).collect();
    keys.join(", ")
}
