//! Parameters in one contiguous buffer, and export.

use std::ffi::CString;
use std::fs;
use std::path::Path;

use crate::api::call;
use crate::artifact_check::ParameterSlot;
use crate::atomic_file::{Sibling, recover};
use crate::checkpoint_format::external_data_path;
use crate::element::{ElementType, TensorElement};
use crate::error::{Context, Error, Result};
use crate::exported_data::{from_anywhere, with_location};
use crate::tensor::TensorRef;
use crate::text::{c_path, c_string};
use crate::training_session::TrainingSession;
use crate::value::{Access, AsValue, Value};

/// Which parameters a buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParameterSet {
    /// All of them.
    All,
    /// Those that are trained.
    Trainable,
}

impl ParameterSet {
    pub(crate) fn trainable_only(self) -> bool {
        self == Self::Trainable
    }
}

/// How many names an error lists.
const MAX_LISTED: usize = 20;

impl TrainingSession {
    /// The number of elements of the parameters together (wraps `OrtTrainingApi::GetParametersSize`).
    ///
    /// # Errors
    /// What ONNX Runtime reports.
    pub fn parameter_count(&self, set: ParameterSet) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the session is alive; the parameters have fixed shapes, which was checked when it was built.
        unsafe {
            call!(training.GetParametersSize(
                self.handle.as_ptr(),
                &mut count,
                set.trainable_only(),
            ))?;
        }
        Ok(count)
    }

    /// The parameters in the order in which buffers hold them, one behind the other: that of the training model's inputs.
    pub fn parameter_layout(&self, set: ParameterSet) -> impl Iterator<Item = &ParameterSlot> {
        self.parameter_slots
            .iter()
            .filter(move |slot| slot.requires_grad || set == ParameterSet::All)
    }

    pub(crate) fn ensure_float(&self, call: &str, set: ParameterSet) -> Result<()> {
        match self
            .parameter_layout(set)
            .find(|slot| slot.element_type != ElementType::Float32)
        {
            Some(slot) => Err(Error::invalid_argument(format!(
                "{call}: expected float32 parameters, the only type that ONNX Runtime's buffers hold, found {:?} of {}",
                slot.name, slot.element_type
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn ensure_length(&self, call: &str, set: ParameterSet, found: usize) -> Result<()> {
        let wanted = self.parameter_count(set)?;
        if wanted != found {
            return Err(Error::invalid_argument(format!(
                "{call}: expected a buffer of {wanted} elements, found {found}"
            )));
        }
        Ok(())
    }

    /// Copies the parameters to a buffer of [`parameter_count`](Self::parameter_count) elements
    /// (wraps `OrtTrainingApi::CopyParametersToBuffer`).
    ///
    /// # Errors
    /// A buffer of another length; parameters that are not float32; a nominal checkpoint that was not filled.
    pub fn copy_parameters_to_buffer(&self, buffer: &mut [f32], set: ParameterSet) -> Result<()> {
        const CALL: &str = "copying parameters to a buffer";
        self.ensure_float(CALL, set)?;
        self.ensure_length(CALL, set, buffer.len())?;
        // SAFETY: the buffer is borrowed mutably longer than the value lives.
        let value = unsafe {
            Value::from_parts(&[buffer.len()], buffer.as_mut_ptr(), None, Access::Owned)
        }?;
        // SAFETY: session and value are alive; the parameters are read only (module.cc), and fit the buffer because their
        // shapes are those of the model, which was checked when the session was built.
        unsafe {
            call!(training.CopyParametersToBuffer(
                self.handle.as_ptr(),
                value.as_ptr(),
                set.trainable_only(),
            ))
            .context(CALL)
        }
    }

    /// The parameters in a buffer of their own; see [`copy_parameters_to_buffer`](Self::copy_parameters_to_buffer).
    ///
    /// # Errors
    /// As there.
    pub fn parameters_buffer(&self, set: ParameterSet) -> Result<Vec<f32>> {
        let mut buffer = vec![0.0; self.parameter_count(set)?];
        self.copy_parameters_to_buffer(&mut buffer, set)?;
        Ok(buffer)
    }

    /// Replaces the parameters by those in a buffer (wraps `OrtTrainingApi::CopyBufferToParameters`). Fills a nominal
    /// checkpoint, for which the buffer holds all parameters.
    ///
    /// # Errors
    /// A buffer of another length; parameters that are not float32; a nominal checkpoint with
    /// [`ParameterSet::Trainable`] or in a session without an optimizer model.
    pub fn copy_buffer_to_parameters(&mut self, buffer: &[f32], set: ParameterSet) -> Result<()> {
        const CALL: &str = "copying a buffer to the parameters";
        self.ensure_float(CALL, set)?;
        self.ensure_length(CALL, set, buffer.len())?;
        let was_nominal = self.checkpoint.nominal;
        if was_nominal && !self.has_optimizer {
            // ONNX Runtime follows a null pointer here (training_session.cc, `CopyBufferToParameters`).
            return Err(Error::invalid_argument(format!(
                "{CALL}: a nominal checkpoint needs a session built with an optimizer model"
            )));
        }
        let value = TensorRef::new([buffer.len()], buffer)?;
        // SAFETY: session and value are alive; the value is read only (module.cc: it is the source of every copy).
        unsafe {
            call!(training.CopyBufferToParameters(
                self.handle.as_ptr(),
                value.as_value().as_ptr(),
                set.trainable_only(),
            ))
            .context(CALL)?;
        }
        if was_nominal {
            self.checkpoint.nominal = false;
            for slot in &self.parameter_slots {
                for info in &mut self.checkpoint.parameters {
                    if info.name == slot.name {
                        info.shape.clone_from(&slot.shape);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the model for inference: the evaluation model cut down to `outputs`, with the current parameters inside
    /// (wraps `OrtTrainingApi::ExportModelForInferencing`). Works for sessions built from files and from bytes; with files
    /// the evaluation model must still be where it was.
    ///
    /// The file is written under a hidden name and renamed, so that it is there whole or not at all. With a checkpoint that
    /// has external data the weights go to `<path>.data` beside it; the two can be moved together to any folder. (ONNX
    /// Runtime itself exports such models into the working directory only.) An export of a pair that is killed between its
    /// two renames is finished by the next one to that path.
    ///
    /// # Errors
    /// The session has no evaluation model; an output that the model does not have: with those it has; a nominal
    /// checkpoint that was not filled; a file that cannot be written.
    pub fn export_for_inference(&self, path: impl AsRef<Path>, outputs: &[&str]) -> Result<()> {
        let path = path.as_ref();
        self.export(path, outputs)
            .with_context(|| format!("exporting for inference to {}", path.display()))
    }

    fn export(&self, path: &Path, outputs: &[&str]) -> Result<()> {
        let model = &self.evaluation()?.model;
        let declared = || model.outputs.iter().map(|output| output.name.as_str());
        if outputs.is_empty() {
            return Err(Error::invalid_argument(format!(
                "expected at least one output, found none; the evaluation model has {:?}",
                declared().collect::<Vec<_>>()
            )));
        }
        for (index, name) in outputs.iter().enumerate() {
            if outputs[..index].contains(name) {
                return Err(Error::invalid_argument(format!(
                    "output {name:?} is given twice"
                )));
            }
            if !model.computed.contains(*name) {
                let inner: Vec<&str> = model
                    .computed
                    .iter()
                    .map(String::as_str)
                    .filter(|name| declared().all(|output| output != *name))
                    .take(MAX_LISTED)
                    .collect();
                return Err(Error::invalid_argument(format!(
                    "output {name:?}: expected an output of the evaluation model, {:?}, or a value inside of it, such as \
                     {inner:?}; found no such value",
                    declared().collect::<Vec<_>>()
                )));
            }
        }
        let names: Vec<CString> = outputs
            .iter()
            .map(|name| c_string("output name", name))
            .collect::<Result<_>>()?;
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let write = |target: &Path| {
            let target = c_path(target)?;
            // SAFETY: session and state are alive; the list has the length that is passed; strings are copied.
            unsafe {
                call!(training.ExportModelForInferencing(
                    self.handle.as_ptr(),
                    target.as_ptr(),
                    pointers.len(),
                    pointers.as_ptr(),
                ))
            }
        };
        if self.checkpoint.has_external_data() {
            recover(path)?;
            let sibling = Sibling::new(path)?;
            let target = from_anywhere(&sibling.path)?;
            write(&target)?;
            return finish_pair(sibling, path, &external_data_path(&target));
        }
        let sibling = Sibling::new(path)?;
        write(&sibling.path)?;
        sibling.commit()
    }
}

/// Puts a model and its weights in their places; the model says so far that the weights are in `written`.
fn finish_pair(sibling: Sibling, path: &Path, written: &Path) -> Result<()> {
    // Weights of less than 64 bytes stay in the model, and perhaps all are that small.
    if !external_data_path(&sibling.path).exists() {
        return sibling.commit();
    }
    let io = |error| Error::io(sibling.path.display(), &error);
    let data = external_data_path(path);
    let (Some(from), Some(to)) = (
        written.to_str(),
        data.file_name().and_then(|name| name.to_str()),
    ) else {
        return Err(Error::invalid_argument(format!(
            "expected a path in UTF-8, since the model names the file of its weights; found {}",
            path.display()
        )));
    };
    let model = fs::read(&sibling.path).map_err(io)?;
    fs::write(&sibling.path, with_location(&model, from, to)?).map_err(io)?;
    sibling.commit_pair()
}

// Buffers hold float32 elements by the contract of the C API.
const _: () = assert!(matches!(
    <f32 as TensorElement>::ELEMENT_TYPE,
    ElementType::Float32
));
