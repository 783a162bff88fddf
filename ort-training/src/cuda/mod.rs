//! The CUDA execution provider: is it there, its settings, tensors in its memory, copies, what memory is in use.

mod allocator;
mod choice;
#[cfg(feature = "cudarc")]
mod cudarc_support;
mod device;
mod driver;
mod libraries;
mod memory;
mod options;
mod session;
mod status;
mod stream;
mod tensor;

pub use allocator::CudaAllocator;
pub use choice::CudaChoice;
pub use device::CudaDevice;
pub use memory::{DeviceMemory, MemoryMeter, MemoryReport};
pub use options::{ArenaExtendStrategy, CudaOptions, CudnnConvAlgoSearch};
pub use session::DeviceOutput;
pub use status::{CudaLibrary, CudaStatus};
pub use stream::{CopyScope, CudaStream};
pub use tensor::DeviceTensor;
