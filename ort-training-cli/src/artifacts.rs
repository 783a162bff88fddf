//! `ort-training artifacts`: from a forward model to what training starts from.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use ort_training::artifacts::{
    AdamW, AdamWVariant, ArtifactPaths, ArtifactsBuilder, BatchNorm, BceWithLogits, CrossEntropy,
    Loss, Optimizer, Reduction, Report, differentiable_operators,
};

use crate::inspect::checkpoint_table;
use crate::table::{align_right, bytes, say, table};

const EXAMPLES: &str = "\
Examples:
  A classifier, trained with AdamW:
    ort-training artifacts digits.onnx -o artifacts --extra-output logits
  A regression, trained with SGD and clipped gradients:
    ort-training artifacts model.onnx -o artifacts --loss mse --optimizer sgd --clip-grad-norm 1
  Only the last layer:
    ort-training artifacts resnet.onnx -o artifacts --train 'fc.*' --freeze '*' --batch-norm frozen
  A loss of your own, given as an ONNX model:
    ort-training artifacts model.onnx -o artifacts --loss custom --loss-model dice.onnx
  Operators that can be trained through:
    ort-training artifacts --list-operators";

/// Make training artifacts from a forward ONNX model
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The forward model (.onnx)
    #[arg(required_unless_present = "list_operators")]
    model: Option<PathBuf>,

    /// The folder for the artifacts: complete afterwards, or as it was before
    #[arg(
        short,
        long,
        value_name = "FOLDER",
        required_unless_present = "list_operators"
    )]
    output: Option<PathBuf>,

    /// The folder of the model's external data, when it is not the model's own
    #[arg(long, value_name = "FOLDER")]
    external_data: Option<PathBuf>,

    /// Parameters to train: names or patterns with * and ? (default: every floating-point one that the loss reaches)
    #[arg(long = "train", value_name = "NAME", value_delimiter = ',')]
    trained: Vec<String>,

    /// Parameters to keep as they are: names or patterns with * and ?
    #[arg(long = "freeze", value_name = "NAME", value_delimiter = ',')]
    frozen: Vec<String>,

    #[command(flatten)]
    loss: LossArgs,

    #[command(flatten)]
    optimizer: OptimizerArgs,

    /// Values of the model that steps return after the loss, and that can be exported
    #[arg(long = "extra-output", value_name = "NAME", value_delimiter = ',')]
    extra_outputs: Vec<String>,

    /// What the files' names begin with
    #[arg(long, default_value = "")]
    prefix: String,

    /// Batch normalization in training: by the batch, or by the running statistics
    #[arg(long, value_enum, default_value = "train")]
    batch_norm: BatchNormChoice,

    /// Refuse operators that cannot be differentiated as they are, instead of rewriting them into equal ones that can
    #[arg(long)]
    no_rewrites: bool,

    /// Also make a checkpoint with names and types only
    #[arg(long)]
    nominal_checkpoint: bool,

    /// List the operators that have gradients, and do nothing else
    #[arg(long, exclusive = true)]
    list_operators: bool,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Loss")]
struct LossArgs {
    /// What training makes small
    #[arg(long, value_enum, default_value = "cross-entropy")]
    loss: LossChoice,

    /// The loss as an ONNX model, for --loss custom
    #[arg(long, value_name = "FILE")]
    loss_model: Option<PathBuf>,

    /// The model's outputs that the loss is computed from (default: its first; several for output-gradient)
    #[arg(long = "loss-input", value_name = "NAME", value_delimiter = ',')]
    loss_inputs: Vec<String>,

    /// The name of the new input for labels or targets
    #[arg(long, value_name = "NAME")]
    target_name: Option<String>,

    /// How the elements' losses become one number (default: mean)
    #[arg(long, value_enum)]
    reduction: Option<ReductionChoice>,

    /// cross-entropy: the label that does not count
    #[arg(long, value_name = "LABEL", allow_negative_numbers = true)]
    ignore_index: Option<i64>,

    /// cross-entropy: a weight for each class
    #[arg(
        long,
        value_name = "WEIGHT",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    class_weights: Option<Vec<f32>>,

    /// cross-entropy: how much of the target is spread over all classes, in [0, 1)
    #[arg(long, value_name = "PART", allow_negative_numbers = true)]
    label_smoothing: Option<f32>,

    /// cross-entropy: the axis that counts the classes (default: 1)
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true)]
    class_axis: Option<i64>,

    /// bce: the weight of positive examples, one or one for each element of the last axis
    #[arg(
        long,
        value_name = "WEIGHT",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    pos_weight: Option<Vec<f32>>,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Optimizer")]
struct OptimizerArgs {
    /// What changes the parameters
    #[arg(long, value_enum, default_value = "adamw")]
    optimizer: OptimizerChoice,

    /// adamw: decay of the first moment (default: 0.9)
    #[arg(long, value_name = "BETA", allow_negative_numbers = true)]
    beta1: Option<f32>,

