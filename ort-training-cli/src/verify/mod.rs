//! `ort-training verify`: does a model compute what another one does, or what it once did?

mod compare;
mod inputs;
mod pytorch;
mod report;
mod sidecar;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ort_training::{AsValue, InferenceSession, IoInfo, Value};

use crate::data::{Array, read_arrays, write_npz};
use crate::files::{check_writable, write_whole};
use crate::session::{DeviceArgs, inference, names};
use crate::suggest::suggest;
use crate::table::say;
use compare::Tolerance;
use inputs::InputArgs;
use report::{Pair, report};

const EXAMPLES: &str = "\
Examples:
  Two models on random inputs:
    ort-training verify trained.onnx original.onnx --rtol 1e-4 --atol 1e-6
  Two models on given inputs, one output of each:
    ort-training verify a.onnx b.onnx --inputs test.npz --output logits=scores
  A model and saved results: the .npz holds inputs and outputs under the model's names
    ort-training verify model.onnx --reference reference.npz
  Save such results:
    ort-training verify model.onnx --inputs test.npz --write-reference reference.npz
  A model from PyTorch and what PyTorch computed: outputs, loss and gradients. The exporter wrote
  model.reference.safetensors, which is found beside the model
    ort-training verify model.onnx
    ort-training verify model.onnx --reference model.reference.safetensors --rtol 1e-3

An element agrees when |found - reference| <= atol + rtol * |reference|; integers, truth values and text have to be
equal. The second model, or the file, is the reference. For an element of a gradient, rtol is of the largest element of
that gradient. The training step is one from artifacts that are made in memory; dropout passes its input.

Exit status: 0 all agree; 1 some differ; 2 an error.";

/// Compare two models, or a model and saved results
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model to verify (.onnx)
    model: PathBuf,

    /// The model that is the reference (.onnx)
    #[arg(conflicts_with_all = ["reference", "write_reference"])]
    other: Option<PathBuf>,

    /// Saved inputs and outputs (.npz) that are the reference, or what PyTorch computed (.safetensors; default: the
    /// model's .reference.safetensors beside it, if there is one)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["inputs", "write_reference"])]
    reference: Option<PathBuf>,

    /// Compare nothing: write the inputs and the model's outputs as a reference
    #[arg(long, value_name = "FILE")]
    write_reference: Option<PathBuf>,

    /// Relative tolerance (default: 1e-5, or what PyTorch's reference says)
    #[arg(long, allow_negative_numbers = true)]
    rtol: Option<f64>,

    /// Absolute tolerance (default: 1e-6, or what PyTorch's reference says)
    #[arg(long, allow_negative_numbers = true)]
    atol: Option<f64>,

    /// Compare this output only (several times for several), with the reference's output of that or another name
    #[arg(long = "output", value_name = "NAME[=REFERENCE]")]
    outputs: Vec<String>,

    #[command(flatten)]
    inputs: InputArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

type Arrays = Vec<(String, Array)>;

const RTOL: f64 = 1e-5;
const ATOL: f64 = 1e-6;

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(path) = pytorch_reference(args)? {
        let request = pytorch::Request {
            model: &args.model,
            rtol: args.rtol,
            atol: args.atol,
            device: &args.device,
        };
        let agree = pytorch::verify(&request, &path)?;
        return Ok(ExitCode::from(u8::from(!agree)));
    }
    let tolerance = Tolerance::new(args.rtol.unwrap_or(RTOL), args.atol.unwrap_or(ATOL))?;
    let session = inference(&args.model, &args.device)?;
    if let Some(path) = &args.write_reference {
        check_writable("--write-reference", path)?;
        let inputs = inputs::gather(&args.inputs, session.inputs())?;
        return write_reference(path, &session, inputs).map(|()| ExitCode::SUCCESS);
    }
    let (found, reference) = match (&args.reference, &args.other) {
        (Some(path), _) => {
            let (inputs, outputs) = saved(path, &session)?;
            (run_model(&session, &inputs)?, outputs)
        }
        (None, Some(other)) => {
            let other_session = inference(other, &args.device)?;
            let inputs = inputs::gather(&args.inputs, session.inputs())?;
            let reference =
                run_model(&other_session, &inputs).with_context(|| other.display().to_string())?;
            let found =
                run_model(&session, &inputs).with_context(|| args.model.display().to_string())?;
            (found, reference)
        }
        (None, None) => {
            bail!(
                "expected a second model, or --reference FILE, to compare with; found neither, and no reference from \
                 PyTorch beside the model"
            )
        }
    };
    let pairs = pairs(args, &found, &reference)?;
    let agree = report("output", &pairs, &tolerance)?;
    Ok(ExitCode::from(u8::from(!agree)))
}

