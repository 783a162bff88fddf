//! The step as a C program writes it: the same function pointers, called from here.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use ort_training_sys as sys;

/// A training session on two inputs, held as a C program holds it.
pub struct CStep {
    ort: &'static sys::OrtApi,
    training: &'static sys::OrtTrainingApi,
    env: *mut sys::OrtEnv,
    state: *mut sys::OrtCheckpointState,
    session: *mut sys::OrtTrainingSession,
    inputs: [*const sys::OrtValue; 2],
    /// The output of the bound step, kept and filled again.
    output: *mut sys::OrtValue,
    output_data: *const f32,
}

/// Panics with ONNX Runtime's message: nothing is measured once a call has failed.
fn check(ort: &sys::OrtApi, status: *mut sys::OrtStatus) {
    if !status.is_null() {
        // SAFETY: a status that isn't NULL has a message.
        let message = unsafe { std::ffi::CStr::from_ptr(ort.GetErrorMessage.unwrap()(status)) };
        panic!("ONNX Runtime: {}", message.to_string_lossy());
    }
}

macro_rules! call {
    ($self:ident . $table:ident . $function:ident ( $($argument:expr),* $(,)? )) => {
        check($self.ort, $self.$table.$function.unwrap_unchecked()($($argument),*))
    };
}

impl CStep {
    /// Opens the artifacts; `x` and `target` (with their shapes) are the batch of every step.
    pub fn open(
        artifacts: &Path,
        x: (&'static [f32], &[i64]),
        target: (&'static [f32], &[i64]),
    ) -> Self {
        let path = |file: &str| CString::new(artifacts.join(file).as_os_str().as_bytes()).unwrap();
        // SAFETY: the tables are constants of the library, and of the version that the header declares.
        let (ort, training) = unsafe {
            let ort = &*(*sys::OrtGetApiBase()).GetApi.unwrap()(sys::ORT_API_VERSION);
            (ort, &*ort.GetTrainingApi.unwrap()(sys::ORT_API_VERSION))
        };
        let mut this = Self {
            ort,
            training,
            env: ptr::null_mut(),
            state: ptr::null_mut(),
            session: ptr::null_mut(),
            inputs: [ptr::null(); 2],
            output: ptr::null_mut(),
            output_data: ptr::null(),
        };
        let name = c"benchmark";
        let mut options = ptr::null_mut();
        // SAFETY: each call gets pointers that live through it, and what it makes is released in drop.
        unsafe {
            call!(this.ort.CreateEnv(
                sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_FATAL,
                name.as_ptr(),
                &mut this.env
            ));
            call!(this.ort.CreateSessionOptions(&mut options));
            call!(this.ort.SetIntraOpNumThreads(options, 1));
            call!(
                this.training
                    .LoadCheckpoint(path("checkpoint").as_ptr(), &mut this.state)
            );
            call!(this.training.CreateTrainingSession(
                this.env,
                options,
                this.state,
                path("training_model.onnx").as_ptr(),
                path("eval_model.onnx").as_ptr(),
                path("optimizer_model.onnx").as_ptr(),
                &mut this.session,
            ));
            ort.ReleaseSessionOptions.unwrap()(options);
        }
        this.inputs = [this.tensor(x), this.tensor(target)];
        // The first step makes the output that the bound one fills again.
        // SAFETY: as above; the output holds one float for as long as it lives.
        unsafe {
            call!(this.training.TrainStep(
                this.session,
                ptr::null(),
                2,
                this.inputs.as_ptr(),
                1,
                &mut this.output
            ));
            let mut data = ptr::null_mut();
            call!(this.ort.GetTensorMutableData(this.output, &mut data));
            this.output_data = data.cast();
            // Its gradient is none of the steps'.
            call!(this.training.LazyResetGrad(this.session));
        }
        this
    }

    fn tensor(&self, (data, shape): (&'static [f32], &[i64])) -> *const sys::OrtValue {
        let mut info = ptr::null_mut();
        let mut value = ptr::null_mut();
        // SAFETY: the data is static and as long as the shape says; ONNX Runtime only reads inputs.
        unsafe {
            call!(self.ort.CreateCpuMemoryInfo(
                sys::OrtAllocatorType::OrtArenaAllocator,
                sys::OrtMemType::OrtMemTypeDefault,
                &mut info
            ));
            call!(self.ort.CreateTensorWithDataAsOrtValue(
                info,
                data.as_ptr().cast_mut().cast(),
                size_of_val(data),
                shape.as_ptr(),
                shape.len(),
                sys::ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
                &mut value,
            ));
            self.ort.ReleaseMemoryInfo.unwrap()(info);
        }
        value
    }

    fn update(&mut self) {
        // SAFETY: the session is live.
        unsafe {
            call!(self.training.OptimizerStep(self.session, ptr::null()));
            call!(self.training.LazyResetGrad(self.session));
        }
    }

    /// Train, read the loss, optimizer, reset; the loss is a new value each time.
    pub fn step(&mut self) -> f32 {
        let mut output = ptr::null_mut();
        let mut data = ptr::null_mut();
        // SAFETY: session and inputs are live; the output is released after its number was read.
        let loss = unsafe {
            call!(self.training.TrainStep(
                self.session,
                ptr::null(),
                2,
                self.inputs.as_ptr(),
                1,
                &mut output
            ));
            call!(self.ort.GetTensorMutableData(output, &mut data));
            let loss = *data.cast::<f32>();
            self.ort.ReleaseValue.unwrap_unchecked()(output);
            loss
        };
        self.update();
        loss
    }

    /// The same, into the output made at the start.
    pub fn bound_step(&mut self) -> f32 {
        // SAFETY: session, inputs and output are live.
        let loss = unsafe {
            call!(self.training.TrainStep(
                self.session,
                ptr::null(),
                2,
                self.inputs.as_ptr(),
                1,
                &mut self.output
            ));
            *self.output_data
        };
        self.update();
        loss
    }
}

impl Drop for CStep {
    fn drop(&mut self) {
        // SAFETY: everything was made in `open` and is released once, the session before its checkpoint.
        unsafe {
            self.ort.ReleaseValue.unwrap()(self.output);
            for input in self.inputs {
                self.ort.ReleaseValue.unwrap()(input.cast_mut());
            }
            self.training.ReleaseTrainingSession.unwrap()(self.session);
            self.training.ReleaseCheckpointState.unwrap()(self.state);
            self.ort.ReleaseEnv.unwrap()(self.env);
        }
    }
}
