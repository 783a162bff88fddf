//! Gradients of a training model against numerical differentiation of its evaluation model.

use ort_training::artifacts::onnx::{TypeValue, data_type};
use ort_training::artifacts::{
    ArtifactBytes, ArtifactsBuilder, ArtifactsError, BatchNorm, Loss, Report,
};
use prost::Message;

use super::model::to_double;
use super::session::{Data, Session, Tensor};
use super::{Rng, require_artifacts};

/// How the forward model was evaluated for the differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// In double: central differences with a step of 1e-5.
    Double,
    /// In single, because ONNX Runtime lacks a double kernel: fourth-order central differences with a step of 0.02.
    Single,
}

pub struct Checked {
    pub report: Report,
    /// The largest difference, relative to the largest gradient of its parameter.
    pub worst: f64,
    pub arithmetic: Arithmetic,
    /// The largest difference between the outputs of the training and the evaluation form.
    pub forward: f64,
}

/// A model's parameters: names, shapes, values.
pub fn parameters(model: &[u8], names: &[String]) -> Vec<(String, Tensor)> {
    let proto = ort_training::artifacts::onnx::ModelProto::decode(model).expect("a model");
    let graph = proto.graph.expect("a graph");
    names
        .iter()
        .map(|name| {
            let tensor = graph
                .initializer
                .iter()
                .find(|t| t.name.as_ref() == Some(name))
                .unwrap_or_else(|| panic!("no initializer {name}"));
            let raw = tensor.raw_data.as_ref().expect("raw data");
            let values = raw
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().expect("4")))
                .collect();
            (
                name.clone(),
                Tensor {
                    dims: tensor.dims.clone(),
                    data: Data::F32(values),
                },
            )
        })
        .collect()
}

/// Runs the training model once from zeroed gradients: its outputs, and the gradient of each trained parameter.
pub fn gradients(
    artifacts: &ArtifactBytes,
    report: &Report,
    model: &[u8],
    inputs: &[(String, Tensor)],
) -> (Vec<Tensor>, Vec<(String, Vec<f64>)>) {
    let session = Session::new(&artifacts.training_model).expect("a training model that loads");
    let mut feeds: Vec<(String, Tensor)> = inputs.to_vec();
    feeds.extend(parameters(model, &report.trainable));
    feeds.extend(parameters(model, &report.frozen));
    let trained = parameters(model, &report.trainable);
    for (name, tensor) in &trained {
        let zero = Tensor::f32(&tensor.dims, &vec![7.0; tensor.values().len()]);
        feeds.push((format!("{name}_grad.accumulation.buffer"), zero));
    }
    feeds.push(("lazy_reset_grad".to_owned(), Tensor::flag(true)));
    let outputs = session.outputs();
    let results = session.run(&mut feeds, &outputs).expect("a training step");
    let gradients = trained
        .iter()
        .map(|(name, _)| {
            let buffer = format!("{name}_grad.accumulation.buffer");
            let (_, tensor) = feeds.iter().find(|(n, _)| *n == buffer).expect("fed above");
            (name.clone(), tensor.values())
        })
        .collect();
    (results, gradients)
}

fn widen(tensor: &Tensor) -> Tensor {
    match &tensor.data {
        Data::F32(v) => Tensor::f64(
            &tensor.dims,
            &v.iter().map(|&x| x.into()).collect::<Vec<_>>(),
        ),
        _ => tensor.clone(),
    }
}

fn nudge(tensor: &mut Tensor, index: usize, to: f64) {
    match &mut tensor.data {
        Data::F32(v) => v[index] = to as f32,
        Data::F64(v) => v[index] = to,
        other => panic!("not floats: {other:?}"),
    }
}

/// Differentiates Σ y·g, g random, both ways; `inputs` are the model's own.
pub fn check(model: &[u8], inputs: &[(&str, Tensor)], seed: u64) -> Checked {
    check_with(model, inputs, seed, |builder| builder)
}

pub fn check_with(
    model: &[u8],
    inputs: &[(&str, Tensor)],
    seed: u64,
    settings: impl Fn(ArtifactsBuilder) -> ArtifactsBuilder,
) -> Checked {
    require_artifacts();
    let mut checked = check_once(model, inputs, seed, &settings).unwrap_or_else(|e| panic!("{e}"));
    // The same with the sizes of `h` known only when the model runs, where kernels may read what the model says.
    if let Some((open, [from, to])) = with_open_sizes(model, inputs) {
        let mut inputs = inputs.to_vec();
        inputs.extend([("h.from", from), ("h.to", to)]);
        match check_once(&open, &inputs, seed, &settings) {
            Ok(other) => {
                checked.worst = checked.worst.max(other.worst);
                checked.forward = checked.forward.max(other.forward);
            }
            // Some rewrites need sizes, and say so.
            Err(ArtifactsError::NotDifferentiable(nodes)) => {
                for node in &nodes {
                    let says = node.reason.contains("not known");
                    assert!(says, "with open sizes: {node}");
                    println!("open sizes refused: {node}");
                }
            }
            Err(error) => panic!("with open sizes: {error}"),
        }
    }
    checked
}

