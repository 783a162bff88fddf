//! Training sessions: steps, optimizer, schedule.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ort_training_sys as sys;

use crate::api::call;
use crate::artifact_check::ParameterSlot;
use crate::checkpoint::{Checkpoint, CheckpointMut, OptimizerState};
use crate::class_labels::check_labels;
use crate::environment::Environment;
use crate::error::{Context, Error, Result};
use crate::model_io::{Empty, IoInfo, check_inputs, check_places, order_inputs};
use crate::outputs::{OutputSlots, Outputs};
use crate::run_options::RunOptions;
use crate::session_parts::{EvaluationModel, Fed, SessionHandle, StepIo};
use crate::training_builder::TrainingSessionBuilder;
use crate::value::AsValue;

/// A training session (wraps `OrtTrainingSession`): the models, and the [`Checkpoint`] they train in.
///
/// ```no_run
/// use ort_training::{Environment, OptimizerState, Tensor, TrainingSession};
///
/// let env = Environment::builder("digits").build()?;
/// let mut session = TrainingSession::builder(&env).artifacts("artifacts/")?.build()?;
/// session.set_learning_rate(1e-3)?;
/// let images = Tensor::filled([8, 64], 0f32)?;
/// let labels = Tensor::filled([8], 0i64)?;
/// let loss = session.train_step(&[&images, &labels])?.loss()?;
/// session.optimizer_step()?;
/// session.lazy_reset_grad()?;
/// session.save_checkpoint("digits.ckpt", OptimizerState::Include)?;
/// session.export_for_inference("digits.onnx", &["logits"])?;
/// # Ok::<(), ort_training::Error>(())
/// ```
///
/// It may move between threads (no call of module.cc, optimizer.cc or inference_session.cc is tied to one), but is not
/// shared between them: a step changes parameters, gradients and the optimizer's state without a lock.
pub struct TrainingSession {
    /// Released before the checkpoint, which must outlive it.
    pub(crate) handle: SessionHandle,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) id: u64,
    pub(crate) training: StepIo,
    pub(crate) evaluation: Option<EvaluationModel>,
    pub(crate) has_optimizer: bool,
    pub(crate) parameter_slots: Vec<ParameterSlot>,
    /// The inputs of the last training step, which need no second check when they are fed again.
    fed: Fed,
}

// SAFETY: see the documentation of the type; the pointers are used within one call.
unsafe impl Send for TrainingSession {}

impl TrainingSession {
    /// The session itself, for calls of the C API that this crate does not wrap.
    ///
    /// It is valid as long as `self` and stays its property: it must not be released, and what is done through it must keep
    /// what this type promises (its checkpoint, its thread rules).
    #[must_use]
    pub fn as_ptr(&self) -> *mut sys::OrtTrainingSession {
        self.handle.as_ptr()
    }

    /// Starts building a session in `environment`.
    pub fn builder(environment: &Environment) -> TrainingSessionBuilder {
        TrainingSessionBuilder::new(environment)
    }

    pub(crate) fn new(
        handle: SessionHandle,
        checkpoint: Checkpoint,
        training: StepIo,
        evaluation: Option<EvaluationModel>,
        has_optimizer: bool,
        parameter_slots: Vec<ParameterSlot>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self {
            handle,
            checkpoint,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            fed: Fed::with_capacity(training.inputs.len()),
            training,
            evaluation,
            has_optimizer,
            parameter_slots,
        }
    }

    /// The training model's inputs that a step is fed, in order
    /// (wraps `OrtTrainingApi::TrainingSessionGetTrainingModelInputCount` and `...InputName`; types and shapes are read
    /// from the model).
    #[must_use]
    pub fn train_inputs(&self) -> &[IoInfo] {
        &self.training.inputs
    }

    /// The training model's outputs, the loss first (wraps `OrtTrainingApi::TrainingSessionGetTrainingModelOutputCount`
    /// and `...OutputName`).
    #[must_use]
    pub fn train_outputs(&self) -> &[IoInfo] {
        &self.training.outputs
    }

    pub(crate) fn evaluation(&self) -> Result<&EvaluationModel> {
        self.evaluation.as_ref().ok_or_else(|| {
            Error::invalid_argument(
                "evaluation: expected a session built with an evaluation model, found one without",
            )
        })
    }

