//! A bare inference session over the C API: any model, any inputs, and the inputs' memory seen afterwards (training
//! models accumulate gradients in it).

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use ort_training_sys as sys;

/// A dense tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
    Bool(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dims: Vec<i64>,
    pub data: Data,
}

impl Tensor {
    pub fn f32(dims: &[i64], values: &[f64]) -> Self {
        Self {
            dims: dims.to_vec(),
            data: Data::F32(values.iter().map(|&v| v as f32).collect()),
        }
    }

    pub fn f64(dims: &[i64], values: &[f64]) -> Self {
        Self {
            dims: dims.to_vec(),
            data: Data::F64(values.to_vec()),
        }
    }

    pub fn i64(dims: &[i64], values: &[i64]) -> Self {
        Self {
            dims: dims.to_vec(),
            data: Data::I64(values.to_vec()),
        }
    }

    pub fn flag(value: bool) -> Self {
        Self {
            dims: vec![1],
            data: Data::Bool(vec![value.into()]),
        }
    }

    /// The values as double; panics for other than floats.
    pub fn values(&self) -> Vec<f64> {
        match &self.data {
            Data::F32(v) => v.iter().map(|&x| x.into()).collect(),
            Data::F64(v) => v.clone(),
            other => panic!("not floats: {other:?}"),
        }
    }

    /// A value over this tensor's memory.
    ///
    /// # Safety
    /// `memory` describes the host; the value is released before this tensor is gone.
    pub unsafe fn value(
        &mut self,
        memory: *const sys::OrtMemoryInfo,
    ) -> Result<*mut sys::OrtValue, String> {
        let dims = self.dims.clone();
        let (data, size, kind) = self.raw();
        let mut value = ptr::null_mut();
        // SAFETY: by the contract of this function; the shape is copied by the call.
        check(unsafe {
            api().CreateTensorWithDataAsOrtValue.expect("entry")(
                memory,
                data,
                size,
                dims.as_ptr(),
                dims.len(),
                kind,
                &mut value,
            )
        })?;
        Ok(value)
    }

    fn raw(&mut self) -> (*mut c_void, usize, sys::ONNXTensorElementDataType) {
        use sys::ONNXTensorElementDataType as T;
        match &mut self.data {
            Data::F32(v) => (
                v.as_mut_ptr().cast(),
                v.len() * 4,
                T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
            ),
            Data::F64(v) => (
                v.as_mut_ptr().cast(),
                v.len() * 8,
                T::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
            ),
            Data::I64(v) => (
                v.as_mut_ptr().cast(),
                v.len() * 8,
                T::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
            ),
            Data::Bool(v) => (
                v.as_mut_ptr().cast(),
                v.len(),
                T::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
            ),
        }
    }
}

pub fn api() -> &'static sys::OrtApi {
    // SAFETY: the tables are constants of the library that is linked and match its header.
    unsafe { &*((*sys::OrtGetApiBase()).GetApi.expect("GetApi"))(sys::ORT_API_VERSION) }
}

pub fn check(status: *mut sys::OrtStatus) -> Result<(), String> {
    if status.is_null() {
        return Ok(());
    }
    // SAFETY: a status that is not NULL has a message, and is released once.
    unsafe {
        let text = CStr::from_ptr(api().GetErrorMessage.expect("entry")(status))
            .to_string_lossy()
            .into_owned();
        api().ReleaseStatus.expect("entry")(status);
        Err(text)
    }
}

pub fn environment() -> *mut sys::OrtEnv {
    use std::sync::OnceLock;
    static ENVIRONMENT: OnceLock<usize> = OnceLock::new();
    *ENVIRONMENT.get_or_init(|| {
        let mut env = ptr::null_mut();
        // SAFETY: the out pointer is valid, the name a C string.
        check(unsafe {
            api().CreateEnv.expect("entry")(
                sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_ERROR,
                c"test".as_ptr(),
                &mut env,
            )
        })
        .expect("an environment");
        env as usize
    }) as *mut sys::OrtEnv
}

/// A description of host memory, to be released by the caller.
pub fn host_memory() -> *mut sys::OrtMemoryInfo {
    let mut memory = ptr::null_mut();
    // SAFETY: the out pointer is valid.
    check(unsafe {
        api().CreateCpuMemoryInfo.expect("entry")(
            sys::OrtAllocatorType::OrtArenaAllocator,
            sys::OrtMemType::OrtMemTypeDefault,
            &mut memory,
        )
    })
    .expect("a memory info");
    memory
}

pub struct Session {
    session: *mut sys::OrtSession,
}

impl Session {
    pub fn new(model: &[u8]) -> Result<Self, String> {
        let mut options = ptr::null_mut();
        let mut session = ptr::null_mut();
        // SAFETY: all pointers are valid for the calls; the options are released once.
        unsafe {
            check(api().CreateSessionOptions.expect("entry")(&mut options))?;
            check(api().SetIntraOpNumThreads.expect("entry")(options, 1))?;
            let status = api().CreateSessionFromArray.expect("entry")(
                environment(),
                model.as_ptr().cast(),
                model.len(),
                options,
                &mut session,
            );
            api().ReleaseSessionOptions.expect("entry")(options);
            check(status)?;
        }
        Ok(Self { session })
    }

