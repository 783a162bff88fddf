//! Checkpoints: parameters, optimizer state and properties.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::path::Path;
use std::ptr::NonNull;

use ort_training_sys as sys;

use crate::api::{call, release};
use crate::atomic_file::{self, Sibling};
use crate::checkpoint_format::{CheckpointSummary, ParameterInfo};
use crate::element::ElementType;
use crate::environment::Environment;
use crate::error::{Context, Error, Result};
use crate::property::{Property, PropertyKind};
use crate::session_parts::SessionHandle;
use crate::shape::Dimensions;
use crate::tensor::Tensor;
use crate::text::{Allocated, c_path, c_string, default_allocator};
use crate::value::{AsValue, TypeAndShape, Value};

/// Whether a saved checkpoint holds the optimizer's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OptimizerState {
    /// With step count and moments, so that training continues where it was.
    Include,
    /// Parameters and properties only.
    Exclude,
}

/// FlatBuffers addresses 2 GiB at most; the rest is for names and tables.
const MAX_FILE_BYTES: u64 = (1 << 31) - (1 << 20);

/// The state of a training (wraps `OrtCheckpointState`): parameters, optimizer state, properties.
///
/// A [`TrainingSession`](crate::TrainingSession) takes it, trains **in** it, and gives it back: the C API requires that it
/// outlive the session, and the session writes to it. So [`save`](Self::save) always stores the current parameters.
///
/// A checkpoint read from a file is verified before ONNX Runtime sees it; see [`CheckpointSummary`].
///
/// It may move between threads, but is not shared between them: nothing in checkpoint.h locks.
///
/// # The learning rate
///
/// ONNX Runtime's files hold the step count and the initial learning rate, not the current one. After loading, the
/// session's learning rate is ONNX Runtime's default, 0.001: set it, or register the schedule again and step it.
pub struct Checkpoint {
    /// The session that it came out of. ONNX Runtime copies parameters with what belongs to the session that used the
    /// checkpoint last (module.h: `train_session_data_transfer_mgr`), so that one is kept. Dropped before the state.
    retired: Option<SessionHandle>,
    state: State,
    pub(crate) parameters: Vec<ParameterInfo>,
    properties: BTreeMap<String, PropertyKind>,
    pub(crate) nominal: bool,
    external_data: bool,
    /// Moments that the optimizer keeps for each trainable parameter; 0 if it has no state.
    pub(crate) moments: usize,
    /// Whether a session is there that can copy parameters.
    attached: bool,
    /// Whether the optimizer's state lies in a device's memory that only a dropped session could copy from.
    optimizer_state_lost: bool,
}

struct State(NonNull<sys::OrtCheckpointState>);

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: ours, released once, and after every session that used it.
        unsafe { release!(training.ReleaseCheckpointState(self.0.as_ptr())) };
    }
}

// SAFETY: a plain C++ object without ties to a thread (checkpoint.h); the session it may hold is Send too.
unsafe impl Send for Checkpoint {}

