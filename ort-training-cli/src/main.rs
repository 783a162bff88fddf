//! `ort-training`: make training artifacts, look into them, train, and verify what came out.

#![deny(unsafe_code)]

mod artifacts;
mod curve;
mod data;
mod files;
mod inspect;
mod model;
mod random;
mod session;
mod suggest;
mod table;
mod train;
mod verify;
mod weights;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  ort-training artifacts model.onnx -o artifacts --loss cross-entropy
  ort-training inspect artifacts
  ort-training train artifacts --data train.csv --label digit --epochs 20 --export trained.onnx
  ort-training verify trained.onnx other.onnx --rtol 1e-5

Each command shows its own examples: ort-training <command> --help

Exit status: 0 all is well; 1 verify found a difference; 2 an error, with its reason on standard error.";

/// Train ONNX models with ONNX Runtime
#[derive(Parser)]
#[command(name = "ort-training", version, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Artifacts(artifacts::Args),
    Inspect(inspect::Args),
    Train(train::Args),
    Verify(verify::Args),
    Weights(weights::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Artifacts(args) => artifacts::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Inspect(args) => inspect::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Train(args) => train::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Verify(args) => verify::run(&args),
        Command::Weights(args) => weights::run(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
