//! Inference sessions: enough to run and verify what was trained.

use std::collections::BTreeSet;
use std::ffi::{CString, c_char};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use ort_training_sys as sys;

use crate::api::{call, release};
use crate::class_labels::{LabelRange, check_labels};
use crate::cuda::CudaStream;
use crate::element::ElementType;
use crate::environment::Environment;
use crate::error::{Context, Error, Result};
use crate::model_io::{Dimension, Empty, IoInfo, check_inputs, check_places, order_inputs};
use crate::onnx_model::{ModelSource, OnnxModel};
use crate::outputs::{OutputSlots, Outputs};
use crate::prepacking;
use crate::run_options::RunOptions;
use crate::session_options::SessionOptions;
use crate::text::{allocated_string, c_path, c_string};
use crate::value::{AsValue, read_type_and_shape};

/// A session that runs a model (wraps `OrtSession`).
///
/// Any number of threads may run it at the same time (inference_session.h: "Multiple threads are allowed to run this
/// function; hence its thread-safe").
pub struct InferenceSession {
    raw: NonNull<sys::OrtSession>,
    inputs: Vec<IoInfo>,
    outputs: Vec<IoInfo>,
    input_names: Vec<CString>,
    output_names: Vec<CString>,
    names: Arc<[String]>,
    shared: Vec<bool>,
    labels: Vec<LabelRange>,
    has_device: bool,
    /// Dropped after the session that runs on them was released.
    _streams: Vec<CudaStream>,
}

// SAFETY: see the documentation of the type.
unsafe impl Send for InferenceSession {}
// SAFETY: as above; everything else is constant.
unsafe impl Sync for InferenceSession {}

impl InferenceSession {
    /// Starts building a session in `environment`.
    pub fn builder(environment: &Environment) -> InferenceSessionBuilder {
        InferenceSessionBuilder {
            environment: *environment,
            options: None,
            model: None,
        }
    }

    pub(crate) fn as_ptr(&self) -> *const sys::OrtSession {
        self.raw.as_ptr()
    }

    fn new(
        raw: NonNull<sys::OrtSession>,
        labels: Vec<LabelRange>,
        options: &SessionOptions,
    ) -> Result<Self> {
        let mut session = Self {
            raw,
            inputs: Vec::new(),
            outputs: Vec::new(),
            input_names: Vec::new(),
            output_names: Vec::new(),
            names: Arc::new([]),
            shared: Vec::new(),
            labels,
            has_device: options.has_device(),
            _streams: options.streams().to_vec(),
        };
        let pointer = session.raw.as_ptr();
        let (mut input_count, mut output_count) = (0, 0);
        // SAFETY: the session is alive.
        unsafe {
            call!(ort.SessionGetInputCount(pointer, &mut input_count))?;
            call!(ort.SessionGetOutputCount(pointer, &mut output_count))?;
        }
        for index in 0..input_count {
            let name = allocated_string("input", |allocator, out| {
                // SAFETY: the session is alive and the index below the count.
                unsafe { call!(ort.SessionGetInputName(pointer, index, allocator, out)) }
            })?;
            let mut info = std::ptr::null_mut();
            // SAFETY: as above; the info is ours until the guard releases it.
            let info = unsafe {
                call!(ort.SessionGetInputTypeInfo(pointer, index, &mut info))?;
                TypeInfo(info)
            };
            session.inputs.push(info.describe(name)?);
        }
        for index in 0..output_count {
            let name = allocated_string("output", |allocator, out| {
                // SAFETY: the session is alive and the index below the count.
                unsafe { call!(ort.SessionGetOutputName(pointer, index, allocator, out)) }
            })?;
            let mut info = std::ptr::null_mut();
            // SAFETY: as above.
            let info = unsafe {
                call!(ort.SessionGetOutputTypeInfo(pointer, index, &mut info))?;
                TypeInfo(info)
            };
            session.outputs.push(info.describe(name)?);
        }
        let c_names = |infos: &[IoInfo]| -> Result<Vec<CString>> {
            infos
                .iter()
                .map(|info| c_string("name", &info.name))
                .collect()
        };
        session.input_names = c_names(&session.inputs)?;
        session.output_names = c_names(&session.outputs)?;
        session.names = session
            .outputs
            .iter()
            .map(|info| info.name.clone())
            .collect();
        let inputs: BTreeSet<&str> = session
            .inputs
            .iter()
            .map(|info| info.name.as_str())
            .collect();
        session.shared = session
            .outputs
            .iter()
            .map(|info| inputs.contains(info.name.as_str()))
            .collect();
        Ok(session)
    }

