//! CUDA devices.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::driver::{Context, Driver};
use crate::error::{Error, ErrorCode, Result};

const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;

/// A CUDA device of this machine, by its number among those that `CUDA_VISIBLE_DEVICES` lets the process see: the numbers
/// that [`CudaOptions`](crate::CudaOptions) and [`CudaMemoryInfo`](crate::CudaMemoryInfo) mean.
///
/// Any thread may use it. The device's primary context, which ONNX Runtime uses too, is kept for the life of the process.
#[derive(Clone, Copy)]
pub struct CudaDevice {
    ordinal: u32,
    handle: c_int,
    context: Context,
    driver: &'static Driver,
}

// SAFETY: contexts may be used from every thread (CUDA driver API: "Difference between the driver and runtime APIs").
unsafe impl Send for CudaDevice {}
// SAFETY: as above.
unsafe impl Sync for CudaDevice {}

impl CudaDevice {
    /// How many there are (wraps `cuDeviceGetCount`).
    ///
    /// # Errors
    /// No driver, or it does not start: what is missing, and the driver's own code.
    pub fn count() -> Result<u32> {
        let driver = Driver::get()?;
        let mut count = 0;
        // SAFETY: writes the number.
        driver.check("counting devices", unsafe {
            (driver.device_count)(&mut count)
        })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// The newest CUDA version that the driver supports, as major and minor (wraps `cuDriverGetVersion`).
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub fn driver_version() -> Result<(u32, u32)> {
        let driver = Driver::get()?;
        let mut version = 0;
        // SAFETY: writes the number.
        driver.check("asking for the driver's version", unsafe {
            (driver.driver_version)(&mut version)
        })?;
        let version = u32::try_from(version).unwrap_or(0);
        Ok((version / 1000, version % 1000 / 10))
    }

    /// The device with this number (wraps `cuDeviceGet` and `cuDevicePrimaryCtxRetain`).
    ///
    /// # Errors
    /// As [`count`](Self::count); no such device.
    pub fn open(ordinal: u32) -> Result<Self> {
        static OPEN: Mutex<BTreeMap<u32, CudaDevice>> = Mutex::new(BTreeMap::new());
        let count = Self::count()?;
        if ordinal >= count {
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                format!("CUDA: expected a device below {count}, found number {ordinal}"),
            ));
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.get(&ordinal) {
            return Ok(*device);
        }
        let driver = Driver::get()?;
        let mut handle = 0;
        let mut context = std::ptr::null_mut();
        // SAFETY: the number was checked; both write what they are asked for.
        unsafe {
            driver.check(
                "opening the device",
                (driver.device)(&mut handle, ordinal as c_int),
            )?;
            driver.check(
                "entering the device's context",
                (driver.retain_context)(&mut context, handle),
            )?;
        }
        let device = Self {
            ordinal,
            handle,
            context,
            driver,
        };
        open.insert(ordinal, device);
        Ok(device)
    }

    /// Its number.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its name, such as `NVIDIA H200` (wraps `cuDeviceGetName`).
    ///
    /// # Errors
    /// The driver refuses.
    pub fn name(&self) -> Result<String> {
        let mut name = [0 as c_char; 256];
        // SAFETY: the buffer has the length that is passed, and receives a terminated string.
        unsafe {
            self.driver.check(
                "asking for the device's name",
                (self.driver.device_name)(name.as_mut_ptr(), 256, self.handle),
            )?;
            Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// Its compute capability, as major and minor: (9, 0) for an H200 (wraps `cuDeviceGetAttribute`).
    ///
    /// # Errors
    /// The driver refuses.
    pub fn compute_capability(&self) -> Result<(u32, u32)> {
        let attribute = |number| {
            let mut value = 0;
            // SAFETY: writes the number.
            self.driver
                .check("asking for the compute capability", unsafe {
                    (self.driver.device_attribute)(&mut value, number, self.handle)
                })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        Ok((
            attribute(COMPUTE_CAPABILITY_MAJOR)?,
            attribute(COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Runs `work` with the device's context current on this thread; whatever was current before is again afterwards.
    pub(crate) fn enter<R>(&self, work: impl FnOnce(&'static Driver) -> Result<R>) -> Result<R> {
        /// Pops when dropped, so that a panic leaves the thread as it was.
        struct Entered(&'static Driver);
        impl Drop for Entered {
            fn drop(&mut self) {
                let mut context = std::ptr::null_mut();
                // SAFETY: pops what was pushed; a failure would leave a context current, which harms nobody.
                unsafe { (self.0.pop_context)(&mut context) };
            }
        }
        // SAFETY: the context is never released.
        self.driver.check("entering the device's context", unsafe {
            (self.driver.push_context)(self.context)
        })?;
        let _entered = Entered(self.driver);
        work(self.driver)
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CudaDevice").field(&self.ordinal).finish()
    }
}

impl PartialEq for CudaDevice {
    fn eq(&self, other: &Self) -> bool {
        self.ordinal == other.ordinal
    }
}

impl Eq for CudaDevice {}
