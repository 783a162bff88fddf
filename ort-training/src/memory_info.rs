//! Where memory lies.

use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use ort_training_sys as sys;

use crate::api::{call, entry, release};
use crate::error::{Error, Result};

/// Where memory lies and who hands it out (wraps `OrtMemoryInfo`), for host memory. [`CudaMemoryInfo`] is the one for a
/// device; they are two types so that host data cannot be declared to lie on a device.
pub struct MemoryInfo {
    raw: NonNull<sys::OrtMemoryInfo>,
}

// SAFETY: OrtMemoryInfo is plain constant data after its creation (allocator.h).
unsafe impl Send for MemoryInfo {}
// SAFETY: as above.
unsafe impl Sync for MemoryInfo {}

fn create(name: &str, id: i32) -> Result<MemoryInfo> {
    let name = CString::new(name).map_err(|_| Error::invalid_argument("memory name with NUL"))?;
    let mut raw = std::ptr::null_mut();
    // SAFETY: the name is copied; `raw` receives an object that is ours.
    unsafe {
        call!(ort.CreateMemoryInfo(
            name.as_ptr(),
            sys::OrtAllocatorType::OrtDeviceAllocator,
            id,
            sys::OrtMemType::OrtMemTypeDefault,
            &mut raw,
        ))?;
    }
    let raw = NonNull::new(raw).ok_or_else(|| crate::api::missing("CreateMemoryInfo"))?;
    Ok(MemoryInfo { raw })
}

impl MemoryInfo {
    /// Host memory (wraps `OrtApi::CreateMemoryInfo` with `"Cpu"`).
    ///
    /// # Errors
    /// The loaded library is too old.
    pub fn host() -> Result<Self> {
        create("Cpu", 0)
    }

    /// The one that all host tensors of this crate are made with.
    pub(crate) fn shared_host() -> Result<&'static Self> {
        static HOST: OnceLock<Result<MemoryInfo>> = OnceLock::new();
        HOST.get_or_init(Self::host).as_ref().map_err(Clone::clone)
    }

    /// The name of the allocator, `Cpu` for host memory (wraps `OrtApi::MemoryInfoGetName`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn name(&self) -> Result<String> {
        let mut name = std::ptr::null();
        // SAFETY: the object is alive; the string belongs to it and is copied here.
        unsafe {
            call!(ort.MemoryInfoGetName(self.raw.as_ptr(), &mut name))?;
            Ok(CStr::from_ptr(name).to_string_lossy().into_owned())
        }
    }

    /// The number of the device (wraps `OrtApi::MemoryInfoGetId`).
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn device_id(&self) -> Result<i32> {
        let mut id = 0;
        // SAFETY: the object is alive.
        unsafe { call!(ort.MemoryInfoGetId(self.raw.as_ptr(), &mut id))? };
        Ok(id)
    }

    pub(crate) fn as_ptr(&self) -> *const sys::OrtMemoryInfo {
        self.raw.as_ptr()
    }
}

impl Drop for MemoryInfo {
    fn drop(&mut self) {
        // SAFETY: ours, released once.
        unsafe { release!(ort.ReleaseMemoryInfo(self.raw.as_ptr())) };
    }
}

/// Whether both describe the same place (wraps `OrtApi::CompareMemoryInfo`).
impl PartialEq for MemoryInfo {
    fn eq(&self, other: &Self) -> bool {
        let mut different = -1;
        // SAFETY: both objects are alive.
        let compared = unsafe {
            call!(ort.CompareMemoryInfo(self.raw.as_ptr(), other.raw.as_ptr(), &mut different))
        };
        compared.is_ok() && different == 0
    }
}

impl fmt::Debug for MemoryInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryInfo")
            .field("name", &self.name().unwrap_or_default())
            .field("device_id", &self.device_id().unwrap_or(-1))
            .finish()
    }
}

/// Host memory that is locked for copies from and to CUDA devices, as ONNX Runtime's CUDA provider hands it out: not tied to
/// one of them (cuda_allocator.h, `CUDAPinnedAllocator`).
pub(crate) fn cuda_pinned() -> Result<MemoryInfo> {
    create("CudaPinned", 0)
}

/// Memory of a CUDA device (wraps `OrtApi::CreateMemoryInfo` with `"Cuda"`). It cannot be paired with host data: what
/// takes a [`MemoryInfo`] does not take this.
#[derive(Debug, PartialEq)]
pub struct CudaMemoryInfo(MemoryInfo);

impl CudaMemoryInfo {
    /// The memory of device number `device_id`. Describing it needs no such device.
    ///
    /// # Errors
    /// The number is negative.
    pub fn device(device_id: i32) -> Result<Self> {
        if device_id < 0 {
            return Err(Error::invalid_argument(format!(
                "CUDA device: expected a number from 0 on, found {device_id}"
            )));
        }
        Ok(Self(create("Cuda", device_id)?))
    }

    /// The number of the device.
    ///
    /// # Errors
    /// ONNX Runtime refuses.
    pub fn device_id(&self) -> Result<i32> {
        self.0.device_id()
    }

    pub(crate) fn as_ptr(&self) -> *const sys::OrtMemoryInfo {
        self.0.as_ptr()
    }
}

/// Whether `value`'s memory can be read by the host.
///
/// # Safety
/// `value` is a tensor that is alive.
pub(crate) unsafe fn is_host(value: *const sys::OrtValue) -> Result<bool> {
    let mut info = std::ptr::null();
    let mut device = sys::OrtMemoryInfoDeviceType(u32::MAX);
    // SAFETY: the value is alive, and the info belongs to it.
    unsafe {
        call!(ort.GetTensorMemoryInfo(value, &mut info))?;
        entry!(ort.MemoryInfoGetDeviceType)?(info, &mut device);
    }
    Ok(device == sys::OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU)
}