    fn names(&self, outputs: bool) -> Vec<String> {
        let mut names = Vec::new();
        // SAFETY: the session lives; names come from the default allocator and go back to it.
        unsafe {
            let mut count = 0;
            let counted = if outputs {
                api().SessionGetOutputCount.expect("entry")(self.session, &mut count)
            } else {
                api().SessionGetInputCount.expect("entry")(self.session, &mut count)
            };
            check(counted).expect("a count");
            let mut allocator = ptr::null_mut();
            check(api().GetAllocatorWithDefaultOptions.expect("entry")(
                &mut allocator,
            ))
            .expect("an allocator");
            for index in 0..count {
                let mut name = ptr::null_mut();
                let got = if outputs {
                    api().SessionGetOutputName.expect("entry")(
                        self.session,
                        index,
                        allocator,
                        &mut name,
                    )
                } else {
                    api().SessionGetInputName.expect("entry")(
                        self.session,
                        index,
                        allocator,
                        &mut name,
                    )
                };
                check(got).expect("a name");
                names.push(CStr::from_ptr(name).to_string_lossy().into_owned());
                check(api().AllocatorFree.expect("entry")(allocator, name.cast())).expect("freed");
            }
        }
        names
    }

    pub fn inputs(&self) -> Vec<String> {
        self.names(false)
    }

    pub fn outputs(&self) -> Vec<String> {
        self.names(true)
    }

    /// Runs the model; the inputs' memory is the model's to write to. Gives the wanted outputs.
    pub fn run(
        &self,
        inputs: &mut [(String, Tensor)],
        outputs: &[String],
    ) -> Result<Vec<Tensor>, String> {
        let mut values = Vec::new();
        let input_names: Vec<CString> = inputs
            .iter()
            .map(|(n, _)| CString::new(n.as_str()).expect("no NUL"))
            .collect();
        let output_names: Vec<CString> = outputs
            .iter()
            .map(|n| CString::new(n.as_str()).expect("no NUL"))
            .collect();
        let input_pointers: Vec<_> = input_names.iter().map(|n| n.as_ptr()).collect();
        let output_pointers: Vec<_> = output_names.iter().map(|n| n.as_ptr()).collect();
        let mut results: Vec<*mut sys::OrtValue> = vec![ptr::null_mut(); outputs.len()];
        // SAFETY: every pointer lives for the calls; every value is released once, on both ways out.
        unsafe {
            let memory = host_memory();
            for (_, tensor) in inputs.iter_mut() {
                values.push(tensor.value(memory)?);
            }
            let pointers: Vec<*const sys::OrtValue> =
                values.iter().map(|v| v.cast_const()).collect();
            let ran = check(api().Run.expect("entry")(
                self.session,
                ptr::null(),
                input_pointers.as_ptr(),
                pointers.as_ptr(),
                pointers.len(),
                output_pointers.as_ptr(),
                output_pointers.len(),
                results.as_mut_ptr(),
            ));
            let read = ran.and_then(|()| results.iter().map(|&v| read(v)).collect());
            for value in values.into_iter().chain(results) {
                api().ReleaseValue.expect("entry")(value);
            }
            api().ReleaseMemoryInfo.expect("entry")(memory);
            read
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: made by CreateSession and released once.
        unsafe { api().ReleaseSession.expect("entry")(self.session) }
    }
}

/// # Safety
/// `value` is a tensor on the host.
pub unsafe fn read(value: *mut sys::OrtValue) -> Result<Tensor, String> {
    use sys::ONNXTensorElementDataType as T;
    let mut info = ptr::null_mut();
    let (mut kind, mut rank, mut count, mut data) = (
        T::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED,
        0,
        0,
        ptr::null_mut(),
    );
    // SAFETY: by the contract of this function; the info is released once.
    unsafe {
        check(api().GetTensorTypeAndShape.expect("entry")(
            value, &mut info,
        ))?;
        check(api().GetTensorElementType.expect("entry")(info, &mut kind))?;
        check(api().GetDimensionsCount.expect("entry")(info, &mut rank))?;
        let mut dims = vec![0; rank];
        check(api().GetDimensions.expect("entry")(
            info,
            dims.as_mut_ptr(),
            rank,
        ))?;
        check(api().GetTensorShapeElementCount.expect("entry")(
            info, &mut count,
        ))?;
        api().ReleaseTensorTypeAndShapeInfo.expect("entry")(info);
        check(api().GetTensorMutableData.expect("entry")(value, &mut data))?;
        let data = match kind {
            T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT => {
                Data::F32(std::slice::from_raw_parts(data.cast(), count).to_vec())
            }
            T::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE => {
                Data::F64(std::slice::from_raw_parts(data.cast(), count).to_vec())
            }
            T::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 => {
                Data::I64(std::slice::from_raw_parts(data.cast(), count).to_vec())
            }
            T::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL => {
                Data::Bool(std::slice::from_raw_parts(data.cast(), count).to_vec())
            }
            other => return Err(format!("element type {other:?}")),
        };
        Ok(Tensor { dims, data })
    }
}
