//! Building a training session.

use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::api::call;
use crate::artifact_check::{eval_inputs, optimizer_moments, training_roles};
use crate::checkpoint::Checkpoint;
use crate::cuda::CudaOptions;
use crate::environment::Environment;
use crate::error::{Context, Error, ErrorCode, Result};
use crate::onnx_model::{ModelSource, OnnxModel};
use crate::session_options::SessionOptions;
use crate::session_parts::{EvaluationModel, SessionHandle, StepIo};
use crate::text::c_path;
use crate::training_session::TrainingSession;

/// Collects what a [`TrainingSession`] is built from.
#[must_use]
pub struct TrainingSessionBuilder {
    environment: Environment,
    options: Option<SessionOptions>,
    cuda: Option<CudaOptions>,
    training: Option<ModelSource>,
    evaluation: Option<ModelSource>,
    optimizer: Option<ModelSource>,
    checkpoint: Option<CheckpointSource>,
}

enum CheckpointSource {
    Loaded(Box<Checkpoint>),
    File(PathBuf),
}

impl TrainingSessionBuilder {
    pub(crate) fn new(environment: &Environment) -> Self {
        Self {
            environment: *environment,
            options: None,
            cuda: None,
            training: None,
            evaluation: None,
            optimizer: None,
            checkpoint: None,
        }
    }

    /// Settings of the sessions that are made for the training, evaluation and optimizer model.
    pub fn options(mut self, options: SessionOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Trains on a CUDA device.
    ///
    /// # Errors
    /// As [`CudaStatus::ensure`](crate::CudaStatus::ensure): what is missing; settings that the provider refuses.
    pub fn cuda(mut self, options: CudaOptions) -> Result<Self> {
        // Now rather than in `build`, so that a program can fall back to the CPU; on options that are thrown away.
        SessionOptions::new()?.with_cuda(&options)?;
        self.cuda = Some(options);
        Ok(self)
    }

    /// Takes `training_model.onnx`, `checkpoint`, and, where they exist, `eval_model.onnx` and `optimizer_model.onnx` from
    /// a folder. What is set by other calls, before or after, is kept.
    ///
    /// # Errors
    /// The folder, the training model or (unless one was given) the checkpoint does not exist.
    pub fn artifacts(mut self, folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let missing = |what: &str, path: &Path| {
            Error::new(
                ErrorCode::NoSuchFile,
                format!(
                    "training artifacts: expected {what} {}, found no such file",
                    path.display()
                ),
            )
        };
        let training = folder.join("training_model.onnx");
        if self.training.is_none() {
            if !training.is_file() {
                return Err(missing("the training model", &training));
            }
            self.training = Some(ModelSource::File(training));
        }
        let checkpoint = folder.join("checkpoint");
        if self.checkpoint.is_none() {
            if !checkpoint.is_file() {
                return Err(missing("the checkpoint", &checkpoint));
            }
            self.checkpoint = Some(CheckpointSource::File(checkpoint));
        }
        let optional = |name: &str| {
            let path = folder.join(name);
            path.is_file().then_some(ModelSource::File(path))
        };
        self.evaluation = self.evaluation.or_else(|| optional("eval_model.onnx"));
        self.optimizer = self.optimizer.or_else(|| optional("optimizer_model.onnx"));
        Ok(self)
    }

    /// The training model, from a file.
    pub fn training_model(mut self, path: impl Into<PathBuf>) -> Self {
        self.training = Some(ModelSource::File(path.into()));
        self
    }

    /// The evaluation model, from a file. Without one there is no evaluation and no export.
    pub fn eval_model(mut self, path: impl Into<PathBuf>) -> Self {
        self.evaluation = Some(ModelSource::File(path.into()));
        self
    }

    /// The optimizer model, from a file. Without one there is no optimizer step, learning rate or schedule.
    pub fn optimizer_model(mut self, path: impl Into<PathBuf>) -> Self {
        self.optimizer = Some(ModelSource::File(path.into()));
        self
    }

    /// The training model, from its bytes. Models come all from files or all from bytes.
    pub fn training_model_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.training = Some(ModelSource::Bytes(bytes.into()));
        self
    }

