//! The step as a C program writes it: the same function pointers, on the session and the tensors of the safe layer.

use std::ptr;

use ort_training::{AsValue, Tensor, TrainingSession};
use ort_training_sys as sys;

/// What a C program holds to train on two inputs. Everything in it belongs to the subject that it was made for.
pub struct CStep {
    ort: &'static sys::OrtApi,
    training: &'static sys::OrtTrainingApi,
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
    /// # Safety
    /// Session and tensors outlive what is made here, and nobody else uses them while a step runs.
    pub unsafe fn new(
        session: &mut TrainingSession,
        x: &Tensor<f32>,
        target: &Tensor<f32>,
    ) -> Self {
        // SAFETY: the tables are constants of the library, and of the version that the header declares.
        let (ort, training) = unsafe {
            let ort = &*(*sys::OrtGetApiBase()).GetApi.unwrap()(sys::ORT_API_VERSION);
            (ort, &*ort.GetTrainingApi.unwrap()(sys::ORT_API_VERSION))
        };
        let mut this = Self {
            ort,
            training,
            session: session.as_ptr(),
            inputs: [x, target].map(|tensor| tensor.as_value().as_ptr().cast_const()),
            output: ptr::null_mut(),
            output_data: ptr::null(),
        };
        // The first step makes the output that the bound one fills again.
        // SAFETY: session and inputs are live; the output holds one float for as long as it lives.
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
        // SAFETY: made in `new`, released once.
        unsafe { self.ort.ReleaseValue.unwrap()(self.output) };
    }
}