    /// The evaluation model's inputs that a step is fed, in order
    /// (wraps `OrtTrainingApi::TrainingSessionGetEvalModelInputCount` and `...InputName`).
    ///
    /// # Errors
    /// The session has no evaluation model.
    pub fn eval_inputs(&self) -> Result<&[IoInfo]> {
        Ok(&self.evaluation()?.io.inputs)
    }

    /// The evaluation model's outputs (wraps `OrtTrainingApi::TrainingSessionGetEvalModelOutputCount` and
    /// `...OutputName`).
    ///
    /// # Errors
    /// The session has no evaluation model.
    pub fn eval_outputs(&self) -> Result<&[IoInfo]> {
        Ok(&self.evaluation()?.io.outputs)
    }

    /// Forward and backward: computes the outputs and adds the gradients to the accumulated ones
    /// (wraps `OrtTrainingApi::TrainStep`).
    ///
    /// Inputs are those of [`train_inputs`](Self::train_inputs), in that order; they are read during the call only.
    ///
    /// # Errors
    /// An input of the wrong number, type, rank or dimension, or without elements: with name, expected and found; a
    /// nominal checkpoint that was not filled; what ONNX Runtime reports.
    pub fn train_step(&mut self, inputs: &[&dyn AsValue]) -> Result<Outputs> {
        self.train_step_inner(inputs, None)
    }

    /// As [`train_step`](Self::train_step), with run options; see [`RunOptions`] for what ONNX Runtime makes of them.
    ///
    /// # Errors
    /// As there; the terminate flag is set.
    pub fn train_step_with(
        &mut self,
        inputs: &[&dyn AsValue],
        run_options: &RunOptions,
    ) -> Result<Outputs> {
        self.train_step_inner(inputs, Some(run_options))
    }

    /// As [`train_step`](Self::train_step), with inputs by name in any order.
    ///
    /// # Errors
    /// As there; a name that is missing, unknown or given twice.
    pub fn train_step_named(&mut self, inputs: &[(&str, &dyn AsValue)]) -> Result<Outputs> {
        let ordered = order_inputs("training step", &self.training.inputs, inputs)?;
        self.train_step_inner(&ordered, None)
    }

    fn train_step_inner(
        &mut self,
        inputs: &[&dyn AsValue],
        run_options: Option<&RunOptions>,
    ) -> Result<Outputs> {
        const CALL: &str = "training step";
        RunOptions::ensure_running(run_options, CALL)?;
        if !self.fed.are(inputs) {
            check_inputs(CALL, &self.training.inputs, inputs, Empty::Refused)?;
            check_places(CALL, self.handle.has_device, &self.training.inputs, inputs)?;
            self.fed.set(inputs);
        }
        check_labels(
            CALL,
            &self.training.labels,
            &self.training.inputs,
            |index| inputs[index],
        )?;
        let mut outputs = OutputSlots::new(self.training.outputs.len());
        // SAFETY: session, state and inputs are alive, and the pointers are theirs; both lists have the lengths that are
        // passed. ONNX Runtime drops its
        // references to the inputs before it returns (onnxruntime_training_c_api.cc, `feeds`).
        unsafe {
            call!(training.TrainStep(
                self.handle.as_ptr(),
                RunOptions::pointer(run_options),
                inputs.len(),
                self.fed.pointers.as_ptr(),
                self.training.outputs.len(),
                outputs.as_mut_ptr(),
            ))
            .context(CALL)?;
        }
        outputs.take(
            &self.training.output_names,
            &self.training.shared,
            self.training.loss_is_f32 && !self.handle.has_device,
        )
    }

    /// Computes the evaluation model's outputs with the current parameters (wraps `OrtTrainingApi::EvalStep`).
    ///
    /// Inputs are those of [`eval_inputs`](Self::eval_inputs), in that order; they are read during the call
    /// only.
    ///
    /// # Errors
    /// The session has no evaluation model; otherwise as [`train_step`](Self::train_step).
    pub fn eval_step(&self, inputs: &[&dyn AsValue]) -> Result<Outputs> {
        self.eval_step_inner(inputs, None)
    }

    /// As [`eval_step`](Self::eval_step), with run options; see [`RunOptions`] for what ONNX Runtime makes of them.
    ///
    /// # Errors
    /// As there; the terminate flag is set.
    pub fn eval_step_with(
        &self,
        inputs: &[&dyn AsValue],
        run_options: &RunOptions,
    ) -> Result<Outputs> {
        self.eval_step_inner(inputs, Some(run_options))
    }