/// The model with all of `h` cut out by bounds that new inputs give, so that its sizes are not known; `None` for models
/// without an `h` like `x`.
fn with_open_sizes(model: &[u8], inputs: &[(&str, Tensor)]) -> Option<(Vec<u8>, [Tensor; 2])> {
    let dims = inputs.iter().find(|(name, _)| *name == "x")?.1.dims.clone();
    let mut proto = ort_training::artifacts::onnx::ModelProto::decode(model).expect("a model");
    let graph = proto.graph.as_mut().expect("a graph");
    let at = graph
        .node
        .iter()
        .position(|n| n.op_type.as_deref() == Some("Mul") && n.output[0] == "h")?;
    graph.node[at].output[0] = "h.closed".to_owned();
    let mut slice = graph.node[at].clone();
    slice.op_type = Some("Slice".to_owned());
    slice.name = Some("open".to_owned());
    slice.input = ["h.closed", "h.from", "h.to"].map(str::to_owned).to_vec();
    slice.output = vec!["h".to_owned()];
    graph.node.insert(at + 1, slice);
    let rank = dims.len() as i64;
    for name in ["h.from", "h.to"] {
        graph
            .input
            .push(super::model::info(name, data_type::INT64, &[rank]));
    }
    for output in &mut graph.output {
        let open = super::model::info(output.name.as_deref()?, data_type::FLOAT, &[]);
        output.r#type = open.r#type;
        if let Some(TypeValue::Tensor(tensor)) =
            output.r#type.as_mut().and_then(|t| t.value.as_mut())
        {
            tensor.shape = None;
        }
    }
    Some((
        proto.encode_to_vec(),
        [
            Tensor::i64(&[rank], &vec![0; dims.len()]),
            Tensor::i64(&[rank], &dims),
        ],
    ))
}

fn check_once(
    model: &[u8],
    inputs: &[(&str, Tensor)],
    seed: u64,
    settings: &impl Fn(ArtifactsBuilder) -> ArtifactsBuilder,
) -> Result<Checked, ArtifactsError> {
    let builder = ArtifactsBuilder::from_bytes(model.to_vec())
        .loss(Loss::OutputGradient)
        .batch_norm(BatchNorm::Train);
    let artifacts = settings(builder).build()?;
    let report = artifacts.report().clone();
    let artifacts = artifacts.into_bytes().expect("bytes");
    let output = report.eval_outputs[0].clone();
    let inputs: Vec<(String, Tensor)> = inputs
        .iter()
        .map(|(n, t)| ((*n).to_owned(), t.clone()))
        .collect();

    let fixed: Vec<(String, Tensor)> = inputs
        .iter()
        .cloned()
        .chain(parameters(model, &report.frozen))
        .collect();
    let trained = parameters(model, &report.trainable);
    let single = Session::new(&artifacts.eval_model).expect("an evaluation model that loads");
    let mut feeds: Vec<_> = fixed.iter().chain(&trained).cloned().collect();
    let y = single
        .run(&mut feeds, std::slice::from_ref(&output))
        .expect("an evaluation")
        .remove(0);
    let mut rng = Rng(seed);
    let g = rng.values(y.values().len(), -1.0, 1.0);

    let mut steps = inputs.clone();
    steps.push((format!("{output}.gradient"), Tensor::f32(&y.dims, &g)));
    let g: Vec<f64> = steps.last().expect("pushed").1.values();
    let (results, analytic) = gradients(&artifacts, &report, model, &steps);
    let own: f64 = y.values().iter().zip(&g).map(|(y, g)| y * g).sum();
    let scale: f64 = y
        .values()
        .iter()
        .zip(&g)
        .map(|(y, g)| (y * g).abs())
        .sum::<f64>()
        + 1e-6;
    let forward = (results[0].values()[0] - own).abs() / scale;

    let double = Session::new(&to_double(&artifacts.eval_model))
        .ok()
        .filter(|session| {
            let mut feeds: Vec<_> = fixed
                .iter()
                .chain(&trained)
                .map(|(n, t)| (n.clone(), widen(t)))
                .collect();
            session
                .run(&mut feeds, std::slice::from_ref(&output))
                .is_ok()
        });
    let arithmetic = if double.is_some() {
        Arithmetic::Double
    } else {
        Arithmetic::Single
    };
    let session = double.as_ref().unwrap_or(&single);
    let widened = |t: &Tensor| {
        if double.is_some() {
            widen(t)
        } else {
            t.clone()
        }
    };
    let mut feeds: Vec<_> = fixed
        .iter()
        .chain(&trained)
        .map(|(n, t)| (n.clone(), widened(t)))
        .collect();
    let value = |feeds: &mut Vec<(String, Tensor)>| -> f64 {
        let y = session
            .run(feeds, std::slice::from_ref(&output))
            .expect("an evaluation")
            .remove(0);
        y.values().iter().zip(&g).map(|(y, g)| y * g).sum()
    };

    let mut worst: f64 = 0.0;
    for (name, gradient) in &analytic {
        let at = feeds
            .iter()
            .position(|(n, _)| n == name)
            .expect("fed above");
        let largest = gradient.iter().fold(1e-3_f64, |m, v| m.max(v.abs()));
        for (index, &found) in gradient.iter().enumerate() {
            let original = feeds[at].1.values()[index];
            let mut difference = |h: f64| {
                nudge(&mut feeds[at].1, index, original + h);
                let high = feeds[at].1.values()[index];
                let up = value(&mut feeds);
                nudge(&mut feeds[at].1, index, original - h);
                let low = feeds[at].1.values()[index];
                let down = value(&mut feeds);
                nudge(&mut feeds[at].1, index, original);
                (up - down) / (high - low)
            };
            let expected = match arithmetic {
                Arithmetic::Double => difference(1e-5),
                Arithmetic::Single => (4.0 * difference(0.02) - difference(0.04)) / 3.0,
            };
            worst = worst.max((found - expected).abs() / largest);
        }
    }
    Ok(Checked {
        report,
        worst,
        arithmetic,
        forward,
    })
}
