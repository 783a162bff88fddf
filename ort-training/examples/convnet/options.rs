//! The command line.

use std::path::PathBuf;

use lexopt::prelude::*;

use super::network::Network;

const HELP: &str = "\
Trains a residual network with ONNX Runtime's training API, on the CPU or on a CUDA device.

USAGE: convnet [OPTIONS]

OPTIONS:
    --network NAME   `digits` (small, on handwritten digits; the default) or `resnet18` (on images of noise, for timing)
    --steps N        training steps (default 60)
    --batch-size N   images in a step (default 32)
    --cuda N         trains on the CUDA device with this number, with inputs on the host and then on the device; an error
                     where there is none
    --compare        with --cuda: trains on the CPU too, and fails if the losses lie apart
    --memory         with --cuda: shows the device's memory in use
    --out DIR        where the training artifacts go (default target/convnet)
    --help           this text
";

/// What the run is to do.
pub struct Options {
    pub network: Network,
    pub steps: usize,
    pub batch_size: usize,
    pub cuda: Option<u32>,
    pub compare: bool,
    pub memory: bool,
    pub out: PathBuf,
}

impl Options {
    /// Reads the command line; prints the help and ends the process when that was asked for.
    pub fn parse() -> Result<Self, lexopt::Error> {
        let mut options = Self {
            network: Network::Digits,
            steps: 60,
            batch_size: 32,
            cuda: None,
            compare: false,
            memory: false,
            out: "target/convnet".into(),
        };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("network") => {
                    options.network = match arguments.value()?.to_str() {
                        Some("digits") => Network::Digits,
                        Some("resnet18") => Network::ResNet18,
                        other => {
                            return Err(format!(
                                "--network: expected `digits` or `resnet18`, found {other:?}"
                            )
                            .into());
                        }
                    }
                }
                Long("steps") => options.steps = arguments.value()?.parse()?,
                Long("batch-size") => options.batch_size = arguments.value()?.parse()?,
                Long("cuda") => options.cuda = Some(arguments.value()?.parse()?),
                Long("compare") => options.compare = true,
                Long("memory") => options.memory = true,
                Long("out") => options.out = arguments.value()?.into(),
                Long("help") | Short('h') => {
                    print!("{HELP}");
                    std::process::exit(0);
                }
                _ => return Err(argument.unexpected()),
            }
        }
        if options.steps < 2 || options.batch_size == 0 {
            return Err("expected at least 2 steps and 1 image in a batch".into());
        }
        if options.cuda.is_none() && (options.compare || options.memory) {
            return Err("--compare and --memory need --cuda".into());
        }
        Ok(options)
    }
}
