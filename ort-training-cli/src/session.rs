//! Sessions as the command line asks for them: threads, device, artifacts with a prefix.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use ort_training::{
    Checkpoint, CudaOptions, Environment, InferenceSession, IoInfo, SessionOptions, TrainingSession,
};

use crate::table::shape;

/// Where models run.
#[derive(Clone, Debug, clap::Args)]
pub struct DeviceArgs {
    /// Threads for the operators (default: as many as the processor has cores)
    #[arg(long, value_name = "COUNT")]
    pub threads: Option<u16>,

    /// Run on this CUDA device
    #[arg(long, value_name = "DEVICE", num_args = 0..=1, default_missing_value = "0")]
    pub cuda: Option<u16>,
}

impl DeviceArgs {
    /// Settings of a session that runs there.
    pub fn options(&self) -> Result<SessionOptions> {
        let mut options = SessionOptions::new()?;
        if let Some(threads) = self.threads {
            options = options.with_intra_op_threads(threads.into())?;
        }
        if let Some(device) = self.cuda {
            options = options.with_cuda(&CudaOptions::device(device.into()))?;
        }
        Ok(options)
    }
}

/// A session that runs a model.
pub fn inference(model: &Path, device: &DeviceArgs) -> Result<InferenceSession> {
    let env = Environment::shared()?;
    Ok(InferenceSession::builder(&env)
        .options(device.options()?)
        .model(model)
        .build()?)
}

/// The files of a folder of artifacts.
#[derive(Clone, Debug)]
pub struct ArtifactFiles {
    pub training_model: PathBuf,
    pub eval_model: Option<PathBuf>,
    pub optimizer_model: Option<PathBuf>,
    pub checkpoint: PathBuf,
}

impl ArtifactFiles {
    /// Finds them by their names, which begin with `prefix`.
    pub fn find(folder: &Path, prefix: &str) -> Result<Self> {
        if !folder.is_dir() {
            bail!(
                "{}: expected a folder of artifacts, found {}",
                folder.display(),
                if folder.exists() { "a file" } else { "nothing" }
            );
        }
        let file = |name: &str| folder.join(format!("{prefix}{name}"));
        let optional = |name| Some(file(name)).filter(|path| path.is_file());
        for name in ["training_model.onnx", "checkpoint"] {
            if !file(name).is_file() {
                bail!(
                    "{}: expected the artifacts {prefix}training_model.onnx, {prefix}checkpoint and, if wanted, \
                     {prefix}eval_model.onnx and {prefix}optimizer_model.onnx; found no {prefix}{name}{}",
                    folder.display(),
                    other_prefix(folder, prefix)
                );
            }
        }
        Ok(Self {
            training_model: file("training_model.onnx"),
            eval_model: optional("eval_model.onnx"),
            optimizer_model: optional("optimizer_model.onnx"),
            checkpoint: file("checkpoint"),
        })
    }

    /// Starts a session on `checkpoint`.
    pub fn session(&self, checkpoint: Checkpoint, device: &DeviceArgs) -> Result<TrainingSession> {
        let env = Environment::shared()?;
        let mut builder = TrainingSession::builder(&env)
            .options(device.options()?)
            .checkpoint(checkpoint)
            .training_model(&self.training_model);
        if let Some(path) = &self.eval_model {
            builder = builder.eval_model(path);
        }
        if let Some(path) = &self.optimizer_model {
            builder = builder.optimizer_model(path);
        }
        Ok(builder.build()?)
    }
}

/// A hint when the folder has artifacts under another prefix.
fn other_prefix(folder: &Path, prefix: &str) -> String {
    let found = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let found = name.strip_suffix("training_model.onnx")?.to_owned();
            (found != prefix).then_some(found)
        });
    found.map_or_else(String::new, |found| {
        format!("; there are artifacts with --prefix '{found}'")
    })
}

/// Names, in their order.
pub fn names(infos: &[IoInfo]) -> Vec<&str> {
    infos.iter().map(IoInfo::name).collect()
}

/// Type and shape of an input or output, such as `float32 [batch, 64]`.
pub fn declared(info: &IoInfo) -> String {
    let element_type = info
        .element_type()
        .map_or_else(|| "no tensor".to_owned(), |found| found.to_string());
    match info.dimensions() {
        Some(dimensions) => format!("{element_type} {}", shape(dimensions)),
        None => format!("{element_type} of any shape"),
    }
}
