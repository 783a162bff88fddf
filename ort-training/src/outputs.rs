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
    pub(crate) values: SmallVec<[Value; 2]>,
    pub(crate) loss: LossPlace,
}

/// What is known of the first output, so that the loss takes one call to read, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LossPlace {
    Unknown,
    /// A float32 in host memory: the session checked its model's output type when it was built.
    HostF32,
    /// This float32 in host memory, for as long as the value lives.
    At(NonNull<f32>),
}

// SAFETY: the address is of memory that the first value holds, which may be sent and shared.
unsafe impl Send for LossPlace {}
// SAFETY: as above.
unsafe impl Sync for LossPlace {}

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
        if self.values.len() == 1 {
            return Ok(self.values.swap_remove(0));
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
    #[inline]
    pub fn loss(&self) -> Result<f32> {
        match (self.loss, self.values.first()) {
            // SAFETY: by the meaning of the place; the value is alive.
            (LossPlace::At(place), Some(_)) => Ok(unsafe { place.read() }),
            // SAFETY: as above.
            (LossPlace::HostF32, Some(first)) => match unsafe { first.host_scalar::<f32>() } {
                Some(loss) => Ok(loss),
                None => self.loss_of_any_kind(),
            },
            _ => self.loss_of_any_kind(),
        }
    }

    #[cold]
    fn loss_of_any_kind(&self) -> Result<f32> {
        let first = self
            .values
            .first()
            .ok_or_else(|| Error::invalid_argument("loss: expected an output, found none"))?;
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
        self.values.into_vec()
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
    /// `host_f32`: the first output is a float32 in host memory.
    pub(crate) fn take(
        mut self,
        names: &Arc<[String]>,
        shared: &[bool],
        host_f32: bool,
    ) -> Result<Outputs> {
        let mut values = SmallVec::with_capacity(self.0.len());
        for (index, slot) in self.0.iter_mut().enumerate() {
            let Some(raw) = NonNull::new(std::mem::replace(slot, std::ptr::null_mut())) else {
                return Err(no_value(names, index));
            };
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
            loss: if host_f32 {
                LossPlace::HostF32
            } else {
                LossPlace::Unknown
            },
        })
    }
}

#[cold]
pub(crate) fn no_value(names: &[String], index: usize) -> Error {
    Error::invalid_argument(format!(
        "output {:?}: ONNX Runtime returned no value",
        names.get(index).map_or("", |name| name)
    ))
}

impl Drop for OutputSlots {
    fn drop(&mut self) {
        for &slot in self.0.iter().filter(|slot| !slot.is_null()) {
            // SAFETY: made for us, not taken.
            unsafe { release!(ort.ReleaseValue(slot)) };
        }
    }
}
