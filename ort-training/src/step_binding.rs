//! Steps whose inputs and outputs are resolved once and reused.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use ort_training_sys as sys;
use smallvec::SmallVec;

use crate::api::call;
use crate::class_labels::check_labels;
use crate::cuda::DeviceTensor;
use crate::element::TensorElement;
use crate::error::{Context, Error, Result};
use crate::model_io::{Empty, check_inputs, check_places};
use crate::outputs::{LossPlace, Outputs, no_value};
use crate::session_parts::StepIo;
use crate::tensor::{StringTensor, Tensor, TensorRef};
use crate::training_session::TrainingSession;
use crate::value::{AsValue, Value};

/// A tensor that a [`StepBinding`] feeds: owned, or borrowed for `'a`.
#[derive(Debug)]
pub struct BoundInput<'a>(Value, PhantomData<&'a ()>);

impl<T: TensorElement> From<Tensor<T>> for BoundInput<'_> {
    fn from(tensor: Tensor<T>) -> Self {
        Self(tensor.into_value(), PhantomData)
    }
}

impl<'a, T: TensorElement> From<TensorRef<'a, T>> for BoundInput<'a> {
    fn from(tensor: TensorRef<'a, T>) -> Self {
        Self(tensor.into_raw_value(), PhantomData)
    }
}

impl<'a, T: TensorElement> From<DeviceTensor<'a, T>> for BoundInput<'a> {
    fn from(tensor: DeviceTensor<'a, T>) -> Self {
        Self(tensor.into_raw_value(), PhantomData)
    }
}

impl From<StringTensor> for BoundInput<'_> {
    fn from(tensor: StringTensor) -> Self {
        Self(tensor.into_value(), PhantomData)
    }
}

impl From<Value> for BoundInput<'_> {
    fn from(value: Value) -> Self {
        Self(value, PhantomData)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Training,
    Evaluation,
}

impl Step {
    fn call(self) -> &'static str {
        match self {
            Self::Training => "bound training step",
            Self::Evaluation => "bound evaluation step",
        }
    }
}

/// A training or evaluation step of one session with its inputs and outputs bound.
///
/// Inputs are checked when they are bound, class labels before each run. The first run lets ONNX Runtime allocate the outputs; every later run writes to
/// the same memory. From the second run on, this crate allocates nothing.
///
/// ```no_run
/// # use ort_training::{Environment, Tensor, TrainingSession};
/// # let env = Environment::builder("x").build()?;
/// # let mut session = TrainingSession::builder(&env).artifacts("artifacts/")?.build()?;
/// let images = Tensor::filled([8, 64], 0f32)?;
/// let labels = Tensor::filled([8], 0i64)?;
/// let mut step = session.bind_train_step(vec![images.into(), labels.into()])?;
/// for _ in 0..100 {
///     step.input_mut::<f32>(0)?.fill(0.5);
///     session.train_step_bound(&mut step)?;
///     let loss = step.outputs().loss()?;
///     session.optimizer_step()?;
///     session.lazy_reset_grad()?;
/// }
/// # Ok::<(), ort_training::Error>(())
/// ```
pub struct StepBinding<'a> {
    session: u64,
    step: Step,
    inputs: Vec<Value>,
    input_pointers: Vec<*const sys::OrtValue>,
    outputs: Outputs,
    output_pointers: Vec<*mut sys::OrtValue>,
    lent: PhantomData<&'a ()>,
}

// SAFETY: the pointers are those of the values, which are Send.
unsafe impl Send for StepBinding<'_> {}

impl<'a> StepBinding<'a> {
    fn new(
        session: &TrainingSession,
        step: Step,
        io: &StepIo,
        inputs: Vec<BoundInput<'a>>,
    ) -> Result<Self> {
        let inputs: Vec<Value> = inputs.into_iter().map(|input| input.0).collect();
        let views: Vec<&dyn AsValue> = inputs.iter().map(|value| value as &dyn AsValue).collect();
        check_inputs(step.call(), &io.inputs, &views, Empty::Refused)?;
        check_places(step.call(), session.handle.has_device, &io.inputs, &views)?;
        if let Some(index) = io.shared.iter().position(|shared| *shared) {
            return Err(Error::invalid_argument(format!(
                "{}: output {:?} is an input of the model handed through; its memory cannot be reused",
                step.call(),
                io.output_names[index]
            )));
        }
        let input_pointers = inputs
            .iter()
            .map(|value| value.as_ptr().cast_const())
            .collect();
        Ok(Self {
            session: session.id,
            step,
            inputs,
            input_pointers,
            outputs: Outputs {
                names: Arc::clone(&io.output_names),
                values: SmallVec::with_capacity(io.outputs.len()),
                loss: LossPlace::Unknown,
            },
            output_pointers: vec![std::ptr::null_mut(); io.outputs.len()],
            lent: PhantomData,
        })
    }