    /// The inputs, in the model's order (wraps `OrtApi::SessionGetInputName` and `OrtApi::SessionGetInputTypeInfo`).
    #[must_use]
    pub fn inputs(&self) -> &[IoInfo] {
        &self.inputs
    }

    /// The outputs, in the model's order (wraps `OrtApi::SessionGetOutputName` and `OrtApi::SessionGetOutputTypeInfo`).
    #[must_use]
    pub fn outputs(&self) -> &[IoInfo] {
        &self.outputs
    }

    /// Runs the model and returns all its outputs (wraps `OrtApi::Run`).
    ///
    /// Inputs are those of [`inputs`](Self::inputs), in that order; they are read during the call only.
    ///
    /// # Errors
    /// An input of the wrong number, type, rank or dimension: with name, expected and found; what ONNX Runtime reports.
    pub fn run(&self, inputs: &[&dyn AsValue]) -> Result<Outputs> {
        self.run_inner(inputs, None)
    }

    /// As [`run`](Self::run), with run options.
    ///
    /// # Errors
    /// As there; the run was ended by [`RunOptions::terminate`].
    pub fn run_with(&self, inputs: &[&dyn AsValue], run_options: &RunOptions) -> Result<Outputs> {
        self.run_inner(inputs, Some(run_options))
    }

    /// As [`run`](Self::run), with inputs by name in any order.
    ///
    /// # Errors
    /// As there; a name that is missing, unknown or given twice.
    pub fn run_named(&self, inputs: &[(&str, &dyn AsValue)]) -> Result<Outputs> {
        let ordered = order_inputs("inference", &self.inputs, inputs)?;
        self.run_inner(&ordered, None)
    }

    fn run_inner(
        &self,
        inputs: &[&dyn AsValue],
        run_options: Option<&RunOptions>,
    ) -> Result<Outputs> {
        const CALL: &str = "inference";
        check_inputs(CALL, &self.inputs, inputs, Empty::Allowed)?;
        check_places(CALL, self.has_device, &self.inputs, inputs)?;
        check_labels(CALL, &self.labels, &self.inputs, |index| inputs[index])?;
        let values: Vec<*const sys::OrtValue> = inputs
            .iter()
            .map(|input| input.as_value().as_ptr().cast_const())
            .collect();
        let pointers = |names: &[CString]| -> Vec<*const c_char> {
            names.iter().map(|name| name.as_ptr()).collect()
        };
        let (input_names, output_names) =
            (pointers(&self.input_names), pointers(&self.output_names));
        let mut outputs = OutputSlots::new(self.outputs.len());
        // SAFETY: the session and the inputs are alive; all lists have the lengths that are passed; ONNX Runtime drops its
        // references to the inputs before it returns.
        unsafe {
            call!(ort.Run(
                self.raw.as_ptr(),
                RunOptions::pointer(run_options),
                input_names.as_ptr(),
                values.as_ptr(),
                values.len(),
                output_names.as_ptr(),
                output_names.len(),
                outputs.as_mut_ptr(),
            ))
            .context(CALL)?;
        }
        outputs.take(&self.names, &self.shared, false)
    }
}

impl Drop for InferenceSession {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { release!(ort.ReleaseSession(self.raw.as_ptr())) };
    }
}

impl fmt::Debug for InferenceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InferenceSession")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

struct TypeInfo(*mut sys::OrtTypeInfo);

