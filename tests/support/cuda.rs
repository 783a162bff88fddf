//! CUDA on both sides: once a device is set, every session of this process is made on it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use ort_training::{CudaOptions, CudnnConvAlgoSearch, Result, SessionOptions};

static DEVICE: AtomicI32 = AtomicI32::new(-1);

#[link(name = "parity", kind = "static")]
unsafe extern "C" {
    fn parity_use_cuda(number: c_int);
}

/// Makes the sessions of both sides from now on with this CUDA device.
pub fn use_cuda(device: u16) {
    DEVICE.store(device.into(), Ordering::SeqCst);
    // SAFETY: sets a number, before the threads that read it are started.
    unsafe { parity_use_cuda(device.into()) };
}

/// The settings of tests/c/cuda.c.
pub(crate) fn append(options: SessionOptions) -> Result<SessionOptions> {
    match u32::try_from(DEVICE.load(Ordering::SeqCst)) {
        Err(_) => Ok(options),
        Ok(device) => options.with_cuda(
            &CudaOptions::device(device)
                .cudnn_conv_algo_search(CudnnConvAlgoSearch::Default)
                .use_tf32(false),
        ),
    }
}
