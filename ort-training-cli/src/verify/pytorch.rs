//! A model that was exported from PyTorch against what PyTorch computed.

use std::path::Path;

use anyhow::{Context, Result};
use ort_training::artifacts::onnx::ModelProto;
use ort_training::artifacts::{ArtifactsBuilder, Optimizer, evaluation_form, without_dropout};
use ort_training::{AsValue, Environment, InferenceSession, Value};
use prost::Message;

use super::compare::Tolerance;
use super::report::{Pair, report};
use super::sidecar::{Sidecar, Step};
use super::{Arrays, inputs, run_model};
use crate::data::{Array, Elements};
use crate::files::folder_of;
use crate::model::Model;
use crate::session::DeviceArgs;
use crate::table::say;

/// A power of two, so that what the optimizer step takes from a parameter is its gradient exactly, times this, and so
/// large that hardly anything of the gradient is lost when the parameter is rounded.
const RATE: f32 = 16_777_216.0;

/// Tolerances, outputs to compare and device as the command line has them.
pub struct Request<'a> {
    pub model: &'a Path,
    pub rtol: Option<f64>,
    pub atol: Option<f64>,
    pub device: &'a DeviceArgs,
}

/// Compares outputs, and then a training step; whether all agree.
pub fn verify(request: &Request<'_>, reference: &Path) -> Result<bool> {
    let sidecar = Sidecar::read(reference)?;
    let tolerance = Tolerance::new(
        request.rtol.or(sidecar.rtol).unwrap_or(super::RTOL),
        request.atol.or(sidecar.atol).unwrap_or(super::ATOL),
    )?;
    let model = Model::read(request.model)?;
    let what = || request.model.display().to_string();
    let session = evaluation(&model.proto, request).with_context(what)?;
    sidecar.check(&session, model.graph()).with_context(what)?;
    say(format!(
        "{} and {} ({})",
        request.model.display(),
        reference.display(),
        sidecar.origin
    ))?;

    let found = run_model(&session, &sidecar.inputs)?;
    drop(session);
    let pairs: Vec<Pair<'_>> = found
        .iter()
        .map(|(name, array)| pair("output", name, array, get(&sidecar.outputs, name)))
        .collect();
    let mut agree = report("output", &pairs, &tolerance)?;
    match &sidecar.step {
        None => say("the reference has no training step: no loss and no gradients were compared")?,
        Some(step) => {
            let (loss, gradients) = train(&model.proto, &sidecar, step, request)
                .with_context(|| format!("{}: training step", request.model.display()))?;
            let mut pairs = vec![pair("loss", "loss", &loss, Some(&step.loss))];
            pairs.extend(
                gradients
                    .iter()
                    .map(|(name, array)| pair("gradient", name, array, get(&step.gradients, name))),
            );
            agree &= report("loss and gradients", &pairs, &tolerance)?;
        }
    }
    Ok(agree)
}

fn pair<'a>(
    kind: &'static str,
    name: &str,
    found: &'a Array,
    reference: Option<&'a Array>,
) -> Pair<'a> {
    Pair {
        kind,
        name: name.to_owned(),
        found,
        reference,
    }
}

fn get<'a>(arrays: &'a Arrays, name: &str) -> Option<&'a Array> {
    arrays
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, array)| array)
}

/// The model in its evaluation form: it was exported for training.
fn evaluation(model: &ModelProto, request: &Request<'_>) -> Result<InferenceSession> {
    let mut model = model.clone();
    evaluation_form(&mut model)?;
    let folder = folder_of(request.model);
    let folder = folder
        .to_str()
        .with_context(|| format!("{}: expected a path in UTF-8", folder.display()))?;
    let options = request.device.options()?.with_config_entry(
        "session.model_external_initializers_file_folder_path",
        folder,
    )?;
    let env = Environment::shared()?;
    Ok(InferenceSession::builder(&env)
        .options(options)
        .model_bytes(model.encode_to_vec())
        .build()?)
}

/// One training step from artifacts in memory: the loss, and the gradient of every parameter that the reference has one of.
fn train(
    model: &ModelProto,
    sidecar: &Sidecar,
    step: &Step,
    request: &Request<'_>,
) -> Result<(Array, Arrays)> {
    let mut bare = model.clone();
    without_dropout(&mut bare)?;
    let graph = bare.graph.as_ref().context("the model has no graph")?;
    let parameters: Vec<(&str, String)> = step
        .gradients
        .iter()
        .map(|(name, _)| (name.as_str(), sidecar.name_in_model(graph, name)))
        .collect();
    let artifacts = ArtifactsBuilder::from_bytes(bare.encode_to_vec())
        .external_data_dir(folder_of(request.model))
        .requires_grad(parameters.iter().map(|(_, name)| name))
        .loss(step.kind.clone())
        .loss_inputs([&step.output])
        .optimizer(Optimizer::Sgd)
        .build()?;
    let env = Environment::shared()?;
    let mut session = artifacts
        .into_bytes()?
        .session(&env)?
        .options(request.device.options()?)
        .build()?;
    let values: Vec<Value> = session
        .train_inputs()
        .iter()
        .map(|spec| {
            // What is no input of the model is the loss's target.
            let array = get(&sidecar.inputs, spec.name()).unwrap_or(&step.target);
            let array = inputs::convert(array.clone(), spec)
                .with_context(|| format!("input '{}'", spec.name()))?;
            Ok(array.into_value()?)
        })
        .collect::<Result<_>>()?;
    let values: Vec<&dyn AsValue> = values.iter().map(|value| value as &dyn AsValue).collect();
    let before = elements(&session, &parameters)?;
    let loss = session.train_step(&values)?.loss()?;
    session.set_learning_rate(RATE)?;
    session.optimizer_step()?;
    let after = elements(&session, &parameters)?;
    let gradients = step
        .gradients
        .iter()
        .zip(before.into_iter().zip(after))
        .map(|((name, reference), (before, after))| {
            let gradient = before
                .into_iter()
                .zip(after)
                .map(|(before, after)| (before - after) / RATE)
                .collect();
            let array = Array::new(reference.shape.clone(), Elements::F32(gradient))?;
            Ok((name.clone(), array))
        })
        .collect::<Result<_>>()?;
    Ok((
        Array::new(Vec::new(), Elements::F32(vec![loss]))?,
        gradients,
    ))
}

fn elements(
    session: &ort_training::TrainingSession,
    parameters: &[(&str, String)],
) -> Result<Vec<Vec<f32>>> {
    parameters
        .iter()
        .map(|(_, name)| Ok(session.checkpoint().parameter(name)?.into_vec()))
        .collect()
}