impl Checkpoint {
    /// Loads a checkpoint file, with its external data file if it has one (wraps `OrtTrainingApi::LoadCheckpoint`).
    ///
    /// The file must not change during the call.
    ///
    /// # Errors
    /// No such file; not a checkpoint, a truncated or damaged one, one of another version: with file, expected and found.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        atomic_file::recover(path)?;
        let summary = CheckpointSummary::read(path)?;
        let c_path = c_path(path)?;
        Self::create(summary, |out| {
            // SAFETY: `out` receives a state that is ours.
            unsafe { call!(training.LoadCheckpoint(c_path.as_ptr(), out)) }
        })
        .with_context(|| format!("loading checkpoint {}", path.display()))
    }

    /// Loads a checkpoint from its bytes, which are copied (wraps `OrtTrainingApi::LoadCheckpointFromBuffer`).
    ///
    /// # Errors
    /// As [`load`](Self::load); a checkpoint with external data, which needs its file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let summary = CheckpointSummary::parse(bytes)?;
        // FlatBuffers reads aligned integers where it expects them.
        let mut aligned = Vec::new();
        let mut data = bytes.as_ptr();
        if data.align_offset(8) != 0 {
            aligned.resize(bytes.len().div_ceil(8), 0u64);
            // SAFETY: the new buffer has at least as many bytes, and the two do not overlap.
            unsafe {
                std::ptr::copy_nonoverlapping(data, aligned.as_mut_ptr().cast(), bytes.len());
            }
            data = aligned.as_ptr().cast();
        }
        Self::create(summary, |out| {
            // SAFETY: verified bytes that are read during the call only; `out` receives a state that is ours.
            unsafe { call!(training.LoadCheckpointFromBuffer(data.cast(), bytes.len(), out)) }
        })
        .context("loading checkpoint from bytes")
    }

    fn create(
        summary: CheckpointSummary,
        load: impl FnOnce(*mut *mut sys::OrtCheckpointState) -> Result<()>,
    ) -> Result<Self> {
        crate::api::ensure_training()?;
        // ONNX Runtime logs through its environment, which must exist before anything that may log.
        Environment::shared()?;
        let mut raw = std::ptr::null_mut();
        load(&mut raw)?;
        let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("LoadCheckpoint"))?;
        let properties = summary
            .properties
            .iter()
            .map(|(name, value)| (name.clone(), value.kind()))
            .collect();
        Ok(Self {
            retired: None,
            state: State(raw),
            parameters: summary.parameters,
            properties,
            nominal: summary.nominal,
            external_data: summary.external_data,
            moments: summary.moments,
            attached: false,
            optimizer_state_lost: false,
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::OrtCheckpointState {
        self.state.0.as_ptr()
    }

    /// Called before a session is built on it. The old session must go first: it resets a pointer in the state when it
    /// goes (module.cc, `~Module`), which would cut the new session's.
    pub(crate) fn begin_session(&mut self, has_optimizer: bool) {
        self.attached = false;
        let retired = self.retired.take();
        if retired.is_some_and(|retired| retired.has_device && self.moments > 0) {
            self.optimizer_state_lost = true;
        }
        if has_optimizer {
            self.optimizer_state_lost = false;
        }
    }

    pub(crate) fn session_built(&mut self) {
        self.attached = true;
    }

    pub(crate) fn retire(&mut self, session: SessionHandle) {
        self.retired = Some(session);
    }

    /// The parameters, in the order of the file: the trainable ones, then the frozen ones.
    #[must_use]
    pub fn parameters(&self) -> &[ParameterInfo] {
        &self.parameters
    }

    /// Whether it is nominal: names without data, waiting for
    /// [`copy_buffer_to_parameters`](crate::TrainingSession::copy_buffer_to_parameters).
    #[must_use]
    pub fn is_nominal(&self) -> bool {
        self.nominal
    }

    /// Whether large parameters lie in a second file, `<path>.data`.
    #[must_use]
    pub fn has_external_data(&self) -> bool {
        self.external_data
    }

    fn parameter_info(&self, name: &str) -> Result<&ParameterInfo> {
        self.parameters
            .iter()
            .find(|parameter| parameter.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = self
                    .parameters
                    .iter()
                    .map(|parameter| parameter.name.as_str())
                    .collect();
                Error::invalid_argument(format!(
                    "parameter {name:?}: expected one of {names:?}, found no such parameter"
                ))
            })
    }

    /// Fails unless the data of a parameter is there and can be copied. ONNX Runtime would fail as well, but leak.
    fn ensure_copies(&self, name: &str) -> Result<()> {
        if self.nominal {
            return Err(Error::invalid_argument(format!(
                "parameter {name:?}: the checkpoint is nominal, its parameters have no data yet"
            )));
        }
        if !self.attached {
            return Err(Error::invalid_argument(format!(
                "parameter {name:?}: expected a checkpoint that a training session has taken, found one without; \
                 ONNX Runtime copies parameters through the session"
            )));
        }
        Ok(())
    }

    /// Element type and dimensions of a parameter (wraps `OrtTrainingApi::GetParameterTypeAndShape`).
    ///
    /// # Errors
    /// No such parameter; a nominal checkpoint.
    pub fn parameter_type_and_shape(&self, name: &str) -> Result<(ElementType, Vec<usize>)> {
        let c_name = c_string("parameter name", name)?;
        let mut info = std::ptr::null_mut();
        // SAFETY: the state is alive; `info` receives an object that is ours.
        unsafe {
            call!(training.GetParameterTypeAndShape(self.as_ptr(), c_name.as_ptr(), &mut info))
                .with_context(|| format!("parameter {name:?}"))?;
        }
        TypeAndShape(info).read()
    }

    /// A copy of a parameter's elements (wraps `OrtTrainingApi::GetParameter`).
    ///
    /// # Errors
    /// No such parameter; no session has taken the checkpoint; a nominal checkpoint; a parameter of another type than
    /// float32, the only one that this call of ONNX Runtime returns.
    pub fn parameter(&self, name: &str) -> Result<Tensor<f32>> {
        let c_name = c_string("parameter name", name)?;
        let info = self.parameter_info(name)?;
        self.ensure_copies(name)?;
        if info.element_type != ElementType::Float32 {
            return Err(Error::invalid_argument(format!(
                "parameter {name:?}: expected float32, the only type that ONNX Runtime returns, found {}",
                info.element_type
            )));
        }
        let allocator = default_allocator()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the state and its session are alive; `raw` receives a value that is ours.
        unsafe {
            call!(training.GetParameter(self.as_ptr(), c_name.as_ptr(), allocator, &mut raw))
                .with_context(|| format!("parameter {name:?}"))?;
        }
        let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("GetParameter"))?;
        // SAFETY: new and ours.
        unsafe { Value::from_runtime(raw) }.into_tensor()
    }

    /// Replaces a parameter's elements (wraps `OrtTrainingApi::UpdateParameter`).
    ///
    /// # Errors
    /// No such parameter; another element type or shape; no session has taken the checkpoint; a nominal checkpoint.
    pub fn update_parameter(&mut self, name: &str, elements: &dyn AsValue) -> Result<()> {
        let c_name = c_string("parameter name", name)?;
        let info = self.parameter_info(name)?;
        self.ensure_copies(name)?;
        let value = elements.as_value();
        let (element_type, shape) = (value.element_type()?, value.shape()?);
        if element_type != info.element_type || shape != info.shape() {
            return Err(Error::invalid_argument(format!(
                "parameter {name:?}: expected {} {}, found {element_type} {}",
                info.element_type,
                Dimensions(&info.shape),
                Dimensions(shape)
            )));
        }
        // SAFETY: the state, its session and the value are alive. The value is read only (module.cc, `CopyFrom`).
        unsafe {
            call!(training.UpdateParameter(self.as_ptr(), c_name.as_ptr(), value.as_ptr()))
                .with_context(|| format!("parameter {name:?}"))
        }
    }

    /// Names and kinds of the properties, by name.
    pub fn properties(&self) -> impl Iterator<Item = (&str, PropertyKind)> {
        self.properties
            .iter()
            .map(|(name, kind)| (name.as_str(), *kind))
    }

    /// The value of a property, none if there is none of this name (wraps `OrtTrainingApi::GetProperty`).
    ///
    /// # Errors
    /// A NUL in the name.
    pub fn property(&self, name: &str) -> Result<Option<Property>> {
        let c_name = c_string("property name", name)?;
        if !self.properties.contains_key(name) {
            return Ok(None);
        }
        let allocator = default_allocator()?;
        let mut kind = sys::OrtPropertyType(u32::MAX);
        let mut value: *mut c_void = std::ptr::null_mut();
        // SAFETY: the state is alive; `value` receives memory that the guard frees.
        let value = unsafe {
            call!(training.GetProperty(
                self.as_ptr(),
                c_name.as_ptr(),
                allocator,
                &mut kind,
                &mut value,
            ))
            .with_context(|| format!("property {name:?}"))?;
            Allocated::new(value, allocator)
        };
        let found = value.pointer;
        if found.is_null() {
            return Err(Error::invalid_argument(format!(
                "property {name:?}: no value"
            )));
        }
        // SAFETY: ONNX Runtime allocated one value of the kind that it reports.
        unsafe {
            match kind.0 {
                0 => Ok(Some(Property::Int(found.cast::<i64>().read()))),
                1 => Ok(Some(Property::Float(found.cast::<f32>().read()))),
                2 => {
                    let text = CStr::from_ptr(found.cast());
                    let text = text.to_str().map_err(|_| {
                        Error::invalid_argument(format!("property {name:?}: expected UTF-8"))
                    })?;
                    Ok(Some(Property::String(text.to_owned())))
                }
                other => Err(Error::invalid_argument(format!(
                    "property {name:?}: expected an int, float or string, found kind {other}"
                ))),
            }
        }
    }

    fn typed(&self, name: &str, wanted: PropertyKind) -> Result<Option<Property>> {
        match self.property(name)? {
            Some(found) if found.kind() != wanted => Err(Error::invalid_argument(format!(
                "property {name:?}: expected kind {wanted}, found {}",
                found.kind()
            ))),
            found => Ok(found),
        }
    }

    /// The value of an int property, none if there is none of this name.
    ///
    /// # Errors
    /// It is of another kind.
    pub fn int_property(&self, name: &str) -> Result<Option<i64>> {
        match self.typed(name, PropertyKind::Int)? {
            Some(Property::Int(value)) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// The value of a float property, none if there is none of this name.
    ///
    /// # Errors
    /// It is of another kind.
    pub fn float_property(&self, name: &str) -> Result<Option<f32>> {
        match self.typed(name, PropertyKind::Float)? {
            Some(Property::Float(value)) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// The value of a string property, none if there is none of this name.
    ///
    /// # Errors
    /// It is of another kind.
    pub fn string_property(&self, name: &str) -> Result<Option<String>> {
        match self.typed(name, PropertyKind::String)? {
            Some(Property::String(value)) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// Adds a property (wraps `OrtTrainingApi::AddProperty`).
    ///
    /// # Errors
    /// There is one of this name, which [`set_property`](Self::set_property) would replace; a NUL in name or value.
    pub fn add_property(&mut self, name: &str, value: impl Into<Property>) -> Result<()> {
        if let Some(kind) = self.properties.get(name) {
            return Err(Error::invalid_argument(format!(
                "property {name:?}: expected a new name, found a {kind} property of this name"
            )));
        }
        self.set_property(name, value)
    }

    /// Adds a property or replaces the one of this name, whatever its kind (wraps `OrtTrainingApi::AddProperty`).
    ///
    /// # Errors
    /// A NUL in name or value.
    pub fn set_property(&mut self, name: &str, value: impl Into<Property>) -> Result<()> {
        let c_name = c_string("property name", name)?;
        let mut value = value.into();
        let text;
        let (kind, pointer): (u32, *mut c_void) = match &mut value {
            Property::Int(value) => (0, std::ptr::from_mut(value).cast()),
            Property::Float(value) => (1, std::ptr::from_mut(value).cast()),
            Property::String(value) => {
                text = c_string("property value", value)?;
                (2, text.as_ptr().cast_mut().cast())
            }
        };
        // SAFETY: the state is alive; name and value are copied, the value is of the kind that is passed.
        unsafe {
            call!(training.AddProperty(
                self.as_ptr(),
                c_name.as_ptr(),
                sys::OrtPropertyType(kind),
                pointer,
            ))
            .with_context(|| format!("property {name:?}"))?;
        }
        self.properties.insert(name.to_owned(), value.kind());
        Ok(())
    }

    /// Saves to `path`, atomically (wraps `OrtTrainingApi::SaveCheckpoint`).
    ///
    /// The file is written beside the target under a hidden name, flushed, read back and verified, renamed over the
    /// target, and the folder is flushed. Killed or out of space at any moment, the old file or the new one is there,
    /// whole. A checkpoint with external data is a pair of files, which no file system replaces at once: a save that is
    /// killed between the two renames is finished by the next [`load`](Self::load) or `save` of that path.
    ///
    /// # Errors
    /// The folder is missing or not writable, the disk is full; more than 2 GiB without external data, which ONNX
    /// Runtime's format cannot hold. The old file is then untouched.
    pub fn save(&self, path: impl AsRef<Path>, optimizer_state: OptimizerState) -> Result<()> {
        let path = path.as_ref();
        self.save_to(path, optimizer_state)
            .with_context(|| format!("saving checkpoint {}", path.display()))
    }

    fn save_to(&self, path: &Path, optimizer_state: OptimizerState) -> Result<()> {
        let include = optimizer_state == OptimizerState::Include;
        if include && self.optimizer_state_lost {
            return Err(Error::invalid_argument(
                "the optimizer's state lies in device memory of a session that is gone; \
                 save before building a session without an optimizer model, or without the optimizer's state",
            ));
        }
        self.ensure_size(include)?;
        atomic_file::recover(path)?;
        let sibling = Sibling::new(path)?;
        let c_sibling = c_path(&sibling.path)?;
        // SAFETY: the state is alive, and so is the session that it copies device memory with, if any.
        unsafe { call!(training.SaveCheckpoint(self.as_ptr(), c_sibling.as_ptr(), include))? };
        // ONNX Runtime does not see errors of the last flush (checkpoint.cc, `ToFile`).
        let written =
            CheckpointSummary::read(&sibling.path).context("reading back what was written")?;
        if written.parameters.len() != self.parameters.len() {
            return Err(Error::invalid_argument(format!(
                "reading back what was written: expected {} parameters, found {}",
                self.parameters.len(),
                written.parameters.len()
            )));
        }
        if self.external_data {
            sibling.commit_pair()
        } else {
            sibling.commit()
        }
    }

    /// ONNX Runtime does not check the limit of its format.
    fn ensure_size(&self, include_optimizer_state: bool) -> Result<()> {
        let bytes = |trainable_only: bool| -> u64 {
            self.parameters
                .iter()
                .filter(|parameter| parameter.requires_grad || !trainable_only)
                .filter_map(|parameter| {
                    parameter.element_type.byte_count(parameter.element_count())
                })
                .map(|bytes| bytes as u64)
                .sum()
        };
        let mut total = if self.external_data { 0 } else { bytes(false) };
        if include_optimizer_state {
            total += bytes(true) * self.moments as u64;
        }
        if total > MAX_FILE_BYTES {
            return Err(Error::invalid_argument(format!(
                "expected at most {MAX_FILE_BYTES} bytes, the limit of ONNX Runtime's checkpoint format, found {total}; \
                 start from a checkpoint with external data, or save without the optimizer's state"
            )));
        }
        Ok(())
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("parameters", &self.parameters.len())
            .field("properties", &self.properties)
            .field("is_nominal", &self.nominal)
            .finish_non_exhaustive()
    }
}

/// The checkpoint of a session that lives, for changing it.
///
/// It is no `&mut Checkpoint`, because with one the checkpoints of two sessions could be swapped, and each would then
/// outlive what it trains in.
#[derive(Debug)]
pub struct CheckpointMut<'a>(pub(crate) &'a mut Checkpoint);

impl CheckpointMut<'_> {
    /// As [`Checkpoint::update_parameter`].
    ///
    /// # Errors
    /// As there.
    pub fn update_parameter(&mut self, name: &str, elements: &dyn AsValue) -> Result<()> {
        self.0.update_parameter(name, elements)
    }

    /// As [`Checkpoint::add_property`].
    ///
    /// # Errors
    /// As there.
    pub fn add_property(&mut self, name: &str, value: impl Into<Property>) -> Result<()> {
        self.0.add_property(name, value)
    }

    /// As [`Checkpoint::set_property`].
    ///
    /// # Errors
    /// As there.
    pub fn set_property(&mut self, name: &str, value: impl Into<Property>) -> Result<()> {
        self.0.set_property(name, value)
    }
}

impl std::ops::Deref for CheckpointMut<'_> {
    type Target = Checkpoint;

    fn deref(&self) -> &Checkpoint {
        self.0
    }
}
