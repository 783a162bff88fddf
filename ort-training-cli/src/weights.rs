//! `ort-training weights`: parameters from and to safetensors files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Subcommand;
use ort_training::{Checkpoint, OptimizerState, Strictness, TrainingSession, WeightsReport};

use crate::files::check_writable;
use crate::session::{ArtifactFiles, DeviceArgs};
use crate::table::{bytes, say};

const EXAMPLES: &str = "\
Examples:
  ort-training weights export artifacts -o digits.safetensors
  ort-training weights export artifacts --checkpoint run/epoch-0010.ckpt -o digits.safetensors
  ort-training weights import artifacts pretrained.safetensors -o artifacts/checkpoint
  ort-training weights import artifacts pretrained.safetensors -o start.ckpt --partial";

/// Take parameters out of a checkpoint as safetensors, or put them into one
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the parameters of a checkpoint to a safetensors file
    #[command(after_help = EXAMPLES)]
    Export(Export),
    /// Write a checkpoint with the parameters of a safetensors file
    #[command(after_help = EXAMPLES)]
    Import(Import),
}

/// What the checkpoint belongs to.
#[derive(clap::Args)]
struct Start {
    /// The folder of artifacts: ONNX Runtime hands out parameters of a session only
    artifacts: PathBuf,

    /// What the files' names in it begin with
    #[arg(long, default_value = "")]
    prefix: String,

    /// Another checkpoint than the one in the folder
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,

    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(clap::Args)]
struct Export {
    #[command(flatten)]
    start: Start,

    /// The safetensors file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(clap::Args)]
struct Import {
    #[command(flatten)]
    start: Start,

    /// The safetensors file; its names are those of the parameters
    weights: PathBuf,

    /// The checkpoint to write; the optimizer starts anew in it
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Take what both have, and say what is missing or unexpected
    #[arg(long)]
    partial: bool,
}

pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Export(args) => export(args),
        Command::Import(args) => import(args),
    }
}

impl Start {
    fn session(&self) -> Result<TrainingSession> {
        let files = ArtifactFiles::find(&self.artifacts, &self.prefix)?;
        let checkpoint = Checkpoint::load(self.checkpoint.as_ref().unwrap_or(&files.checkpoint))?;
        if checkpoint.is_nominal() {
            bail!(
                "{}: expected a checkpoint with parameters, found a nominal one",
                self.artifacts.display()
            );
        }
        files.session(checkpoint, &self.device)
    }
}

fn export(args: &Export) -> Result<()> {
    check_writable("--output", &args.output)?;
    let session = args.start.session()?;
    let checkpoint = session.checkpoint();
    checkpoint.save_safetensors(&args.output, &BTreeMap::new())?;
    say(format!(
        "{}: {} parameters, {}",
        args.output.display(),
        checkpoint.parameters().len(),
        size(&args.output)?
    ))
}

fn import(args: &Import) -> Result<()> {
    check_writable("--output", &args.output)?;
    let mut session = args.start.session()?;
    let strictness = if args.partial {
        Strictness::Partial
    } else {
        Strictness::Strict
    };
    let report = session
        .checkpoint_mut()
        .load_safetensors(&args.weights, strictness)?;
    if report.loaded.is_empty() {
        bail!(
            "{}: expected a tensor with the name of a parameter, found none",
            args.weights.display()
        );
    }
    session.save_checkpoint(&args.output, OptimizerState::Exclude)?;
    tell(&report)?;
    say(format!(
        "{}: {}",
        args.output.display(),
        size(&args.output)?
    ))
}

fn tell(report: &WeightsReport) -> Result<()> {
    say(format!("{} parameters loaded", report.loaded.len()))?;
    for (what, names) in [
        ("not in the file, kept", &report.missing),
        ("in the file, no such parameter", &report.unexpected),
    ] {
        if !names.is_empty() {
            say(format!("{what}: {}", names.join(", ")))?;
        }
    }
    Ok(())
}

fn size(path: &Path) -> Result<String> {
    Ok(bytes(std::fs::metadata(path)?.len()))
}