    /// The elements of an input, for the next run.
    ///
    /// # Errors
    /// No such input; another element type; an input that was borrowed.
    pub fn input_mut<T: TensorElement>(&mut self, index: usize) -> Result<&mut [T]> {
        let count = self.inputs.len();
        match self.inputs.get_mut(index) {
            Some(value) => value
                .data_mut()
                .with_context(|| format!("bound input {index}")),
            None => Err(Error::invalid_argument(format!(
                "bound input {index}: expected an index below {count}"
            ))),
        }
    }

    /// The outputs of the last run; none before the first.
    #[must_use]
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    fn begin(&self, session: u64, step: Step, io: &StepIo) -> Result<()> {
        if self.session != session || self.step != step {
            return Err(Error::invalid_argument(format!(
                "{}: expected a binding of this session and kind of step, found another one",
                step.call()
            )));
        }
        check_labels(step.call(), &io.labels, &io.inputs, |index| {
            &self.inputs[index]
        })
    }

    /// Takes the outputs that ONNX Runtime allocated in the first run.
    fn finish(&mut self) -> Result<()> {
        if self.outputs.values.len() == self.output_pointers.len() {
            return Ok(());
        }
        self.take_outputs()
    }

    #[cold]
    fn take_outputs(&mut self) -> Result<()> {
        for index in self.outputs.values.len()..self.output_pointers.len() {
            let raw = NonNull::new(self.output_pointers[index])
                .ok_or_else(|| no_value(&self.outputs.names, index))?;
            // SAFETY: ONNX Runtime made this value for us in this call; the pointer is kept for passing it again only.
            self.outputs
                .values
                .push(unsafe { Value::from_runtime(raw) });
        }
        // Later runs write to the same memory.
        if let Some(place) = self.outputs.values.first().and_then(Value::host_f32_place) {
            self.outputs.loss = LossPlace::At(place);
        }
        Ok(())
    }
}

impl std::fmt::Debug for StepBinding<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepBinding")
            .field("step", &self.step)
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

impl TrainingSession {
    /// Binds the inputs of training steps.
    ///
    /// # Errors
    /// As [`train_step`](Self::train_step).
    pub fn bind_train_step<'a>(&self, inputs: Vec<BoundInput<'a>>) -> Result<StepBinding<'a>> {
        StepBinding::new(self, Step::Training, &self.training, inputs)
    }

    /// Binds the inputs of evaluation steps.
    ///
    /// # Errors
    /// As [`eval_step`](Self::eval_step).
    pub fn bind_eval_step<'a>(&self, inputs: Vec<BoundInput<'a>>) -> Result<StepBinding<'a>> {
        StepBinding::new(self, Step::Evaluation, &self.evaluation()?.io, inputs)
    }

    /// A training step with bound inputs and outputs (wraps `OrtTrainingApi::TrainStep`).
    ///
    /// # Errors
    /// A binding of another session or of evaluation; what ONNX Runtime reports.
    pub fn train_step_bound(&mut self, binding: &mut StepBinding<'_>) -> Result<()> {
        binding.begin(self.id, Step::Training, &self.training)?;
        // SAFETY: session, state and bound values are alive; both lists have the lengths that are passed. The outputs
        // belong to the binding alone, which is borrowed mutably, and share no memory with the inputs.
        unsafe {
            call!(training.TrainStep(
                self.handle.as_ptr(),
                std::ptr::null(),
                binding.input_pointers.len(),
                binding.input_pointers.as_ptr(),
                binding.output_pointers.len(),
                binding.output_pointers.as_mut_ptr(),
            ))
            .context(Step::Training.call())?;
        }
        binding.finish()
    }

    /// An evaluation step with bound inputs and outputs (wraps `OrtTrainingApi::EvalStep`).
    ///
    /// # Errors
    /// A binding of another session or of training; what ONNX Runtime reports.
    pub fn eval_step_bound(&self, binding: &mut StepBinding<'_>) -> Result<()> {
        binding.begin(self.id, Step::Evaluation, &self.evaluation()?.io)?;
        // SAFETY: as in `train_step_bound`.
        unsafe {
            call!(training.EvalStep(
                self.handle.as_ptr(),
                std::ptr::null(),
                binding.input_pointers.len(),
                binding.input_pointers.as_ptr(),
                binding.output_pointers.len(),
                binding.output_pointers.as_mut_ptr(),
            ))
            .context(Step::Evaluation.call())?;
        }
        binding.finish()
    }
}