    /// adamw: decay of the second moment (default: 0.999)
    #[arg(long, value_name = "BETA", allow_negative_numbers = true)]
    beta2: Option<f32>,

    /// adamw: added to the root of the second moment (default: 1e-6)
    #[arg(long, value_name = "EPSILON", allow_negative_numbers = true)]
    eps: Option<f32>,

    /// adamw: decoupled weight decay (default: 0)
    #[arg(long, value_name = "DECAY", allow_negative_numbers = true)]
    weight_decay: Option<f32>,

    /// adamw: which of the two published orders of operations (default: hugging-face)
    #[arg(long, value_enum)]
    adamw_variant: Option<VariantChoice>,

    /// adamw: no bias correction of the moments
    #[arg(long)]
    no_bias_correction: bool,

    /// Scale gradients down together when their global norm exceeds this
    #[arg(long, value_name = "NORM", allow_negative_numbers = true)]
    clip_grad_norm: Option<f32>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum LossChoice {
    /// Of class scores with integer labels
    CrossEntropy,
    /// Binary cross-entropy of scores before the sigmoid
    Bce,
    /// Mean squared error
    Mse,
    /// Mean absolute error
    L1,
    /// An ONNX model: --loss-model
    Custom,
    /// The caller gives the gradient of the output at each step
    OutputGradient,
    /// The model's output is the loss
    InModel,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum ReductionChoice {
    Mean,
    Sum,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum OptimizerChoice {
    Adamw,
    Sgd,
    /// Gradients only
    None,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum VariantChoice {
    /// PyTorch's
    Torch,
    /// Hugging Face Transformers'
    HuggingFace,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum BatchNormChoice {
    /// By the statistics of the batch
    Train,
    /// By the running statistics
    Frozen,
}

pub fn run(args: &Args) -> Result<()> {
    if args.list_operators {
        for (domain, name) in differentiable_operators()? {
            say(if domain.is_empty() {
                name
            } else {
                format!("{domain}.{name}")
            })?;
        }
        return Ok(());
    }
    let (Some(model), Some(output)) = (&args.model, &args.output) else {
        bail!("expected a model and an output folder");
    };
    let mut builder = ArtifactsBuilder::from_path(model)
        .frozen(&args.frozen)
        .loss(args.loss.loss()?)
        .loss_inputs(&args.loss.loss_inputs)
        .extra_outputs(&args.extra_outputs)
        .prefix(&args.prefix)
        .batch_norm(match args.batch_norm {
            BatchNormChoice::Train => BatchNorm::Train,
            BatchNormChoice::Frozen => BatchNorm::Frozen,
        })
        .rewrites(!args.no_rewrites)
        .nominal_checkpoint(args.nominal_checkpoint);
    if let Some(folder) = &args.external_data {
        builder = builder.external_data_dir(folder);
    }
    if !args.trained.is_empty() {
        builder = builder.requires_grad(&args.trained);
    }
    if let Some(name) = &args.loss.target_name {
        builder = builder.target_name(name);
    }
    builder = match args.optimizer.optimizer()? {
        Some(optimizer) => builder.optimizer(optimizer),
        None => builder.without_optimizer(),
    };
    if let Some(norm) = args.optimizer.clip_grad_norm {
        builder = builder.clip_grad_norm(norm);
    }
    let artifacts = builder
        .build()
        .with_context(|| model.display().to_string())?;
    let paths = artifacts.write_to(output)?;
    print_report(artifacts.report(), &paths)
}

impl LossArgs {
    fn loss(&self) -> Result<Loss> {
        self.check()?;
        let reduction = match self.reduction {
            None | Some(ReductionChoice::Mean) => Reduction::Mean,
            Some(ReductionChoice::Sum) => Reduction::Sum,
        };
        Ok(match self.loss {
            LossChoice::CrossEntropy => {
                let default = CrossEntropy::default();
                Loss::CrossEntropy(CrossEntropy {
                    ignore_index: self.ignore_index,
                    class_weights: self.class_weights.clone(),
                    label_smoothing: self.label_smoothing.unwrap_or(default.label_smoothing),
                    class_axis: self.class_axis.unwrap_or(default.class_axis),
                    reduction,
                })
            }
            LossChoice::Bce => Loss::BceWithLogits(BceWithLogits {
                pos_weight: self.pos_weight.clone(),
                reduction,
            }),
            LossChoice::Mse => Loss::Mse(reduction),
            LossChoice::L1 => Loss::L1(reduction),
            LossChoice::Custom => {
                let path = self
                    .loss_model
                    .as_deref()
                    .context("--loss custom: expected the loss as an ONNX model, --loss-model FILE; found none")?;
                let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
                Loss::custom(bytes).with_context(|| path.display().to_string())?
            }
            LossChoice::OutputGradient => Loss::OutputGradient,
            LossChoice::InModel => Loss::InModel,
        })
    }

    /// A setting that the chosen loss does not have would be lost without a word.
    fn check(&self) -> Result<()> {
        use LossChoice::{Bce, CrossEntropy, Custom, L1, Mse};
        for (given, option, losses) in [
            (self.loss_model.is_some(), "--loss-model", &[Custom][..]),
            (
                self.reduction.is_some(),
                "--reduction",
                &[CrossEntropy, Bce, Mse, L1],
            ),
            (
                self.ignore_index.is_some(),
                "--ignore-index",
                &[CrossEntropy],
            ),
            (
                self.class_weights.is_some(),
                "--class-weights",
                &[CrossEntropy],
            ),
            (
                self.label_smoothing.is_some(),
                "--label-smoothing",
                &[CrossEntropy],
            ),
            (self.class_axis.is_some(), "--class-axis", &[CrossEntropy]),
            (self.pos_weight.is_some(), "--pos-weight", &[Bce]),
        ] {
            if given && !losses.contains(&self.loss) {
                bail!(
                    "{option} is a setting of --loss {}; the loss is {}",
                    losses
                        .iter()
                        .map(|loss| value_name(*loss))
                        .collect::<Vec<_>>()
                        .join(" or "),
                    value_name(self.loss)
                );
            }
        }
        Ok(())
    }
}

impl OptimizerArgs {
    fn optimizer(&self) -> Result<Option<Optimizer>> {
        let adamw = self.optimizer == OptimizerChoice::Adamw;
        for (given, option) in [
            (self.beta1.is_some(), "--beta1"),
            (self.beta2.is_some(), "--beta2"),
            (self.eps.is_some(), "--eps"),
            (self.weight_decay.is_some(), "--weight-decay"),
            (self.adamw_variant.is_some(), "--adamw-variant"),
            (self.no_bias_correction, "--no-bias-correction"),
        ] {
            if given && !adamw {
                bail!(
                    "{option} is a setting of --optimizer adamw; the optimizer is {}",
                    value_name(self.optimizer)
                );
            }
        }
        if self.clip_grad_norm.is_some() && self.optimizer == OptimizerChoice::None {
            bail!("--clip-grad-norm is done by the optimizer; --optimizer none makes none");
        }
        let default = AdamW::default();
        Ok(match self.optimizer {
            OptimizerChoice::None => None,
            OptimizerChoice::Sgd => Some(Optimizer::Sgd),
            OptimizerChoice::Adamw => Some(Optimizer::AdamW(AdamW {
                betas: (
                    self.beta1.unwrap_or(default.betas.0),
                    self.beta2.unwrap_or(default.betas.1),
                ),
                eps: self.eps.unwrap_or(default.eps),
                weight_decay: self.weight_decay.unwrap_or(default.weight_decay),
                bias_correction: !self.no_bias_correction,
                variant: match self.adamw_variant {
                    None => default.variant,
                    Some(VariantChoice::Torch) => AdamWVariant::Torch,
                    Some(VariantChoice::HuggingFace) => AdamWVariant::HuggingFace,
                },
            })),
        })
    }
}

/// How a choice is written on the command line.
fn value_name(choice: impl ValueEnum) -> String {
    choice
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

fn print_report(report: &Report, paths: &ArtifactPaths) -> Result<()> {
    say("Parameters")?;
    say(checkpoint_table(&ort_training::CheckpointSummary::read(
        &paths.checkpoint,
    )?)?)?;
    if !report.constants.is_empty() {
        say("\nConstants of the models")?;
        let mut constants = table(["name", "why it is not trained"]);
        for (name, why) in &report.constants {
            constants.add_row([name, why]);
        }
        say(constants)?;
    }
    if !report.rewrites.is_empty() {
        say("\nRewritten in the training model, to be differentiated")?;
        let mut rewrites = table(["operator", "node", "became"]);
        for rewrite in &report.rewrites {
            rewrites.add_row([&rewrite.op_type, &rewrite.node, &rewrite.form]);
        }
        say(rewrites)?;
    }
    say("\nSteps")?;
    let mut steps = table(["", "names"]);
    steps.add_row(["inputs", &report.inputs.join(", ")]);
    steps.add_row(["outputs of training", &report.outputs.join(", ")]);
    steps.add_row(["outputs of evaluation", &report.eval_outputs.join(", ")]);
    say(steps)?;
    say("\nFiles")?;
    let mut files = table(["file", "size"]);
    for path in [
        Some(&paths.training_model),
        Some(&paths.eval_model),
        paths.optimizer_model.as_ref(),
        Some(&paths.checkpoint),
        paths.nominal_checkpoint.as_ref(),
    ]
    .into_iter()
    .flatten()
    {
        for file in [path.clone(), with_data(path)] {
            if let Ok(metadata) = std::fs::metadata(&file) {
                files.add_row([file.display().to_string(), bytes(metadata.len())]);
            }
        }
    }
    align_right(&mut files, &[1]);
    say(files)
}

/// Where a checkpoint keeps parameters that are too many for one file.
fn with_data(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".data");
    name.into()
}
