//! The CUDA driver's functions that ONNX Runtime's C API has no counterpart for: copies, streams, memory figures.
//!
//! `libcuda.so.1` is opened when the first of them is needed. It comes with the driver, so it is there wherever a GPU can be
//! used, and needs no toolkit; ONNX Runtime's CUDA code works in the same primary context, so that addresses and streams
//! mean the same to both.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use libloading::Library;

use super::libraries::reason;
use crate::error::{Error, ErrorCode, Result};

pub(crate) const LIBRARY: &str = "libcuda.so.1";

pub(crate) type Context = *mut c_void;
pub(crate) type Stream = *mut c_void;
/// An address in device memory (`CUdeviceptr`).
pub(crate) type Address = u64;

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),* $(,)?);)*) => {
        /// The driver, started.
        pub(crate) struct Driver {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> c_uint,)*
            /// Never unloaded: functions and contexts live as long as the process.
            _library: ManuallyDrop<Library>,
        }

        impl Driver {
            fn resolve(library: Library) -> Result<Self> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the symbol has this signature in cuda.h, in all versions of the driver from 11 on.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> c_uint>($symbol)
                        };
                        *symbol.map_err(|error| {
                            Error::new(
                                ErrorCode::ExecutionProviderFail,
                                format!("CUDA: expected a driver of CUDA 11 or newer, found a {LIBRARY} that lacks a function: {}", reason(&error)),
                            )
                        })?
                    },)*
                    _library: ManuallyDrop::new(library),
                })
            }
        }
    };
}

functions! {
    init = b"cuInit\0": fn(c_uint);
    driver_version = b"cuDriverGetVersion\0": fn(*mut c_int);
    device_count = b"cuDeviceGetCount\0": fn(*mut c_int);
    device = b"cuDeviceGet\0": fn(*mut c_int, c_int);
    device_name = b"cuDeviceGetName\0": fn(*mut c_char, c_int, c_int);
    device_attribute = b"cuDeviceGetAttribute\0": fn(*mut c_int, c_int, c_int);
    retain_context = b"cuDevicePrimaryCtxRetain\0": fn(*mut Context, c_int);
    push_context = b"cuCtxPushCurrent_v2\0": fn(Context);
    pop_context = b"cuCtxPopCurrent_v2\0": fn(*mut Context);
    memory_info = b"cuMemGetInfo_v2\0": fn(*mut usize, *mut usize);
    copy_to_device = b"cuMemcpyHtoDAsync_v2\0": fn(Address, *const c_void, usize, Stream);
    copy_to_host = b"cuMemcpyDtoHAsync_v2\0": fn(*mut c_void, Address, usize, Stream);
    copy_on_device = b"cuMemcpyDtoDAsync_v2\0": fn(Address, Address, usize, Stream);
    fill = b"cuMemsetD8Async\0": fn(Address, u8, usize, Stream);
    create_stream = b"cuStreamCreate\0": fn(*mut Stream, c_uint);
    destroy_stream = b"cuStreamDestroy_v2\0": fn(Stream);
    synchronize_stream = b"cuStreamSynchronize\0": fn(Stream);
    error_name = b"cuGetErrorName\0": fn(c_uint, *mut *const c_char);
    error_text = b"cuGetErrorString\0": fn(c_uint, *mut *const c_char);
}

impl Driver {
    /// Opens and starts the driver; a failure is remembered, as the driver remembers it.
    pub(crate) fn get() -> Result<&'static Self> {
        static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
        match DRIVER.get_or_init(Self::start) {
            Ok(driver) => Ok(driver),
            Err(error) => Err(error.clone()),
        }
    }

    fn start() -> Result<Self> {
        // SAFETY: the driver's library; its initialisers do nothing that this process could see.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| {
            Error::new(
                ErrorCode::ExecutionProviderFail,
                format!(
                    "CUDA: expected NVIDIA's driver, found no {LIBRARY} that can be loaded: {}",
                    reason(&error)
                ),
            )
        })?;
        let driver = Self::resolve(library)?;
        // SAFETY: the only value that flags may have.
        let code = unsafe { (driver.init)(0) };
        driver
            .check("starting the driver (cuInit)", code)
            .map(|()| driver)
    }

    /// Turns a `CUresult` into a `Result`.
    pub(crate) fn check(&self, what: &str, code: c_uint) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        Err(self.failure(what, code))
    }

    #[cold]
    fn failure(&self, what: &str, code: c_uint) -> Error {
        let text = |function: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint| {
            let mut text = std::ptr::null();
            // SAFETY: writes NULL or the address of a constant string.
            unsafe {
                function(code, &mut text);
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy())
            }
        };
        let name = text(self.error_name).unwrap_or("an unknown error".into());
        let description = text(self.error_text).unwrap_or_default();
        Error::new(
            ErrorCode::ExecutionProviderFail,
            format!("CUDA: {what}: {name} ({code}): {description}"),
        )
    }
}
