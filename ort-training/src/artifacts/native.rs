//! The C ABI of the artifact maker inside the ONNX Runtime library (`ort_training_artifacts.h`).
//!
//! It is looked up in the running process, not linked: a program runs with an ONNX Runtime that lacks it, and is told
//! so only when it makes artifacts.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Deref;
use std::ptr;

use super::error::{ArtifactsError, RefusedNode, Result};

const API_VERSION: u32 = 1;
const STATUS_OK: c_int = 0;
const STATUS_NOT_DIFFERENTIABLE: c_int = 2;

#[repr(C)]
struct Tensor {
    name: *const c_char,
    data_type: i32,
    dims: *const i64,
    dim_count: usize,
    data: *const c_void,
    byte_count: usize,
}

#[repr(C)]
struct GradientOptions {
    model: *const c_void,
    model_size: usize,
    loss_name: *const c_char,
    parameter_names: *const *const c_char,
    parameter_count: usize,
    optimize: i32,
    check_kernels: i32,
}

#[repr(C)]
struct CheckpointOptions {
    trainable: *const Tensor,
    trainable_count: usize,
    frozen: *const Tensor,
    frozen_count: usize,
    path: *const c_char,
    nominal: i32,
    external_data: i32,
}

#[repr(C)]
struct Api {
    version: u32,
    release: unsafe extern "C" fn(*mut c_void),
    infer_types: unsafe extern "C" fn(
        *const c_void,
        usize,
        *mut *mut c_void,
        *mut usize,
        *mut *mut c_char,
    ) -> c_int,
    build_gradient_model: unsafe extern "C" fn(
        *const GradientOptions,
        *mut *mut c_void,
        *mut usize,
        *mut *mut c_char,
    ) -> c_int,
    save_checkpoint: unsafe extern "C" fn(*const CheckpointOptions, *mut *mut c_char) -> c_int,
    inline_functions: unsafe extern "C" fn(
        *const c_void,
        usize,
        *mut *mut c_void,
        *mut usize,
        *mut *mut c_char,
    ) -> c_int,
    list_differentiable_operators:
        unsafe extern "C" fn(*mut *mut c_char, *mut *mut c_char) -> c_int,
}

/// Memory that the library allocated.
pub(crate) struct Buffer {
    data: *mut c_void,
    size: usize,
    release: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the buffer owns its memory, which no other thread knows of, and `release` is the C library's `free`.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for Buffer {}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the library handed out `size` initialized bytes at `data`, owned by this buffer until it is dropped.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.size) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `data` came from the same library and is given back once.
        unsafe { (self.release)(self.data) }
    }
}

/// A parameter's value for a checkpoint; the data is borrowed.
pub(crate) struct CheckpointTensor<'a> {
    pub(crate) name: &'a str,
    pub(crate) data_type: i32,
    pub(crate) dims: &'a [i64],
    pub(crate) data: &'a [u8],
}

