//! `ort-training verify`: does a model compute what another one does, or what it once did?

mod compare;
mod inputs;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ort_training::{AsValue, InferenceSession, IoInfo, Value};

use crate::data::{Array, read_arrays, write_npz};
use crate::files::{check_writable, write_whole};
use crate::session::{DeviceArgs, inference, names};
use crate::suggest::suggest;
use crate::table::{align_right, say, shape, table, thousands};
use compare::{Comparison, Found, Tolerance, compare};
use inputs::InputArgs;

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

An element agrees when |found - reference| <= atol + rtol * |reference|; integers, truth values and text have to be
equal. The second model, or the file, is the reference.

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

    /// Saved inputs and outputs (.npz) that are the reference
    #[arg(long, value_name = "FILE", conflicts_with_all = ["inputs", "write_reference"])]
    reference: Option<PathBuf>,

    /// Compare nothing: write the inputs and the model's outputs as a reference
    #[arg(long, value_name = "FILE")]
    write_reference: Option<PathBuf>,

    /// Relative tolerance
    #[arg(long, default_value_t = 1e-5, allow_negative_numbers = true)]
    rtol: f64,

    /// Absolute tolerance
    #[arg(long, default_value_t = 1e-6, allow_negative_numbers = true)]
    atol: f64,

    /// Compare this output only (several times for several), with the reference's output of that or another name
    #[arg(long = "output", value_name = "NAME[=REFERENCE]")]
    outputs: Vec<String>,

    #[command(flatten)]
    inputs: InputArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

type Arrays = Vec<(String, Array)>;

pub fn run(args: &Args) -> Result<ExitCode> {
    let tolerance = Tolerance::new(args.rtol, args.atol)?;
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
            bail!("expected a second model, or --reference FILE, to compare with; found neither")
        }
    };
    let pairs = pairs(args, &found, &reference)?;
    report(&pairs, &tolerance)
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

/// What is compared with what.
struct Pair<'a> {
    name: String,
    found: &'a Array,
    /// None when the reference does not have it.
    reference: Option<&'a Array>,
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
                name: name.clone(),
                found: array,
                reference: other,
            })
        })
        .collect()
}

fn report(pairs: &[Pair<'_>], tolerance: &Tolerance) -> Result<ExitCode> {
    let mut rows = table([
        "output",
        "type",
        "shape",
        "elements",
        "largest difference",
        "relative",
        "outside",
    ]);
    let (mut agree, mut elements, mut outside) = (true, 0, 0);
    let mut worst: Option<(&Pair<'_>, Comparison)> = None;
    for pair in pairs {
        let mut row = vec![
            pair.name.clone(),
            pair.found.elements.element_type().to_string(),
            shape(&pair.found.shape),
            thousands(pair.found.elements.len() as u64),
        ];
        match pair
            .reference
            .map(|other| compare(pair.found, other, tolerance))
        {
            None => row.push("not in the reference".to_owned()),
            Some(Found::Mismatch(text)) => {
                agree = false;
                row.push(text);
            }
            Some(Found::Compared(comparison)) => {
                row.extend([
                    format!("{:.3e}", comparison.largest),
                    format!("{:.3e}", comparison.relative),
                    thousands(comparison.outside as u64),
                ]);
                agree &= comparison.outside == 0;
                elements += pair.found.elements.len();
                outside += comparison.outside;
                let excess = |c: &Comparison| c.worst.as_ref().map_or(-1.0, |w| w.excess);
                if worst
                    .as_ref()
                    .is_none_or(|(_, before)| excess(&comparison) > excess(before))
                {
                    worst = Some((pair, comparison));
                }
            }
        }
        rows.add_row(row);
    }
    align_right(&mut rows, &[3, 4, 5, 6]);
    say(rows)?;
    if let Some((
        pair,
        Comparison {
            worst: Some(worst), ..
        },
    )) = &worst
    {
        say(format!(
            "worst element: output '{}' at {}: found {}, reference {}, difference {:.6e}, allowed {:.6e}",
            pair.name,
            shape(&worst.index),
            worst.found,
            worst.reference,
            worst.difference,
            worst.allowed
        ))?;
    }
    say(format!(
        "{}: {} of {} elements outside rtol {:e}, atol {:e}",
        if agree { "agree" } else { "differ" },
        thousands(outside as u64),
        thousands(elements as u64),
        tolerance.relative,
        tolerance.absolute
    ))?;
    Ok(ExitCode::from(u8::from(!agree)))
}
