//! From artifacts in memory to a training session, without a file.

use super::output::ArtifactBytes;
use crate::{Checkpoint, Environment, Result, TrainingSession, TrainingSessionBuilder};

impl ArtifactBytes {
    /// Starts a training session from these artifacts: session options may be added before it is built.
    ///
    /// ```no_run
    /// use ort_training::Environment;
    /// use ort_training::artifacts::{ArtifactsBuilder, Loss};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let environment = Environment::builder("digits").build()?;
    /// let artifacts = ArtifactsBuilder::from_path("digits.onnx").loss(Loss::cross_entropy()).build()?;
    /// let mut session = artifacts.into_bytes()?.session(&environment)?.build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The checkpoint is not one, which happens only when the bytes were changed.
    pub fn session(self, environment: &Environment) -> Result<TrainingSessionBuilder> {
        let mut builder = TrainingSession::builder(environment)
            .checkpoint(Checkpoint::from_bytes(&self.checkpoint)?)
            .training_model_bytes(self.training_model)
            .eval_model_bytes(self.eval_model);
        if let Some(optimizer) = self.optimizer_model {
            builder = builder.optimizer_model_bytes(optimizer);
        }
        Ok(builder)
    }
}