    /// As [`eval_step`](Self::eval_step), with inputs by name in any order.
    ///
    /// # Errors
    /// As there; a name that is missing, unknown or given twice.
    pub fn eval_step_named(&self, inputs: &[(&str, &dyn AsValue)]) -> Result<Outputs> {
        let ordered = order_inputs("evaluation step", &self.evaluation()?.io.inputs, inputs)?;
        self.eval_step_inner(&ordered, None)
    }

    fn eval_step_inner(
        &self,
        inputs: &[&dyn AsValue],
        run_options: Option<&RunOptions>,
    ) -> Result<Outputs> {
        const CALL: &str = "evaluation step";
        RunOptions::ensure_running(run_options, CALL)?;
        let io = &self.evaluation()?.io;
        check_inputs(CALL, &io.inputs, inputs, Empty::Refused)?;
        check_places(CALL, self.handle.has_device, &io.inputs, inputs)?;
        check_labels(CALL, &io.labels, &io.inputs, |index| inputs[index])?;
        let pointers: Vec<*const sys::OrtValue> = inputs
            .iter()
            .map(|input| input.as_value().as_ptr().cast_const())
            .collect();
        let mut outputs = OutputSlots::new(io.outputs.len());
        // SAFETY: as in `train_step`; the parameters are read only (module.cc, `EvalStep`).
        unsafe {
            call!(training.EvalStep(
                self.handle.as_ptr(),
                RunOptions::pointer(run_options),
                pointers.len(),
                pointers.as_ptr(),
                io.outputs.len(),
                outputs.as_mut_ptr(),
            ))
            .context(CALL)?;
        }
        outputs.take(
            &io.output_names,
            &io.shared,
            io.loss_is_f32 && !self.handle.has_device,
        )
    }

    /// Fails where ONNX Runtime would follow a null pointer: without an optimizer, or before its state exists.
    fn ensure_optimizer(&self, call: &str) -> Result<()> {
        if !self.has_optimizer {
            return Err(Error::invalid_argument(format!(
                "{call}: expected a session built with an optimizer model, found one without"
            )));
        }
        if self.checkpoint.nominal {
            return Err(Error::invalid_argument(format!(
                "{call}: the checkpoint is nominal; copy the parameters to the session first"
            )));
        }
        Ok(())
    }

    /// Applies the accumulated gradients to the trainable parameters (wraps `OrtTrainingApi::OptimizerStep`).
    ///
    /// # Errors
    /// The session has no optimizer model; a nominal checkpoint that was not filled; what ONNX Runtime reports.
    pub fn optimizer_step(&mut self) -> Result<()> {
        self.optimizer_step_inner(None)
    }

    /// As [`optimizer_step`](Self::optimizer_step), with run options; see [`RunOptions`] for what ONNX Runtime makes of
    /// them.
    ///
    /// # Errors
    /// As there; the terminate flag is set.
    pub fn optimizer_step_with(&mut self, run_options: &RunOptions) -> Result<()> {
        self.optimizer_step_inner(Some(run_options))
    }

    fn optimizer_step_inner(&mut self, run_options: Option<&RunOptions>) -> Result<()> {
        const CALL: &str = "optimizer step";
        RunOptions::ensure_running(run_options, CALL)?;
        self.ensure_optimizer(CALL)?;
        let run_options = RunOptions::pointer(run_options);
        // SAFETY: session, state and options are alive.
        unsafe { call!(training.OptimizerStep(self.handle.as_ptr(), run_options)).context(CALL) }
    }

    /// Lets the next training step start from zero gradients instead of adding to the accumulated ones
    /// (wraps `OrtTrainingApi::LazyResetGrad`).
    ///
    /// # Errors
    /// What ONNX Runtime reports.
    pub fn lazy_reset_grad(&mut self) -> Result<()> {
        // SAFETY: the session is alive.
        unsafe { call!(training.LazyResetGrad(self.handle.as_ptr())) }
    }

