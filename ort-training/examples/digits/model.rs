//! Training and evaluating, as the example does it and as a test does it again against C.

use std::path::Path;

use ort_training::{
    Checkpoint, CudaOptions, Environment, OptimizerState, Result, SessionOptions, Tensor,
    TensorRef, TrainingSession,
};

use super::data::{Digits, PIXELS};
use super::random::Random;

/// Classes that the model tells apart.
const DIGITS: usize = 10;
/// Images in an evaluation step; any number would do.
const EVAL_BATCH: usize = 256;

/// How a run goes; together with the data it decides every number of it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub epochs: usize,
    pub batch_size: usize,
    pub learning_rate: f32,
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            epochs: 20,
            batch_size: 32,
            learning_rate: 0.03,
            seed: 1,
        }
    }
}

/// A model in training.
pub struct Model {
    pub session: TrainingSession,
}

/// The mean loss and the part of the images that were recognised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    pub loss: f32,
    pub accuracy: f32,
}

impl Model {
    /// Opens the artifacts' models on a checkpoint. One thread: the matrices are too small to share out.
    pub fn open(env: &Environment, artifacts: &Path, checkpoint: Checkpoint) -> Result<Self> {
        Self::open_on(env, artifacts, checkpoint, None)
    }

    /// As [`open`](Self::open), on a CUDA device if one is given.
    pub fn open_on(
        env: &Environment,
        artifacts: &Path,
        checkpoint: Checkpoint,
        cuda: Option<u32>,
    ) -> Result<Self> {
        let mut builder =
            TrainingSession::builder(env).options(SessionOptions::new()?.with_intra_op_threads(1)?);
        if let Some(device) = cuda {
            // All bits of float32, so that the losses are those of the CPU but for the order of sums.
            builder = builder.cuda(CudaOptions::device(device).use_tf32(false))?;
        }
        let session = builder
            .checkpoint(checkpoint)
            .training_model(artifacts.join("training_model.onnx"))
            .eval_model(artifacts.join("eval_model.onnx"))
            .optimizer_model(artifacts.join("optimizer_model.onnx"))
            .build()?;
        Ok(Self { session })
    }

    /// Starts anew: weights uniform within ±1/√(inputs of the layer), drawn from the seed.
    pub fn start(env: &Environment, artifacts: &Path, seed: u64) -> Result<Self> {
        Self::start_on(env, artifacts, seed, None)
    }

    /// As [`start`](Self::start), on a CUDA device if one is given.
    pub fn start_on(
        env: &Environment,
        artifacts: &Path,
        seed: u64,
        cuda: Option<u32>,
    ) -> Result<Self> {
        let checkpoint = Checkpoint::load(artifacts.join("checkpoint"))?;
        let mut model = Self::open_on(env, artifacts, checkpoint, cuda)?;
        let mut random = Random::new(seed, u64::MAX);
        let mut parameters = model.session.checkpoint().parameters().to_vec();
        // A layer's bias is bounded as its weights are; sorted by name in reverse, the weight comes first.
        parameters.sort_by(|a, b| b.name().cmp(a.name()));
        let mut inputs = 1;
        for parameter in parameters {
            if let [_, columns] = *parameter.shape() {
                inputs = columns;
            }
            let bound = 1.0 / (inputs as f32).sqrt();
            let weights = (0..parameter.element_count())
                .map(|_| random.uniform(bound))
                .collect();
            let weights = Tensor::from_vec(parameter.shape(), weights)?;
            model
                .session
                .checkpoint_mut()
                .update_parameter(parameter.name(), &weights)?;
        }
        Ok(model)
    }

    /// Trains the epochs from `first` to the one before `end` and calls `seen` with each step's batch and loss.
    /// A run that begins at a later epoch goes on exactly as one that never stopped.
    pub fn train(
        &mut self,
        plan: &Plan,
        training: &Digits,
        (first, end): (usize, usize),
        mut seen: impl FnMut(usize, &Digits, f32),
        mut epoch_done: impl FnMut(&Self, usize) -> Result<()>,
    ) -> Result<()> {
        let steps_per_epoch = training.count().div_ceil(plan.batch_size) as u64;
        // The schedule counts the optimizer's steps, which the checkpoint keeps, so a resumed run is at the right place.
        let steps = steps_per_epoch * plan.epochs as u64;
        self.session
            .register_linear_lr_scheduler(steps_per_epoch, steps, plan.learning_rate)?;
        for epoch in first..end {
            for batch in training.batches(plan.seed, epoch, plan.batch_size) {
                let images = TensorRef::new([batch.count(), PIXELS], &batch.images)?;
                let labels = TensorRef::new([batch.count()], &batch.labels)?;
                let loss: f32 = self.session.train_step(&[&images, &labels])?.loss()?;
                self.session.scheduler_step()?;
                self.session.optimizer_step()?;
                self.session.lazy_reset_grad()?;
                seen(epoch, &batch, loss);
            }
            epoch_done(self, epoch)?;
        }
        Ok(())
    }

    /// Loss, accuracy and the logits (ten for each image).
    pub fn evaluate(&self, digits: &Digits) -> Result<(Evaluation, Vec<f32>)> {
        let mut loss = 0.0f64;
        let mut logits = Vec::with_capacity(digits.count() * DIGITS);
        for first in (0..digits.count()).step_by(EVAL_BATCH) {
            let end = digits.count().min(first + EVAL_BATCH);
            let images = TensorRef::new(
                [end - first, PIXELS],
                &digits.images[first * PIXELS..end * PIXELS],
            )?;
            let labels = TensorRef::new([end - first], &digits.labels[first..end])?;
            let outputs = self.session.eval_step(&[&images, &labels])?;
            loss += f64::from(outputs.loss()?) * (end - first) as f64;
            logits.extend_from_slice(outputs.get("logits")?.data::<f32>()?);
        }
        let evaluation = Evaluation {
            loss: (loss / digits.count() as f64) as f32,
            accuracy: accuracy(&logits, &digits.labels),
        };
        Ok((evaluation, logits))
    }

    /// Saves everything that training needs to go on.
    pub fn save(&mut self, path: &Path, epochs_done: usize) -> Result<()> {
        self.session
            .checkpoint_mut()
            .set_property("epochs", epochs_done as i64)?;
        self.session.save_checkpoint(path, OptimizerState::Include)
    }
}

/// The part of the images for which the digit's own logit is the highest.
pub fn accuracy(logits: &[f32], labels: &[i64]) -> f32 {
    let right = logits
        .chunks_exact(DIGITS)
        .zip(labels)
        .filter(|(logits, label)| {
            let best = (0..DIGITS).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
            best == Some(**label as usize)
        });
    right.count() as f32 / labels.len() as f32
}