/// `OrtTrainingArtifactsGetApi` of the ONNX Runtime in this process, or null.
#[cfg(not(linked_artifact_maker))]
fn symbol() -> *mut c_void {
    let name = c"OrtTrainingArtifactsGetApi";
    // SAFETY: the name is a C string; dlsym has no other precondition.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

#[cfg(linked_artifact_maker)]
fn symbol() -> *mut c_void {
    unsafe extern "C" {
        fn OrtTrainingArtifactsGetApi(version: u32) -> *const Api;
    }
    OrtTrainingArtifactsGetApi as *mut c_void
}

/// The functions of the library in this process.
#[derive(Clone, Copy)]
pub(crate) struct Native(&'static Api);

impl Native {
    /// Finds the functions.
    ///
    /// # Errors
    /// The ONNX Runtime in this process was built without them, or with another version of them.
    pub(crate) fn get() -> Result<Self> {
        type GetApi = unsafe extern "C" fn(u32) -> *const Api;
        let symbol = symbol();
        if symbol.is_null() {
            return Err(ArtifactsError::Unavailable(
                "this ONNX Runtime was built without the artifact maker: build it with the feature `artifacts` \
                 (ORT_TRAINING_ARTIFACTS=ON), or make the artifacts with a build that has it"
                    .to_owned(),
            ));
        }
        // SAFETY: the symbol is the function that ort_training_artifacts.h declares; its name is ours alone.
        let get_api: GetApi = unsafe { std::mem::transmute::<*mut c_void, GetApi>(symbol) };
        // SAFETY: the function takes any version.
        let api = unsafe { get_api(API_VERSION) };
        // SAFETY: not NULL, it points to a constant table of the library, which stays loaded.
        match unsafe { api.as_ref() } {
            Some(api) if api.version == API_VERSION => Ok(Self(api)),
            _ => Err(ArtifactsError::Unavailable(format!(
                "the artifact maker of this ONNX Runtime does not have version {API_VERSION}, which this crate needs"
            ))),
        }
    }

    fn text(self, message: *mut c_char) -> String {
        if message.is_null() {
            return "no message (out of memory)".to_owned();
        }
        // SAFETY: the library hands out NUL-terminated text.
        let text = unsafe { CStr::from_ptr(message) }
            .to_string_lossy()
            .into_owned();
        // SAFETY: it is the library's, and given back once.
        unsafe { (self.0.release)(message.cast()) };
        text
    }

    fn check(self, status: c_int, message: *mut c_char) -> Result<()> {
        match status {
            STATUS_OK => Ok(()),
            STATUS_NOT_DIFFERENTIABLE => Err(ArtifactsError::NotDifferentiable(refused_nodes(
                &self.text(message),
            ))),
            _ => Err(ArtifactsError::Runtime(self.text(message))),
        }
    }

    fn buffer(self, data: *mut c_void, size: usize) -> Buffer {
        Buffer {
            data,
            size,
            release: self.0.release,
        }
    }

    /// The model with the types of all values in `graph.value_info`.
    pub(crate) fn infer_types(self, model: &[u8]) -> Result<Buffer> {
        let (mut data, mut size, mut message) = (ptr::null_mut(), 0, ptr::null_mut());
        // SAFETY: the model is readable for its length; the out pointers are valid for writes.
        let status = unsafe {
            (self.0.infer_types)(
                model.as_ptr().cast(),
                model.len(),
                &mut data,
                &mut size,
                &mut message,
            )
        };
        self.check(status, message)?;
        Ok(self.buffer(data, size))
    }

    /// The model with calls of its functions replaced by their nodes.
    pub(crate) fn inline_functions(self, model: &[u8]) -> Result<Buffer> {
        let (mut data, mut size, mut message) = (ptr::null_mut(), 0, ptr::null_mut());
        // SAFETY: the model is readable for its length; the out pointers are valid for writes.
        let status = unsafe {
            (self.0.inline_functions)(
                model.as_ptr().cast(),
                model.len(),
                &mut data,
                &mut size,
                &mut message,
            )
        };
        self.check(status, message)?;
        Ok(self.buffer(data, size))
    }

    /// The model with its gradient graph.
    pub(crate) fn build_gradient_model(
        self,
        model: &[u8],
        loss: &str,
        parameters: &[&str],
    ) -> Result<Buffer> {
        let loss = c_string(loss)?;
        let names = parameters
            .iter()
            .map(|name| c_string(name))
            .collect::<Result<Vec<_>>>()?;
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let options = GradientOptions {
            model: model.as_ptr().cast(),
            model_size: model.len(),
            loss_name: loss.as_ptr(),
            parameter_names: pointers.as_ptr(),
            parameter_count: pointers.len(),
            optimize: 1,
            check_kernels: 1,
        };
        let (mut data, mut size, mut message) = (ptr::null_mut(), 0, ptr::null_mut());
        // SAFETY: everything that the options point to lives until after the call; the out pointers are valid.
        let status =
            unsafe { (self.0.build_gradient_model)(&options, &mut data, &mut size, &mut message) };
        self.check(status, message)?;
        Ok(self.buffer(data, size))
    }

    /// Writes a checkpoint file.
    pub(crate) fn save_checkpoint(
        self,
        trainable: &[CheckpointTensor<'_>],
        frozen: &[CheckpointTensor<'_>],
        path: &str,
        nominal: bool,
        external_data: bool,
    ) -> Result<()> {
        let path = c_string(path)?;
        let names = trainable
            .iter()
            .chain(frozen)
            .map(|t| c_string(t.name))
            .collect::<Result<Vec<_>>>()?;
        let tensors: Vec<_> = trainable
            .iter()
            .chain(frozen)
            .zip(&names)
            .map(|(tensor, name)| Tensor {
                name: name.as_ptr(),
                data_type: tensor.data_type,
                dims: tensor.dims.as_ptr(),
                dim_count: tensor.dims.len(),
                data: tensor.data.as_ptr().cast(),
                byte_count: tensor.data.len(),
            })
            .collect();
        let (trainable, frozen) = tensors.split_at(trainable.len());
        let options = CheckpointOptions {
            trainable: trainable.as_ptr(),
            trainable_count: trainable.len(),
            frozen: frozen.as_ptr(),
            frozen_count: frozen.len(),
            path: path.as_ptr(),
            nominal: nominal.into(),
            external_data: external_data.into(),
        };
        let mut message = ptr::null_mut();
        // SAFETY: everything that the options point to lives until after the call, and the library keeps none of it.
        let status = unsafe { (self.0.save_checkpoint)(&options, &mut message) };
        self.check(status, message)
    }

    /// Operators with a gradient: domain and name.
    pub(crate) fn differentiable_operators(self) -> Result<Vec<(String, String)>> {
        let (mut text, mut message) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: both pointers are valid for writes.
        let status = unsafe { (self.0.list_differentiable_operators)(&mut text, &mut message) };
        self.check(status, message)?;
        Ok(self
            .text(text)
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(domain, name)| (domain.to_owned(), name.to_owned()))
            .collect())
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|_| ArtifactsError::Name(format!("the name {text:?} holds a NUL character")))
}

fn refused_nodes(lines: &str) -> Vec<RefusedNode> {
    lines
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let kind = fields.next()?;
            let (domain, op_type, node) = (fields.next()?, fields.next()?, fields.next()?);
            let parameter = fields.next().filter(|p| !p.is_empty());
            Some(RefusedNode {
                domain: domain.to_owned(),
                op_type: op_type.to_owned(),
                node: node.to_owned(),
                parameter: parameter.map(str::to_owned),
                reason: match kind {
                    "kernel" => "ONNX Runtime has no CPU kernel for it",
                    _ => "ONNX Runtime has no gradient for it",
                }
                .to_owned(),
            })
        })
        .collect()
}