    /// Sets the learning rate of the next optimizer steps (wraps `OrtTrainingApi::SetLearningRate`). A schedule replaces
    /// it at its next step.
    ///
    /// # Errors
    /// As [`optimizer_step`](Self::optimizer_step).
    pub fn set_learning_rate(&mut self, learning_rate: f32) -> Result<()> {
        self.ensure_optimizer("learning rate")?;
        // SAFETY: the session is alive and has an optimizer with a state.
        unsafe { call!(training.SetLearningRate(self.handle.as_ptr(), learning_rate)) }
    }

    /// The learning rate of the next optimizer step (wraps `OrtTrainingApi::GetLearningRate`); 0.001 unless set, also after
    /// loading a checkpoint, which does not hold it.
    ///
    /// # Errors
    /// As [`optimizer_step`](Self::optimizer_step).
    pub fn learning_rate(&self) -> Result<f32> {
        self.ensure_optimizer("learning rate")?;
        let mut learning_rate = 0.0;
        // SAFETY: as above; the session is only read.
        unsafe {
            call!(training.GetLearningRate(self.handle.as_ptr(), &mut learning_rate))?;
        }
        Ok(learning_rate)
    }

    /// Registers a schedule: the learning rate rises linearly from 0 to `initial_learning_rate` over the first
    /// `warmup_steps` optimizer steps and then falls linearly to 0 at `total_steps`
    /// (wraps `OrtTrainingApi::RegisterLinearLRScheduler`). It follows the optimizer's step count, also across checkpoints.
    ///
    /// ONNX Runtime sets the learning rate to `initial_learning_rate` here, not to the schedule's first value: call
    /// [`scheduler_step`](Self::scheduler_step) once before the first optimizer step to begin the warm-up at 0.
    ///
    /// # Errors
    /// As [`optimizer_step`](Self::optimizer_step); step counts beyond 63 bits.
    pub fn register_linear_lr_scheduler(
        &mut self,
        warmup_steps: u64,
        total_steps: u64,
        initial_learning_rate: f32,
    ) -> Result<()> {
        self.ensure_optimizer("learning rate schedule")?;
        let count = |steps: u64| {
            i64::try_from(steps).map_err(|_| {
                Error::invalid_argument(format!(
                    "learning rate schedule: expected at most {} steps, found {steps}",
                    i64::MAX
                ))
            })
        };
        let (warmup_steps, total_steps) = (count(warmup_steps)?, count(total_steps)?);
        // SAFETY: the session is alive and has an optimizer with a state.
        unsafe {
            call!(training.RegisterLinearLRScheduler(
                self.handle.as_ptr(),
                warmup_steps,
                total_steps,
                initial_learning_rate,
            ))
        }
    }

    /// Sets the learning rate that the schedule has for the optimizer's step count
    /// (wraps `OrtTrainingApi::SchedulerStep`). Call it after each optimizer step.
    ///
    /// # Errors
    /// No schedule was registered.
    pub fn scheduler_step(&mut self) -> Result<()> {
        self.ensure_optimizer("learning rate schedule")?;
        // SAFETY: the session is alive; without a schedule ONNX Runtime reports it.
        unsafe { call!(training.SchedulerStep(self.handle.as_ptr())) }
    }

    /// The checkpoint that the session trains in: always its current state.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The checkpoint that the session trains in, for changing properties and parameters.
    pub fn checkpoint_mut(&mut self) -> CheckpointMut<'_> {
        CheckpointMut(&mut self.checkpoint)
    }

    /// Saves the checkpoint, atomically; see [`Checkpoint::save`].
    ///
    /// # Errors
    /// As there.
    pub fn save_checkpoint(
        &self,
        path: impl AsRef<Path>,
        optimizer_state: OptimizerState,
    ) -> Result<()> {
        self.checkpoint.save(path, optimizer_state)
    }

    /// Ends the session and gives the checkpoint back. Its parameters stay accessible; the memory that the session took is
    /// freed when the checkpoint is dropped or given to another session.
    #[must_use]
    pub fn into_checkpoint(self) -> Checkpoint {
        let Self {
            handle,
            mut checkpoint,
            ..
        } = self;
        checkpoint.retire(handle);
        checkpoint
    }
}

impl fmt::Debug for TrainingSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainingSession")
            .field("train_inputs", &self.training.inputs)
            .field("train_outputs", &self.training.outputs)
            .field("has_evaluation_model", &self.evaluation.is_some())
            .field("has_optimizer_model", &self.has_optimizer)
            .finish_non_exhaustive()
    }
}
