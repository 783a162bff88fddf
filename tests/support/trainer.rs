//! The Rust half's counterpart of tests/c/ort.c: opens a case's session and takes steps, writing the same records.

use std::path::Path;

use ort_training::{
    AsValue, Checkpoint, Environment, InferenceSession, Outputs, Result, SessionOptions, TensorRef,
    TrainingSession,
};

use crate::case::{Case, Column};
use crate::log::Log;

/// One thread, as on the C side.
pub fn session_options() -> Result<SessionOptions> {
    crate::cuda::append(SessionOptions::new()?.with_intra_op_threads(1)?)
}

/// The inputs of a batch, borrowed from the case.
pub enum Input<'case> {
    Floats(TensorRef<'case, f32>),
    Labels(TensorRef<'case, i64>),
}

impl Input<'_> {
    pub fn as_value(&self) -> &dyn AsValue {
        match self {
            Self::Floats(tensor) => tensor,
            Self::Labels(tensor) => tensor,
        }
    }
}

impl Case {
    /// `count` rows from `first`.
    pub fn batch(&self, first: usize, count: usize) -> Result<Vec<Input<'_>>> {
        self.columns
            .iter()
            .map(|column| {
                Ok(match column {
                    Column::Floats { width, data } => Input::Floats(TensorRef::new(
                        [count, *width],
                        &data[first * width..(first + count) * width],
                    )?),
                    Column::Labels(data) => {
                        Input::Labels(TensorRef::new([count], &data[first..first + count])?)
                    }
                })
            })
            .collect()
    }

    pub fn artifact(&self, file: &str) -> std::path::PathBuf {
        self.artifacts.join(file)
    }

    pub fn scratch_file(&self, file: &str) -> std::path::PathBuf {
        self.scratch.path().join(file)
    }
}

/// A session on a case's artifacts.
pub struct Trainer<'case> {
    pub case: &'case Case,
    pub session: TrainingSession,
}

impl<'case> Trainer<'case> {
    /// Opens the artifacts with their own checkpoint.
    pub fn open(case: &'case Case) -> Result<Self> {
        Self::with_checkpoint(case, Checkpoint::load(case.artifact("checkpoint"))?)
    }

    /// Opens the models on a checkpoint; a model that the artifacts lack is left out.
    pub fn with_checkpoint(case: &'case Case, checkpoint: Checkpoint) -> Result<Self> {
        let env = Environment::shared()?;
        let mut builder = TrainingSession::builder(&env)
            .options(session_options()?)
            .checkpoint(checkpoint)
            .training_model(case.artifact("training_model.onnx"));
        if case.artifact("eval_model.onnx").exists() {
            builder = builder.eval_model(case.artifact("eval_model.onnx"));
        }
        if case.artifact("optimizer_model.onnx").exists() {
            builder = builder.optimizer_model(case.artifact("optimizer_model.onnx"));
        }
        Ok(Self {
            case,
            session: builder.build()?,
        })
    }

    pub fn train_step(&mut self, step: usize, log: &mut Log, name: &str) -> Result<()> {
        let (first, count) = self.case.batch_rows(step);
        let inputs = self.case.batch(first, count)?;
        let inputs: Vec<&dyn AsValue> = inputs.iter().map(Input::as_value).collect();
        let outputs = self.session.train_step(&inputs)?;
        log_outputs(log, name, &outputs)
    }

    pub fn eval_step(&mut self, step: usize, log: &mut Log, name: &str) -> Result<()> {
        let (first, count) = self.case.batch_rows(step);
        let inputs = self.case.batch(first, count)?;
        let inputs: Vec<&dyn AsValue> = inputs.iter().map(Input::as_value).collect();
        let outputs = self.session.eval_step(&inputs)?;
        log_outputs(log, name, &outputs)
    }

    /// Train, optimizer, reset.
    pub fn full_step(&mut self, step: usize, log: &mut Log, name: &str) -> Result<()> {
        self.train_step(step, log, name)?;
        self.session.optimizer_step()?;
        self.session.lazy_reset_grad()
    }

    /// Every parameter by name, from the checkpoint.
    pub fn log_parameters(&self, log: &mut Log, name: &str) -> Result<()> {
        for parameter in &self.case.parameters {
            let value = self.session.checkpoint().parameter(parameter)?;
            log.floats(&format!("{name} {parameter}"), value.data());
        }
        Ok(())
    }
}

fn log_outputs(log: &mut Log, name: &str, outputs: &Outputs) -> Result<()> {
    for at in 0..outputs.len() {
        log.floats(&format!("{name} {at}"), outputs[at].data::<f32>()?);
    }
    Ok(())
}

/// Runs an exported model on the first batch of the columns that it wants.
pub fn log_inference(case: &Case, path: &Path, log: &mut Log) -> Result<()> {
    let env = Environment::shared()?;
    let session = InferenceSession::builder(&env)
        .options(session_options()?)
        .model(path)
        .build()?;
    for input in session.inputs() {
        log.text("inference input", input.name());
    }
    let inputs = case.batch(0, case.batch_size)?;
    let inputs: Vec<&dyn AsValue> = inputs
        .iter()
        .take(session.inputs().len())
        .map(Input::as_value)
        .collect();
    let outputs = session.run(&inputs)?;
    log.floats(
        "inference",
        outputs.get(case.inference_output)?.data::<f32>()?,
    );
    Ok(())
}
