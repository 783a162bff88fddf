//! `ort-training inspect`: what is in a model, a folder of artifacts or a checkpoint.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use comfy_table::Table;
use ort_training::artifacts::onnx::ValueInfoProto;
use ort_training::{CheckpointSummary, Property};

use crate::model::{GRADIENT_SUFFIX, Model, element_type, name, type_and_shape};
use crate::session::ArtifactFiles;
use crate::table::{align_right, bytes, say, shape, table, thousands};

const EXAMPLES: &str = "\
Examples:
  ort-training inspect model.onnx               inputs, outputs, operator sets, parameters
  ort-training inspect artifacts                what a folder of artifacts trains, and from what
  ort-training inspect run/epoch-0010.ckpt      parameters, properties and optimizer state of a checkpoint
  ort-training inspect model.onnx --operators   also how often each operator occurs";

/// Show what is in a model, a folder of artifacts or a checkpoint
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// An ONNX model, a folder of artifacts, or a checkpoint
    path: PathBuf,

    /// For a folder: what the files' names begin with
    #[arg(long, default_value = "")]
    prefix: String,

    /// Also show how often each operator occurs
    #[arg(long)]
    operators: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let path = &args.path;
    if path.is_dir() {
        artifacts(path, args)
    } else if is_checkpoint(path)? {
        say(format!("Checkpoint {}", path.display()))?;
        checkpoint(path)
    } else {
        model(path, args)
    }
}

/// A checkpoint's fifth to eighth byte name its format.
fn is_checkpoint(path: &Path) -> Result<bool> {
    let mut start = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(8).read_to_end(&mut start))
        .with_context(|| path.display().to_string())?;
    Ok(start.get(4..8) == Some(b"ODTC"))
}

fn checkpoint(path: &Path) -> Result<()> {
    let checkpoint = CheckpointSummary::read(path)?;
    say("\nParameters")?;
    say(checkpoint_table(&checkpoint)?)?;
    if checkpoint.is_nominal() {
        say("A nominal checkpoint: names and types, no shapes and no values")?;
    }
    say(match checkpoint.optimizer_step() {
        Some(step) => format!(
            "With the optimizer's state after {} steps",
            thousands(step.unsigned_abs())
        ),
        None => "Without an optimizer's state".to_owned(),
    })?;
    if !checkpoint.properties().is_empty() {
        say("\nProperties")?;
        let mut properties = table(["name", "type", "value"]);
        for (name, value) in checkpoint.properties() {
            let (kind, value) = match value {
                Property::Int(value) => ("int64", value.to_string()),
                Property::Float(value) => ("float32", value.to_string()),
                Property::String(value) => ("string", value.clone()),
            };
            properties.add_row([name.as_str(), kind, &value]);
        }
        say(properties)?;
    }
    Ok(())
}

/// Names, shapes, types and what is trained, with totals.
pub fn checkpoint_table(checkpoint: &CheckpointSummary) -> Result<Table> {
    let mut parameters = Parameters::default();
    for parameter in checkpoint.parameters() {
        let sizes = parameter.shape();
        let element = parameter.element_type();
        let (count, sizes) = if checkpoint.is_nominal() {
            (0, "?".to_owned())
        } else {
            let count = sizes.iter().map(|&size| size as u64).product();
            (count, shape(sizes))
        };
        parameters.add(
            parameter.name(),
            &sizes,
            element,
            count,
            parameter.requires_grad(),
        );
    }
    Ok(parameters.table("trained"))
}

/// Rows of a table of parameters, and their sums.
#[derive(Default)]
struct Parameters {
    rows: Vec<[String; 5]>,
    trained: (usize, u64),
    elements: u64,
    bytes: u64,
}

impl Parameters {
    fn add(
        &mut self,
        name: &str,
        shape: &str,
        element: ort_training::ElementType,
        count: u64,
        trained: bool,
    ) {
        self.rows.push([
            name.to_owned(),
            shape.to_owned(),
            element.to_string(),
            thousands(count),
            (if trained { "yes" } else { "no" }).to_owned(),
        ]);
        self.elements += count;
        self.bytes += element
            .byte_count(usize::try_from(count).unwrap_or(usize::MAX))
            .unwrap_or(0) as u64;
        if trained {
            self.trained = (self.trained.0 + 1, self.trained.1 + count);
        }
    }

    fn table(self, trained: &str) -> Table {
        let mut table = table(["name", "shape", "type", "elements", trained]);
        let total = [
            format!("{} in all, {}", self.rows.len(), bytes(self.bytes)),
            String::new(),
            String::new(),
            thousands(self.elements),
            format!("{} ({})", self.trained.0, thousands(self.trained.1)),
        ];
        table.add_rows(self.rows);
        table.add_row(total);
        align_right(&mut table, &[3]);
        table
    }
}

fn model(path: &Path, args: &Args) -> Result<()> {
    let model = Model::read(path)?;
    say(format!("ONNX model {}", path.display()))?;
    say(header(&model))?;
    values("Inputs", &model.inputs())?;
    values("Outputs", &model.graph().output.iter().collect::<Vec<_>>())?;
    let gradients: HashSet<&str> = model.gradients().into_iter().collect();
    if gradients.is_empty() {
        initializers(&model)?;
    } else {
        say(
            "\nA training model: its parameters are inputs and their values are in the checkpoint; trained are those \
             with gradients",
        )?;
    }
    operators(&model, args)
}