    /// The evaluation model, from its bytes, which the session keeps.
    pub fn eval_model_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.evaluation = Some(ModelSource::Bytes(bytes.into()));
        self
    }

    /// The optimizer model, from its bytes.
    pub fn optimizer_model_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.optimizer = Some(ModelSource::Bytes(bytes.into()));
        self
    }

    /// The checkpoint to train in.
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoint = Some(CheckpointSource::Loaded(Box::new(checkpoint)));
        self
    }

    /// Builds the session (wraps `OrtTrainingApi::CreateTrainingSession`, and for models from bytes
    /// `OrtTrainingApi::CreateTrainingSessionFromBuffer`).
    ///
    /// Models and checkpoint are checked against each other first. On failure the checkpoint that was given is dropped:
    /// ONNX Runtime may have begun to change it.
    ///
    /// # Errors
    /// What is missing; a file that is no model; models and checkpoint that do not belong together; models partly from
    /// files and partly from bytes; what ONNX Runtime refuses.
    pub fn build(self) -> Result<TrainingSession> {
        crate::api::ensure_training()?;
        let absent = |what: &str, how: &str| {
            Error::invalid_argument(format!(
                "training session: expected {what}, found none; give one with `{how}` or `artifacts`"
            ))
        };
        let training = self
            .training
            .ok_or_else(|| absent("a training model", "training_model"))?;
        let mut checkpoint = match self
            .checkpoint
            .ok_or_else(|| absent("a checkpoint", "checkpoint"))?
        {
            CheckpointSource::Loaded(checkpoint) => *checkpoint,
            CheckpointSource::File(path) => Checkpoint::load(path)?,
        };
        let mut options = match &self.options {
            // A clone, because ONNX Runtime changes the options it is given.
            Some(options) => options.try_clone()?,
            None => SessionOptions::new()?,
        };
        if options.uses_environment_allocators() {
            return Err(Error::new(
                ErrorCode::NotImplemented,
                "training session: session.use_env_allocators is not supported for training",
            ));
        }
        if let Some(cuda) = &self.cuda {
            options = options.with_cuda(cuda)?;
        }
        let training_subject = training.subject("training model");
        let model = OnnxModel::read(&training, "training model")?;
        let roles = training_roles(&training_subject, &model, &checkpoint)?;
        let evaluation = match &self.evaluation {
            Some(source) => {
                let role = "evaluation model";
                let model = OnnxModel::read(source, role)?;
                let inputs = eval_inputs(&source.subject(role), &model, &roles, &checkpoint)?;
                Some((inputs, model))
            }
            None => None,
        };
        let moments = match &self.optimizer {
            Some(source) => {
                let role = "optimizer model";
                let model = OnnxModel::read(source, role)?;
                Some(optimizer_moments(
                    &source.subject(role),
                    &model,
                    &checkpoint,
                )?)
            }
            None => None,
        };
        checkpoint.begin_session(moments.is_some());
        let handle = create(
            &self.environment,
            &options,
            &checkpoint,
            training,
            self.evaluation,
            self.optimizer,
        )
        .context("building the training session")?;
        checkpoint.session_built();
        checkpoint.moments = moments.unwrap_or(checkpoint.moments);
        let training_io = StepIo::training(&handle, &model, roles.inputs, roles.outputs)?;
        let evaluation = match evaluation {
            Some((inputs, model)) => {
                let io = StepIo::evaluation(&handle, &model, inputs)?;
                Some(EvaluationModel { io, model })
            }
            None => None,
        };
        Ok(TrainingSession::new(
            handle,
            checkpoint,
            training_io,
            evaluation,
            moments.is_some(),
            roles.parameters,
        ))
    }
}

fn create(
    environment: &Environment,
    options: &SessionOptions,
    checkpoint: &Checkpoint,
    training: ModelSource,
    evaluation: Option<ModelSource>,
    optimizer: Option<ModelSource>,
) -> Result<SessionHandle> {
    let mut raw = std::ptr::null_mut();
    let mut buffers = Vec::new();
    match training {
        ModelSource::File(training) => {
            let path = |role: &str, source: Option<ModelSource>| match source {
                Some(ModelSource::Bytes(_)) => Err(mixed(role, "a file", "bytes")),
                // Absolute, because ONNX Runtime reads the evaluation model again when it exports.
                Some(ModelSource::File(path)) => absolute(&path).map(Some),
                None => Ok(None),
            };
            let training = absolute(&training)?;
            let evaluation = path("evaluation model", evaluation)?;
            let optimizer = path("optimizer model", optimizer)?;
            let pointer = |path: &Option<std::ffi::CString>| {
                path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr())
            };
            // SAFETY: environment, options and state are alive, the state outlives the session (the checkpoint goes where
            // the session goes), and the paths are copied.
            unsafe {
                call!(training.CreateTrainingSession(
                    environment.as_ptr(),
                    options.as_ptr(),
                    checkpoint.as_ptr(),
                    training.as_ptr(),
                    pointer(&evaluation),
                    pointer(&optimizer),
                    &mut raw,
                ))?;
            }
        }
        ModelSource::Bytes(training) => {
            let bytes = |role: &str, source: Option<ModelSource>| match source {
                Some(ModelSource::File(_)) => Err(mixed(role, "bytes", "a file")),
                Some(ModelSource::Bytes(bytes)) => Ok(Some(bytes)),
                None => Ok(None),
            };
            let evaluation = bytes("evaluation model", evaluation)?;
            let optimizer = bytes("optimizer model", optimizer)?;
            let part = |bytes: &Option<Vec<u8>>| match bytes {
                Some(bytes) => (bytes.as_ptr().cast(), bytes.len()),
                None => (std::ptr::null(), 0),
            };
            let (evaluation_data, evaluation_len) = part(&evaluation);
            let (optimizer_data, optimizer_len) = part(&optimizer);
            // SAFETY: as above; training and optimizer model are parsed during the call, the evaluation model's bytes are
            // kept with the session, which refers to them (module.cc, `eval_model_buffer_`).
            unsafe {
                call!(training.CreateTrainingSessionFromBuffer(
                    environment.as_ptr(),
                    options.as_ptr(),
                    checkpoint.as_ptr(),
                    training.as_ptr().cast(),
                    training.len(),
                    evaluation_data,
                    evaluation_len,
                    optimizer_data,
                    optimizer_len,
                    &mut raw,
                ))?;
            }
            buffers.extend(evaluation);
        }
    }
    let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("CreateTrainingSession"))?;
    Ok(SessionHandle::new(raw, buffers, options))
}

fn absolute(path: &Path) -> Result<std::ffi::CString> {
    let path = std::path::absolute(path).map_err(|error| Error::io(path.display(), &error))?;
    c_path(&path)
}

fn mixed(role: &str, expected: &str, found: &str) -> Error {
    Error::invalid_argument(format!(
        "{role}: expected {expected}, as for the training model, found {found}; \
         the models come all from files or all from bytes"
    ))
}

impl std::fmt::Debug for TrainingSessionBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrainingSessionBuilder")
            .finish_non_exhaustive()
    }
}
