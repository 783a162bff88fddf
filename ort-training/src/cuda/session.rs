//! Training sessions on a device: outputs that stay there, parameters that go from and to there.

use std::ptr::NonNull;

use ort_training_sys as sys;
use smallvec::SmallVec;

use super::tensor::DeviceTensor;
use crate::api::call;
use crate::class_labels::check_labels;
use crate::element::TensorElement;
use crate::error::{Context, Error, Result};
use crate::model_io::{Empty, IoInfo, check_inputs, check_places};
use crate::outputs::{LossPlace, Outputs, no_value};
use crate::parameters::ParameterSet;
use crate::session_parts::StepIo;
use crate::shape::Dimensions;
use crate::training_session::TrainingSession;
use crate::value::{AsValue, Value};

mod sealed {
    pub trait Sealed {}
}

/// What a step can write an output to: a [`DeviceTensor`] of any element type.
pub trait DeviceOutput: AsValue + sealed::Sealed {
    /// Fails if the memory was lent for reading.
    #[doc(hidden)]
    fn ensure_writable(&self) -> Result<()>;
}

impl<T: TensorElement> sealed::Sealed for DeviceTensor<'_, T> {}

impl<T: TensorElement> DeviceOutput for DeviceTensor<'_, T> {
    fn ensure_writable(&self) -> Result<()> {
        DeviceTensor::ensure_writable(self)
    }
}

impl TrainingSession {
    /// As [`train_step`](Self::train_step), with some outputs written to device memory, by name; the others are returned in
    /// host memory, the loss among them unless it was asked for on the device.
    ///
    /// In every training step, outputs without a tensor of the caller's come to host memory: ONNX Runtime copies them at the
    /// end of the step. So a loss costs one copy of four bytes, and a large output that is not needed on the host is worth
    /// a tensor on the device.
    ///
    /// # Errors
    /// As [`train_step`](Self::train_step); a session without a device; an output that the model does not have, that is given
    /// twice, that is an input handed through, or that does not fit the tensor: with name, expected and found.
    pub fn train_step_to_device(
        &mut self,
        inputs: &[&dyn AsValue],
        on_device: &mut [(&str, &mut dyn DeviceOutput)],
    ) -> Result<Outputs> {
        const CALL: &str = "training step to the device";
        let io = &self.training;
        self.check_step(CALL, io, inputs)?;
        let (pointers, mut slots) = prepare(CALL, io, inputs, on_device)?;
        // SAFETY: session, inputs and outputs are alive, the outputs borrowed mutably; both lists have the lengths that are
        // passed.
        let status = unsafe {
            call!(training.TrainStep(
                self.handle.as_ptr(),
                std::ptr::null(),
                pointers.len(),
                pointers.as_ptr(),
                slots.pointers.len(),
                slots.pointers.as_mut_ptr(),
            ))
        };
        slots.finish(io, status.context(CALL))
    }

    /// As [`eval_step`](Self::eval_step), with some outputs written to device memory; see
    /// [`train_step_to_device`](Self::train_step_to_device).
    ///
    /// # Errors
    /// As there; the session has no evaluation model.
    pub fn eval_step_to_device(
        &self,
        inputs: &[&dyn AsValue],
        on_device: &mut [(&str, &mut dyn DeviceOutput)],
    ) -> Result<Outputs> {
        const CALL: &str = "evaluation step to the device";
        let io = &self.evaluation()?.io;
        self.check_step(CALL, io, inputs)?;
        let (pointers, mut slots) = prepare(CALL, io, inputs, on_device)?;
        // SAFETY: as in `train_step_to_device`.
        let status = unsafe {
            call!(training.EvalStep(
                self.handle.as_ptr(),
                std::ptr::null(),
                pointers.len(),
                pointers.as_ptr(),
                slots.pointers.len(),
                slots.pointers.as_mut_ptr(),
            ))
        };
        slots.finish(io, status.context(CALL))
    }

    fn check_step(&self, call: &str, io: &StepIo, inputs: &[&dyn AsValue]) -> Result<()> {
        self.ensure_device(call)?;
        check_inputs(call, &io.inputs, inputs, Empty::Refused)?;
        check_places(call, self.handle.has_device, &io.inputs, inputs)?;
        check_labels(call, &io.labels, &io.inputs, |index| inputs[index])
    }