fn header(model: &Model) -> Table {
    let proto = &model.proto;
    let mut header = table(["", ""]);
    let producer = [&proto.producer_name, &proto.producer_version]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ");
    header.add_row(["size", &bytes(model.bytes)]);
    header.add_row([
        "IR version",
        &proto.ir_version.unwrap_or_default().to_string(),
    ]);
    header.add_row(["operator sets", &opsets(&model.opsets())]);
    header.add_row(["producer", producer.trim()]);
    header.add_row([
        "graph",
        &format!(
            "{}: {} nodes, {} initializers",
            model.graph().name.as_deref().unwrap_or_default(),
            model.graph().node.len(),
            model.graph().initializer.len()
        ),
    ]);
    if !proto.functions.is_empty() {
        header.add_row(["functions", &proto.functions.len().to_string()]);
    }
    header
}

fn opsets(opsets: &[(String, i64)]) -> String {
    let texts: Vec<String> = opsets
        .iter()
        .map(|(domain, version)| format!("{domain} {version}"))
        .collect();
    texts.join(", ")
}

fn values(heading: &str, values: &[&ValueInfoProto]) -> Result<()> {
    say(format!("\n{heading}"))?;
    let mut rows = table(["name", "type", "shape"]);
    for value in values {
        let (element, shape) = type_and_shape(value);
        rows.add_row([name(value), &element, &shape]);
    }
    say(rows)
}

fn initializers(model: &Model) -> Result<()> {
    say("\nInitializers")?;
    let mut parameters = Parameters::default();
    for tensor in &model.graph().initializer {
        let count = tensor
            .dims
            .iter()
            .map(|&size| u64::try_from(size).unwrap_or_default())
            .product();
        parameters.add(
            tensor.name.as_deref().unwrap_or_default(),
            &shape(&tensor.dims),
            element_type(tensor.data_type.unwrap_or_default()),
            count,
            model.trained_by_default(tensor),
        );
    }
    say(parameters.table("trainable"))
}

fn operators(model: &Model, args: &Args) -> Result<()> {
    if !args.operators {
        return Ok(());
    }
    say("\nOperators")?;
    let mut rows = table(["operator", "nodes"]);
    for (operator, count) in model.operators() {
        rows.add_row([operator, count.to_string()]);
    }
    align_right(&mut rows, &[1]);
    say(rows)
}

fn artifacts(folder: &Path, args: &Args) -> Result<()> {
    let files = ArtifactFiles::find(folder, &args.prefix)?;
    let training = Model::read(&files.training_model)?;
    let checkpoint = CheckpointSummary::read(&files.checkpoint)?;
    say(format!("Training artifacts {}", folder.display()))?;
    let mut rows = table(["file", "size", "operator sets", "nodes"]);
    for path in [
        Some(&files.training_model),
        files.eval_model.as_ref(),
        files.optimizer_model.as_ref(),
    ]
    .into_iter()
    .flatten()
    {
        let model = Model::read(path)?;
        rows.add_row([
            file_name(path),
            bytes(model.bytes),
            opsets(&model.used_opsets()),
            model.graph().node.len().to_string(),
        ]);
    }
    rows.add_row([
        file_name(&files.checkpoint),
        bytes(std::fs::metadata(&files.checkpoint)?.len()),
        String::new(),
        String::new(),
    ]);
    align_right(&mut rows, &[1, 3]);
    say(rows)?;
    let parameters: HashSet<String> = checkpoint
        .parameters()
        .iter()
        .map(|parameter| parameter.name().to_owned())
        .collect();
    values(
        "Inputs of a training step",
        &own_inputs(&training, &parameters),
    )?;
    values("Outputs of a training step", &own_outputs(&training))?;
    match &files.eval_model {
        Some(path) => {
            let eval = Model::read(path)?;
            values(
                "Inputs of an evaluation step",
                &own_inputs(&eval, &parameters),
            )?;
            values("Outputs of an evaluation step", &own_outputs(&eval))?;
        }
        None => say("\nNo evaluation model: neither evaluation nor export")?,
    }
    if let Some(path) = &files.optimizer_model {
        let optimizer = Model::read(path)?;
        let kinds: Vec<String> = optimizer
            .operators()
            .into_keys()
            .filter(|operator| operator.contains("Optimizer") || operator.contains("ClipGradNorm"))
            .collect();
        say(format!("\nOptimizer: {}", kinds.join(", ")))?;
    } else {
        say("\nNo optimizer model: gradients only")?;
    }
    say("\nParameters")?;
    say(checkpoint_table(&checkpoint)?)?;
    operators(&training, args)
}

/// What the caller gives: neither parameters nor what the session gives itself.
fn own_inputs<'a>(model: &'a Model, parameters: &HashSet<String>) -> Vec<&'a ValueInfoProto> {
    model
        .inputs()
        .into_iter()
        .filter(|input| {
            let name = name(input);
            !parameters.contains(name)
                && name != "lazy_reset_grad"
                && !name.ends_with(GRADIENT_SUFFIX)
        })
        .collect()
}

fn own_outputs(model: &Model) -> Vec<&ValueInfoProto> {
    model
        .graph()
        .output
        .iter()
        .filter(|output| !name(output).ends_with("_grad.accumulation.out"))
        .collect()
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
