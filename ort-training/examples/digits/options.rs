//! The command line.

use std::path::PathBuf;

use lexopt::prelude::*;

use super::model::Plan;

const HELP: &str = "\
Trains a classifier of handwritten digits with ONNX Runtime's training API.

USAGE: digits [OPTIONS]

OPTIONS:
    --epochs N         passes over the training images (default 20)
    --batch-size N     images in a step; the last batch of an epoch holds the rest (default 32)
    --learning-rate R  the highest one: it rises over the first epoch and falls to nothing at the end (default 0.03)
    --seed N           decides the split, the starting weights and the order of images (default 1)
    --model FILE       the ONNX model to train, images to logits (default: the one beside this example)
    --artifacts DIR    training artifacts made before (training_model.onnx, eval_model.onnx, optimizer_model.onnx and
                       checkpoint); without, they are made from the model, into `artifacts` in the --out folder
    --cuda N           trains on the CUDA device with this number; an error where there is none
    --memory           shows the device's memory in use, with --cuda
    --out DIR          where artifacts, checkpoints, the exported model and the loss curve go (default target/digits)
    --help             this text
";

/// What the run is to do.
#[derive(Clone, Debug)]
pub struct Options {
    pub plan: Plan,
    pub model: PathBuf,
    pub artifacts: Option<PathBuf>,
    pub out: PathBuf,
    pub cuda: Option<u32>,
    pub memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            plan: Plan::default(),
            model: concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/digits/forward.onnx").into(),
            artifacts: None,
            out: "target/digits".into(),
            cuda: None,
            memory: false,
        }
    }
}

impl Options {
    /// Reads the command line; prints the help and ends the process when that was asked for.
    pub fn parse() -> Result<Self, lexopt::Error> {
        let mut options = Self::default();
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("epochs") => options.plan.epochs = arguments.value()?.parse()?,
                Long("batch-size") => options.plan.batch_size = arguments.value()?.parse()?,
                Long("learning-rate") => options.plan.learning_rate = arguments.value()?.parse()?,
                Long("seed") => options.plan.seed = arguments.value()?.parse()?,
                Long("model") => options.model = arguments.value()?.into(),
                Long("artifacts") => options.artifacts = Some(arguments.value()?.into()),
                Long("cuda") => options.cuda = Some(arguments.value()?.parse()?),
                Long("memory") => options.memory = true,
                Long("out") => options.out = arguments.value()?.into(),
                Long("help") | Short('h') => {
                    print!("{HELP}");
                    std::process::exit(0);
                }
                _ => return Err(argument.unexpected()),
            }
        }
        if options.plan.epochs < 2 {
            return Err(
                "--epochs: at least 2 are needed, as the run stops and resumes half way".into(),
            );
        }
        if options.plan.batch_size == 0 {
            return Err("--batch-size: at least 1 is needed, found 0".into());
        }
        if options.memory && options.cuda.is_none() {
            return Err("--memory: shows a device's memory and needs --cuda".into());
        }
        Ok(options)
    }
}