    fn ensure_device(&self, call: &str) -> Result<()> {
        if self.handle.has_device {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "{call}: expected a session with a CUDA device, found one on the CPU"
        )))
    }

    /// Copies the parameters to device memory, with no way over the host (wraps `OrtTrainingApi::CopyParametersToBuffer`).
    ///
    /// # Errors
    /// As [`copy_parameters_to_buffer`](Self::copy_parameters_to_buffer); a session without a device; memory lent for
    /// reading.
    pub fn copy_parameters_to_device(
        &self,
        buffer: &mut DeviceTensor<'_, f32>,
        set: ParameterSet,
    ) -> Result<()> {
        const CALL: &str = "copying parameters to the device";
        self.ensure_device(CALL)?;
        buffer.ensure_writable()?;
        self.ensure_float(CALL, set)?;
        self.ensure_length(CALL, set, buffer.len())?;
        // SAFETY: session and value are alive, and the value's memory may be written; the parameters fit it, as for a buffer
        // on the host.
        unsafe {
            call!(training.CopyParametersToBuffer(
                self.handle.as_ptr(),
                buffer.value().as_ptr(),
                set.trainable_only(),
            ))
            .context(CALL)
        }
    }

    /// Replaces the parameters by those in device memory, with no way over the host
    /// (wraps `OrtTrainingApi::CopyBufferToParameters`).
    ///
    /// # Errors
    /// As [`copy_buffer_to_parameters`](Self::copy_buffer_to_parameters); a session without a device; a nominal checkpoint,
    /// which is filled from the host.
    pub fn copy_device_to_parameters(
        &mut self,
        buffer: &DeviceTensor<'_, f32>,
        set: ParameterSet,
    ) -> Result<()> {
        const CALL: &str = "copying parameters from the device";
        self.ensure_device(CALL)?;
        self.ensure_float(CALL, set)?;
        self.ensure_length(CALL, set, buffer.len())?;
        if self.checkpoint.nominal {
            return Err(Error::invalid_argument(format!(
                "{CALL}: the checkpoint is nominal; fill it with `copy_buffer_to_parameters` first"
            )));
        }
        // SAFETY: session and value are alive; the value is read only (module.cc: it is the source of every copy).
        unsafe {
            call!(training.CopyBufferToParameters(
                self.handle.as_ptr(),
                buffer.value().as_ptr(),
                set.trainable_only(),
            ))
            .context(CALL)
        }
    }
}

/// Output pointers during a call, some of which are the caller's tensors.
struct Slots {
    pointers: Vec<*mut sys::OrtValue>,
    given: Vec<bool>,
}

/// Resolves the outputs that the caller gave a tensor for.
fn prepare(
    call: &str,
    io: &StepIo,
    inputs: &[&dyn AsValue],
    on_device: &mut [(&str, &mut dyn DeviceOutput)],
) -> Result<(Vec<*const sys::OrtValue>, Slots)> {
    let count = io.outputs.len();
    let mut slots = Slots {
        pointers: vec![std::ptr::null_mut(); count],
        given: vec![false; count],
    };
    for (name, tensor) in on_device.iter_mut() {
        let refuse = |what: String| {
            Err(Error::invalid_argument(format!(
                "{call}: output {name:?}: {what}"
            )))
        };
        let Some(index) = io.output_names.iter().position(|found| found == name) else {
            return refuse(format!(
                "expected one of {:?}, found no such output",
                io.output_names
            ));
        };
        if slots.given[index] {
            return refuse("it is given twice".into());
        }
        if io.shared[index] {
            return refuse("it is an input handed through, which has its memory already".into());
        }
        tensor.ensure_writable()?;
        let value = tensor.as_value();
        if !fits(&io.outputs[index], value)? {
            return refuse(format!(
                "expected a tensor for {}, found {} {}",
                io.outputs[index],
                value.element_type()?,
                Dimensions(value.shape()?)
            ));
        }
        slots.pointers[index] = value.as_ptr();
        slots.given[index] = true;
    }
    let pointers = inputs
        .iter()
        .map(|input| input.as_value().as_ptr().cast_const())
        .collect();
    Ok((pointers, slots))
}

fn fits(info: &IoInfo, value: &Value) -> Result<bool> {
    let shape = value.shape()?;
    let type_fits = match info.element_type() {
        Some(wanted) => wanted == value.element_type()?,
        None => true,
    };
    let shape_fits = match info.dimensions() {
        Some(wanted) => {
            wanted.len() == shape.len()
                && wanted
                    .iter()
                    .zip(shape)
                    .all(|(wanted, found)| match wanted {
                        crate::Dimension::Fixed(length) => length == found,
                        crate::Dimension::Symbolic(_) => true,
                    })
        }
        None => true,
    };
    Ok(type_fits && shape_fits)
}

impl Slots {
    /// Takes the values that ONNX Runtime made, also after a failure, so that they are released.
    fn finish(self, io: &StepIo, status: Result<()>) -> Result<Outputs> {
        let mut names = Vec::new();
        let mut values: SmallVec<[Value; 2]> = SmallVec::new();
        let mut missing = None;
        let made = self.pointers.into_iter().zip(&self.given).enumerate();
        for (index, (pointer, _)) in made.filter(|(_, (_, given))| !**given) {
            let Some(raw) = NonNull::new(pointer) else {
                missing.get_or_insert(index);
                continue;
            };
            // SAFETY: ONNX Runtime made this value for us in this call.
            let value = unsafe { Value::from_runtime(raw) };
            values.push(match io.shared[index] {
                true => value.deep_copy()?,
                false => value,
            });
            names.push(io.output_names[index].clone());
        }
        status?;
        if let Some(index) = missing {
            return Err(no_value(&io.output_names, index));
        }
        Ok(Outputs {
            names: names.into(),
            values,
            loss: LossPlace::Unknown,
        })
    }
}
