//! What a step returns.

use std::ops::Index;
use std::ptr::NonNull;
use std::sync::Arc;

use half::{bf16, f16};
use ort_training_sys as sys;
use smallvec::SmallVec;

use crate::api::release;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::value::Value;

/// The outputs of a step or run, in the model's order, with their names.
#[derive(Debug)]
pub struct Outputs {
    pub(crate) names: Arc<[String]>,
    pub(crate) values: Vec<Value>,
    /// Whether the first one is known to be a float32 in host memory (the session checked its model's output type when it
    /// was built), so that a loss takes one call to read.
    pub(crate) host_f32: bool,
}

impl Outputs {
    /// The number of outputs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The names, in the model's order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The output with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, name: &str) -> Result<&Value> {
        self.position(name).map(|index| &self.values[index])
    }

    /// Takes the output with this name out of the others.
    ///
    /// # Errors
    /// There is none.
    pub fn take(mut self, name: &str) -> Result<Value> {
        let index = self.position(name)?;
        Ok(self.values.swap_remove(index))
    }

    fn position(&self, name: &str) -> Result<usize> {
        self.names
            .iter()
            .position(|found| found == name)
            .ok_or_else(|| {
                Error::invalid_argument(format!(
                    "output {name:?}: expected one of {:?}, found no such output",
                    self.names
                ))
            })
    }

    /// The only output.
    ///
    /// # Errors
    /// There are more, or none.
    pub fn only(mut self) -> Result<Value> {
        if self.values.len() == 1
            && let Some(value) = self.values.pop()
        {
            return Ok(value);
        }
        Err(Error::invalid_argument(format!(
            "outputs: expected a single one, found {}: {:?}",
            self.values.len(),
            self.names
        )))
    }

    /// The loss: the first output, which training models have the loss as. Float types of 16 and 64 bits are converted.
    ///
    /// # Errors
    /// The first output is no float scalar.
    pub fn loss(&self) -> Result<f32> {
        let first = self
            .values
            .first()
            .ok_or_else(|| Error::invalid_argument("loss: expected an output, found none"))?;
        // SAFETY: by the meaning of the field.
        if self.host_f32
            && let Some(loss) = unsafe { first.host_scalar::<f32>() }
        {
            return Ok(loss);
        }
        let loss = match first.element_type()? {
            ElementType::Float32 => first.scalar::<f32>(),
            ElementType::Float64 => first.scalar::<f64>().map(|loss| loss as f32),
            ElementType::Float16 => first.scalar::<f16>().map(f16::to_f32),
            ElementType::Bfloat16 => first.scalar::<bf16>().map(bf16::to_f32),
            other => Err(Error::invalid_argument(format!(
                "expected a float scalar, found {other}"
            ))),
        };
        loss.map_err(|error| {
            error.context(format_args!(
                "loss (output {:?})",
                self.names.first().map_or("", |n| n)
            ))
        })
    }

    /// All outputs, in the model's order.
    #[must_use]
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }
}

impl Index<usize> for Outputs {
    type Output = Value;

    fn index(&self, index: usize) -> &Value {
        &self.values[index]
    }
}

/// Output pointers during a call: whatever ONNX Runtime put there is released unless it is taken.
pub(crate) struct OutputSlots(SmallVec<[*mut sys::OrtValue; 4]>);

impl OutputSlots {
    pub(crate) fn new(count: usize) -> Self {
        Self(SmallVec::from_elem(std::ptr::null_mut(), count))
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut *mut sys::OrtValue {
        self.0.as_mut_ptr()
    }

    /// Takes the values. `shared` tells which outputs are inputs handed through: ONNX Runtime returns those without
    /// copying, so they are copied here, or they would outlive (or be written through) what they borrow.
    ///
    /// `host_f32` is [`Outputs::host_f32`].
    pub(crate) fn take(
        mut self,
        names: &Arc<[String]>,
        shared: &[bool],
        host_f32: bool,
    ) -> Result<Outputs> {
        let mut values = Vec::with_capacity(self.0.len());
        for (index, slot) in self.0.iter_mut().enumerate() {
            let raw =
                NonNull::new(std::mem::replace(slot, std::ptr::null_mut())).ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "output {:?}: ONNX Runtime returned no value",
                        names.get(index).map_or("", |name| name)
                    ))
                })?;
            // SAFETY: ONNX Runtime made this value for us, and the slot was emptied.
            let mut value = unsafe { Value::from_runtime(raw) };
            if shared.get(index).copied().unwrap_or(false) {
                value = value.deep_copy()?;
            }
            values.push(value);
        }
        Ok(Outputs {
            names: Arc::clone(names),
            values,
            host_f32,
        })
    }
}

impl Drop for OutputSlots {
    fn drop(&mut self) {
        for &slot in self.0.iter().filter(|slot| !slot.is_null()) {
            // SAFETY: made for us, not taken.
            unsafe { release!(ort.ReleaseValue(slot)) };
        }
    }
}
