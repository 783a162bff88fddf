//! A bare training session over the C API, so that the artifacts are tested by themselves.

use std::ffi::{CString, c_void};
use std::ptr;

use ort_training::artifacts::ArtifactBytes;
use ort_training_sys as sys;

use super::session::{Tensor, api, check, environment, host_memory, read};

fn training() -> &'static sys::OrtTrainingApi {
    // SAFETY: the library in use has training; its table is a constant.
    unsafe { &*api().GetTrainingApi.expect("entry")(sys::ORT_API_VERSION) }
}

pub struct Training {
    session: *mut sys::OrtTrainingSession,
    state: *mut sys::OrtCheckpointState,
    // The session reads the models' bytes only while it is made; they stay for the error messages of a debugger.
    _artifacts: ArtifactBytes,
}

impl Training {
    pub fn new(artifacts: ArtifactBytes) -> Result<Self, String> {
        let (mut options, mut state, mut session) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let bytes = |b: &[u8]| (b.as_ptr().cast::<c_void>(), b.len());
        let (train, train_size) = bytes(&artifacts.training_model);
        let (eval, eval_size) = bytes(&artifacts.eval_model);
        let (optimizer, optimizer_size) = artifacts
            .optimizer_model
            .as_deref()
            .map_or((ptr::null(), 0), bytes);
        // Reading a checkpoint uses the logger, which is the environment's.
        let environment = environment();
        // SAFETY: all pointers are valid for the calls; what was made is released here on failure, else by drop.
        unsafe {
            check(training().LoadCheckpointFromBuffer.expect("entry")(
                artifacts.checkpoint.as_ptr().cast(),
                artifacts.checkpoint.len(),
                &mut state,
            ))?;
            check(api().CreateSessionOptions.expect("entry")(&mut options))?;
            check(api().SetIntraOpNumThreads.expect("entry")(options, 1))?;
            let made = check(training().CreateTrainingSessionFromBuffer.expect("entry")(
                environment,
                options,
                state,
                train,
                train_size,
                eval,
                eval_size,
                optimizer,
                optimizer_size,
                &mut session,
            ));
            api().ReleaseSessionOptions.expect("entry")(options);
            if let Err(message) = made {
                training().ReleaseCheckpointState.expect("entry")(state);
                return Err(message);
            }
        }
        Ok(Self {
            session,
            state,
            _artifacts: artifacts,
        })
    }

    fn run(&self, inputs: &mut [Tensor], evaluate: bool) -> Result<Vec<Tensor>, String> {
        let mut count = 0;
        // SAFETY: the session lives; every value is released once.
        unsafe {
            let counted = if evaluate {
                training()
                    .TrainingSessionGetEvalModelOutputCount
                    .expect("entry")(self.session, &mut count)
            } else {
                training()
                    .TrainingSessionGetTrainingModelOutputCount
                    .expect("entry")(self.session, &mut count)
            };
            check(counted)?;
            let memory = host_memory();
            let mut values = Vec::new();
            for tensor in inputs.iter_mut() {
                values.push(tensor.value(memory)?);
            }
            let pointers: Vec<*const sys::OrtValue> =
                values.iter().map(|v| v.cast_const()).collect();
            let mut results = vec![ptr::null_mut(); count];
            let (count, inputs, outputs) =
                (pointers.len(), pointers.as_ptr(), results.as_mut_ptr());
            let ran = check(if evaluate {
                let step = training().EvalStep.expect("entry");
                step(
                    self.session,
                    ptr::null(),
                    count,
                    inputs,
                    results.len(),
                    outputs,
                )
            } else {
                let step = training().TrainStep.expect("entry");
                step(
                    self.session,
                    ptr::null(),
                    count,
                    inputs,
                    results.len(),
                    outputs,
                )
            });
            let read = ran.and_then(|()| results.iter().map(|&v| read(v)).collect());
            for value in values.into_iter().chain(results) {
                api().ReleaseValue.expect("entry")(value);
            }
            api().ReleaseMemoryInfo.expect("entry")(memory);
            read
        }
    }

    pub fn train(&self, inputs: &mut [Tensor]) -> Result<Vec<Tensor>, String> {
        self.run(inputs, false)
    }

    pub fn evaluate(&self, inputs: &mut [Tensor]) -> Result<Vec<Tensor>, String> {
        self.run(inputs, true)
    }

    /// An optimizer step, then the gradients are to start from zero.
    pub fn step(&self, learning_rate: f32) -> Result<(), String> {
        // SAFETY: the session lives.
        unsafe {
            check(training().SetLearningRate.expect("entry")(
                self.session,
                learning_rate,
            ))?;
            check(training().OptimizerStep.expect("entry")(
                self.session,
                ptr::null(),
            ))?;
            check(training().LazyResetGrad.expect("entry")(self.session))
        }
    }

    pub fn parameter(&self, name: &str) -> Result<Tensor, String> {
        let name = CString::new(name).expect("no NUL");
        let (mut allocator, mut value) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the state lives; the value is released once.
        unsafe {
            check(api().GetAllocatorWithDefaultOptions.expect("entry")(
                &mut allocator,
            ))?;
            check(training().GetParameter.expect("entry")(
                self.state,
                name.as_ptr(),
                allocator,
                &mut value,
            ))?;
            let tensor = read(value);
            api().ReleaseValue.expect("entry")(value);
            tensor
        }
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        // SAFETY: both were made by the library and are released once, the session before the state it writes to.
        unsafe {
            training().ReleaseTrainingSession.expect("entry")(self.session);
            training().ReleaseCheckpointState.expect("entry")(self.state);
        }
    }
}
