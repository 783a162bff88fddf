//! Which types threads may hand over and share: asserted by the compiler, so that a change of it is a decision.

use ort_training::{
    Checkpoint, CudaAllocator, CudaDevice, CudaMemoryInfo, CudaOptions, CudaStream, DeviceTensor,
    Environment, Error, InferenceSession, MemoryInfo, Outputs, RunOptions, SessionOptions,
    StepBinding, StringTensor, Tensor, TensorRef, TrainingSession, TrainingSessionBuilder, Value,
};

fn send<T: Send>() {}
fn shared<T: Sync>() {}

/// Does not compile if the type is `Sync`: then two implementations fit.
macro_rules! not_shared {
    ($($type:ty),*) => {$(
        const _: fn() = || {
            trait NotSync<A> {
                fn assert() {}
            }
            impl<T: ?Sized> NotSync<()> for T {}
            struct IsSync;
            impl<T: ?Sized + Sync> NotSync<IsSync> for T {}
            let _ = <$type as NotSync<_>>::assert;
        };
    )*};
}

// A step changes these without a lock.
not_shared!(
    TrainingSession,
    Checkpoint,
    SessionOptions,
    StepBinding<'static>,
    TrainingSessionBuilder
);

#[test]
fn what_may_move_and_what_may_be_shared() {
    send::<TrainingSession>();
    send::<TrainingSessionBuilder>();
    send::<Checkpoint>();
    send::<SessionOptions>();
    send::<StepBinding<'static>>();
    send::<CudaOptions>();
    send::<CudaAllocator>();
    send::<CudaStream>();
    send::<Outputs>();
    send::<Value>();
    send::<Tensor<f32>>();
    send::<TensorRef<'static, f32>>();
    send::<DeviceTensor<'static, f32>>();
    send::<StringTensor>();
    send::<InferenceSession>();
    send::<RunOptions>();
    send::<Environment>();
    send::<MemoryInfo>();
    send::<Error>();
    shared::<Value>();
    shared::<Tensor<f32>>();
    shared::<InferenceSession>();
    shared::<RunOptions>();
    shared::<Environment>();
    shared::<MemoryInfo>();
    shared::<CudaMemoryInfo>();
    shared::<DeviceTensor<'static, f32>>();
    shared::<CudaAllocator>();
    shared::<CudaStream>();
    shared::<CudaDevice>();
    shared::<Error>();
}