impl TypeInfo {
    fn describe(&self, name: String) -> Result<IoInfo> {
        let mut tensor = std::ptr::null();
        // SAFETY: the info is alive; what it is cast to belongs to it, and is NULL for anything but a tensor.
        unsafe { call!(ort.CastTypeInfoToTensorInfo(self.0, &mut tensor))? };
        if tensor.is_null() {
            return Ok(IoInfo {
                name,
                element_type: None,
                dimensions: None,
            });
        }
        let mut known = true;
        // SAFETY: as above. Names of dimensions belong to the info and are copied.
        unsafe {
            let (element_type, lengths) = read_type_and_shape(tensor)?;
            let mut names: Vec<*const c_char> = vec![std::ptr::null(); lengths.len()];
            call!(ort.GetSymbolicDimensions(tensor, names.as_mut_ptr(), names.len()))?;
            let dimensions: Vec<Dimension> = lengths
                .iter()
                .zip(&names)
                .map(|(&length, &name)| match usize::try_from(length) {
                    Ok(length) => Dimension::Fixed(length),
                    Err(_) if name.is_null() => Dimension::Symbolic(String::new()),
                    Err(_) => Dimension::Symbolic(
                        std::ffi::CStr::from_ptr(name)
                            .to_string_lossy()
                            .into_owned(),
                    ),
                })
                .collect();
            // The C API shows a tensor of unknown rank as a scalar.
            if dimensions.is_empty() {
                known = false;
            }
            Ok(IoInfo {
                name,
                element_type: (element_type != ElementType::Other(0)).then_some(element_type),
                dimensions: known.then_some(dimensions),
            })
        }
    }
}

impl Drop for TypeInfo {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { release!(ort.ReleaseTypeInfo(self.0)) };
    }
}

/// Collects what an [`InferenceSession`] is built from.
#[derive(Debug)]
#[must_use]
pub struct InferenceSessionBuilder {
    environment: Environment,
    options: Option<SessionOptions>,
    model: Option<ModelSource>,
}

impl InferenceSessionBuilder {
    /// Settings of the session.
    pub fn options(mut self, options: SessionOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// The model, from a file.
    pub fn model(mut self, path: impl Into<PathBuf>) -> Self {
        self.model = Some(ModelSource::File(path.into()));
        self
    }

    /// The model, from its bytes.
    pub fn model_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.model = Some(ModelSource::Bytes(bytes.into()));
        self
    }

    /// Builds the session (wraps `OrtApi::CreateSession`, and for bytes `OrtApi::CreateSessionFromArray`).
    ///
    /// A model with a constant matrix of 2 GiB or more runs with `session.disable_prepacking`: ONNX Runtime reads outside of
    /// its memory when it packs one.
    ///
    /// # Errors
    /// No model was given; it is missing, no model or truncated; what ONNX Runtime refuses.
    pub fn build(self) -> Result<InferenceSession> {
        let model = self.model.ok_or_else(|| {
            Error::invalid_argument("inference session: expected a model, found none")
        })?;
        let read = OnnxModel::read(&model, "model")?;
        let mut options = match self.options {
            Some(options) => options,
            None => SessionOptions::new()?,
        };
        if read.too_large_to_pack {
            options = options.with_config_entry(prepacking::DISABLE, "1")?;
        }
        let labels = read.labels;
        let mut raw = std::ptr::null_mut();
        let subject = model.subject("inference session of model");
        match &model {
            ModelSource::File(path) => {
                let path = c_path(Path::new(path))?;
                // SAFETY: environment and options are alive; the path is copied; `raw` receives a session that is ours.
                unsafe {
                    call!(ort.CreateSession(
                        self.environment.as_ptr(),
                        path.as_ptr(),
                        options.as_ptr(),
                        &mut raw,
                    ))
                    .context(&subject)?;
                }
            }
            ModelSource::Bytes(bytes) => {
                // SAFETY: as above; the bytes are parsed during the call.
                unsafe {
                    call!(ort.CreateSessionFromArray(
                        self.environment.as_ptr(),
                        bytes.as_ptr().cast(),
                        bytes.len(),
                        options.as_ptr(),
                        &mut raw,
                    ))
                    .context(&subject)?;
                }
            }
        }
        let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("CreateSession"))?;
        InferenceSession::new(raw, labels, &options)
    }
}
