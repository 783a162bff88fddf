//! Names for documentation builders, which have no ONNX Runtime: opaque types only, nothing that could be called.

macro_rules! opaque {
    ($($name:ident)*) => {$(
        /// An opaque type of the C API (see the documentation of a build with ONNX Runtime for its contents).
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque! {
    OrtAllocator OrtApi OrtApiBase OrtCUDAProviderOptionsV2 OrtCheckpointState OrtEnv OrtMemoryInfo OrtRunOptions
    OrtSession OrtSessionOptions OrtStatus OrtTensorTypeAndShapeInfo OrtTrainingApi OrtTrainingSession OrtTypeInfo
    OrtValue
}

macro_rules! newtype {
    ($($name:ident)*) => {$(
        /// An enum of the C API as a newtype over its integer.
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub u32);
    )*};
}

newtype! {
    GraphOptimizationLevel ExecutionMode ONNXTensorElementDataType ONNXType OrtAllocatorType OrtErrorCode
    OrtLoggingLevel OrtMemType OrtMemoryInfoDeviceType OrtPropertyType
}

/// A status that whoever receives it releases; NULL is success.
pub type OrtStatusPtr = *mut OrtStatus;
