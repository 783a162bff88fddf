//! What a training session holds: ONNX Runtime's object, and the inputs and outputs of its models.

use std::ffi::c_char;
use std::ptr::NonNull;
use std::sync::Arc;

use ort_training_sys as sys;

use crate::api::release;
use crate::class_labels::LabelRange;
use crate::cuda::CudaStream;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::model_io::IoInfo;
use crate::onnx_model::OnnxModel;
use crate::session_options::SessionOptions;
use crate::text::allocated_string;
use crate::value::{AsValue, Identity};

/// An `OrtTrainingSession` that is ours, with the bytes that it refers to.
pub(crate) struct SessionHandle {
    raw: NonNull<sys::OrtTrainingSession>,
    /// Released after the session.
    _buffers: Vec<Vec<u8>>,
    pub(crate) has_device: bool,
    /// As above.
    _streams: Vec<CudaStream>,
}

impl SessionHandle {
    pub(crate) fn new(
        raw: NonNull<sys::OrtTrainingSession>,
        buffers: Vec<Vec<u8>>,
        options: &SessionOptions,
    ) -> Self {
        Self {
            raw,
            _buffers: buffers,
            has_device: options.has_device(),
            _streams: options.streams().to_vec(),
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::OrtTrainingSession {
        self.raw.as_ptr()
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        // SAFETY: ours, released once, before its checkpoint state and its bytes.
        unsafe { release!(training.ReleaseTrainingSession(self.raw.as_ptr())) };
    }
}

/// Inputs and outputs of a training or evaluation model, as ONNX Runtime names them.
pub(crate) struct StepIo {
    pub(crate) inputs: Vec<IoInfo>,
    pub(crate) outputs: Vec<IoInfo>,
    pub(crate) output_names: Arc<[String]>,
    /// Which outputs are inputs of the model handed through.
    pub(crate) shared: Vec<bool>,
    /// Whether the first output is a float32. ONNX Runtime holds a model to the types that it declares when it loads it
    /// (graph.cc, `InferAndVerifyTypeMatch`).
    pub(crate) loss_is_f32: bool,
    pub(crate) labels: Vec<LabelRange>,
}

type CountFunction =
    unsafe extern "C" fn(*const sys::OrtTrainingSession, *mut usize) -> sys::OrtStatusPtr;
type NameFunction = unsafe extern "C" fn(
    *const sys::OrtTrainingSession,
    usize,
    *mut sys::OrtAllocator,
    *mut *mut c_char,
) -> sys::OrtStatusPtr;

/// The names that ONNX Runtime lists. An index beyond the count ends the process (the C++ function is `noexcept` and
/// throws), so it never leaves this loop.
fn listed(
    session: &SessionHandle,
    what: &str,
    count: Result<CountFunction>,
    name: Result<NameFunction>,
) -> Result<Vec<String>> {
    let (count_function, name_function) = (count?, name?);
    let mut count = 0;
    // SAFETY: the session is alive.
    unsafe { crate::api::check(count_function(session.as_ptr(), &mut count))? };
    (0..count)
        .map(|index| {
            allocated_string(what, |allocator, out| {
                // SAFETY: the session is alive and the index below the count.
                unsafe { crate::api::check(name_function(session.as_ptr(), index, allocator, out)) }
            })
        })
        .collect()
}

/// The parsed infos in ONNX Runtime's order; it is the authority on the names.
fn matched(what: &str, names: &[String], parsed: &[IoInfo]) -> Result<Vec<IoInfo>> {
    names
        .iter()
        .map(|name| {
            parsed
                .iter()
                .find(|info| info.name == *name)
                .cloned()
                .ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "{what}: ONNX Runtime names {name:?}, which the model's bytes do not have"
                    ))
                })
        })
        .collect()
}

impl StepIo {
    pub(crate) fn training(
        session: &SessionHandle,
        model: &OnnxModel,
        inputs: Vec<IoInfo>,
        outputs: Vec<IoInfo>,
    ) -> Result<Self> {
        // SAFETY: reads two function pointers of the table.
        let (input_names, output_names) = unsafe {
            use crate::api::entry;
            (
                listed(
                    session,
                    "training model input",
                    entry!(training.TrainingSessionGetTrainingModelInputCount),
                    entry!(training.TrainingSessionGetTrainingModelInputName),
                )?,
                listed(
                    session,
                    "training model output",
                    entry!(training.TrainingSessionGetTrainingModelOutputCount),
                    entry!(training.TrainingSessionGetTrainingModelOutputName),
                )?,
            )
        };
        Self::new(
            "training model",
            model,
            &input_names,
            output_names,
            &inputs,
            &outputs,
        )
    }

    pub(crate) fn evaluation(
        session: &SessionHandle,
        model: &OnnxModel,
        inputs: Vec<IoInfo>,
    ) -> Result<Self> {
        // SAFETY: reads two function pointers of the table.
        let (input_names, output_names) = unsafe {
            use crate::api::entry;
            (
                listed(
                    session,
                    "evaluation model input",
                    entry!(training.TrainingSessionGetEvalModelInputCount),
                    entry!(training.TrainingSessionGetEvalModelInputName),
                )?,
                listed(
                    session,
                    "evaluation model output",
                    entry!(training.TrainingSessionGetEvalModelOutputCount),
                    entry!(training.TrainingSessionGetEvalModelOutputName),
                )?,
            )
        };
        Self::new(
            "evaluation model",
            model,
            &input_names,
            output_names,
            &inputs,
            &model.outputs,
        )
    }

    fn new(
        what: &str,
        model: &OnnxModel,
        input_names: &[String],
        output_names: Vec<String>,
        inputs: &[IoInfo],
        outputs: &[IoInfo],
    ) -> Result<Self> {
        let inputs = matched(what, input_names, inputs)?;
        let outputs = matched(what, &output_names, outputs)?;
        let shared = output_names
            .iter()
            .map(|name| model.input(name).is_some())
            .collect();
        let loss_is_f32 =
            outputs.first().and_then(IoInfo::element_type) == Some(ElementType::Float32);
        let labels = model.labels.clone();
        Ok(Self {
            inputs,
            outputs,
            output_names: output_names.into(),
            shared,
            loss_is_f32,
            labels,
        })
    }
}

pub(crate) struct EvaluationModel {
    pub(crate) io: StepIo,
    pub(crate) model: OnnxModel,
}

/// Inputs that were checked and may be fed again.
pub(crate) struct Fed {
    /// Theirs are used during a call that borrows the values, only.
    pub(crate) pointers: Vec<*const sys::OrtValue>,
    identities: Vec<Option<Identity>>,
}

impl Fed {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self {
            pointers: Vec::with_capacity(count),
            identities: Vec::with_capacity(count),
        }
    }

    /// Whether `inputs` are the very values that were set, if any were. Nothing but its elements changes in a value while it lives.
    #[inline]
    pub(crate) fn are(&self, inputs: &[&dyn AsValue]) -> bool {
        !inputs.is_empty()
            && self.identities.len() == inputs.len()
            && self
                .identities
                .iter()
                .zip(inputs)
                .all(|(known, input)| known.is_some() && *known == input.as_value().identity())
    }

    pub(crate) fn set(&mut self, inputs: &[&dyn AsValue]) {
        self.pointers.clear();
        self.identities.clear();
        for input in inputs {
            let value = input.as_value();
            self.pointers.push(value.as_ptr().cast_const());
            self.identities.push(value.identity());
        }
    }
}