/// The reference from PyTorch that was given, or lies beside the model when nothing else is asked for.
fn pytorch_reference(args: &Args) -> Result<Option<PathBuf>> {
    let path = match &args.reference {
        Some(path) if path.extension().is_some_and(|e| e == "safetensors") => Some(path.clone()),
        Some(_) => None,
        None if args.other.is_some() || args.write_reference.is_some() => None,
        None => sidecar::beside(&args.model),
    };
    if let Some(path) = &path {
        for (given, option) in [
            (!args.inputs.inputs.is_empty(), "--inputs"),
            (!args.outputs.is_empty(), "--output"),
        ] {
            if given {
                bail!(
                    "{option}: {} has its own inputs, and all its outputs are compared",
                    path.display()
                );
            }
        }
    }
    Ok(path)
}

/// Runs the model on the inputs of its names.
fn run_model(session: &InferenceSession, inputs: &Arrays) -> Result<Arrays> {
    for (name, _) in inputs {
        if !names(session.inputs()).contains(&name.as_str()) {
            bail!(
                "the model has no input '{name}'{}",
                suggest(name, names(session.inputs()))
            );
        }
    }
    let values: Vec<Value> = names(session.inputs())
        .into_iter()
        .map(|name| {
            let (_, array) = inputs
                .iter()
                .find(|(known, _)| known == name)
                .with_context(|| {
                    format!(
                        "nothing for input '{name}'{}",
                        suggest(name, inputs.iter().map(|(known, _)| known.as_str()))
                    )
                })?;
            Ok(array.clone().into_value()?)
        })
        .collect::<Result<_>>()?;
    let values: Vec<&dyn AsValue> = values.iter().map(|value| value as &dyn AsValue).collect();
    let outputs = session.run(&values)?;
    let known = outputs.names().to_vec();
    known
        .into_iter()
        .zip(outputs.into_values())
        .map(|(name, value)| {
            let array = Array::from_value(&value).with_context(|| format!("output '{name}'"))?;
            Ok((name, array))
        })
        .collect()
}

/// The inputs and outputs of a reference file. Every array of it has to be one or the other: a wrong name must not
/// mean that something is not compared.
fn saved(path: &std::path::Path, session: &InferenceSession) -> Result<(Arrays, Arrays)> {
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (name, array) in read_arrays(&[path.display().to_string()])? {
        if let Some(spec) = session.inputs().iter().find(|spec| spec.name() == name) {
            let array = inputs::convert(array, spec)
                .with_context(|| format!("{}: input '{name}'", path.display()))?;
            inputs.push((name, array));
        } else if names(session.outputs()).contains(&name.as_str()) {
            outputs.push((name, array));
        } else {
            let known = session.inputs().iter().chain(session.outputs());
            bail!(
                "{}: array '{name}' is neither an input nor an output of the model{}",
                path.display(),
                suggest(&name, known.map(IoInfo::name))
            );
        }
    }
    if outputs.is_empty() {
        bail!(
            "{}: expected at least one output ({}), found none",
            path.display(),
            names(session.outputs()).join(", ")
        );
    }
    Ok((inputs, outputs))
}

fn write_reference(
    path: &std::path::Path,
    session: &InferenceSession,
    inputs: Arrays,
) -> Result<()> {
    let outputs = run_model(session, &inputs)?;
    if let Some((name, _)) = outputs
        .iter()
        .find(|(name, _)| inputs.iter().any(|(input, _)| input == name))
    {
        bail!("'{name}' is an input and an output; one file cannot hold both");
    }
    write_whole(path, |file| {
        let arrays = inputs.iter().chain(&outputs);
        write_npz(file, arrays.map(|(name, array)| (name.as_str(), array)))
    })?;
    say(format!(
        "wrote {}: {} inputs, {} outputs",
        path.display(),
        inputs.len(),
        outputs.len()
    ))
}

fn pairs<'a>(args: &Args, found: &'a Arrays, reference: &'a Arrays) -> Result<Vec<Pair<'a>>> {
    let get = |arrays: &'a Arrays, name: &str, whose: &str| {
        arrays
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, array)| array)
            .with_context(|| {
                format!(
                    "{whose} has no output '{name}'{}",
                    suggest(name, arrays.iter().map(|(known, _)| known.as_str()))
                )
            })
    };
    if !args.outputs.is_empty() {
        return args
            .outputs
            .iter()
            .map(|choice| {
                let (name, other) = choice.split_once('=').unwrap_or((choice, choice));
                Ok(Pair {
                    kind: "output",
                    name: choice.clone(),
                    found: get(found, name, "the model")?,
                    reference: Some(get(reference, other, "the reference")?),
                })
            })
            .collect();
    }
    for (name, _) in reference {
        get(found, name, "the model").context("use --output NAME=REFERENCE to pair outputs")?;
    }
    let saved = args.reference.is_some();
    found
        .iter()
        .map(|(name, array)| {
            let other = get(reference, name, "the reference");
            // A file may hold some of the outputs; two models have to have the same.
            let other = if saved {
                other.ok()
            } else {
                Some(other.context("use --output NAME=REFERENCE to pair outputs")?)
            };
            Ok(Pair {
                kind: "output",
                name: name.clone(),
                found: array,
                reference: other,
            })
        })
        .collect()
}
