// Host memory is not described by a device, nor a device by host memory.
use std::ptr::NonNull;

use ort_training::{DeviceTensor, MemoryInfo};

fn main() {
    let host = MemoryInfo::host().unwrap();
    let _ = unsafe { DeviceTensor::<f32>::from_device_pointer(&host, [1], NonNull::dangling()) };
}
