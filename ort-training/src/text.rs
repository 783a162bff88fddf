//! Strings across the C boundary.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ort_training_sys as sys;

use crate::api::{call, entry};
use crate::error::{Error, Result};

/// `text` with a terminator; `what` names it in the error about a NUL inside.
pub(crate) fn c_string(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        Error::invalid_argument(format!(
            "{what} {text:?}: expected a string without NUL, found one at byte {}",
            error.nul_position()
        ))
    })
}

/// `path` with a terminator (`ORTCHAR_T` is `char` on every system but Windows).
pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| {
        Error::invalid_argument(format!(
            "path {path:?}: expected a path without NUL, found one at byte {}",
            error.nul_position()
        ))
    })
}

/// The process-wide allocator for host memory that the C API hands out.
pub(crate) fn default_allocator() -> Result<*mut sys::OrtAllocator> {
    let mut allocator = std::ptr::null_mut();
    // SAFETY: writes the pointer of a static allocator, which is never released.
    unsafe { call!(ort.GetAllocatorWithDefaultOptions(&mut allocator))? };
    Ok(allocator)
}

/// Memory that ONNX Runtime allocated for us with the default allocator; freed when dropped.
pub(crate) struct Allocated<T> {
    pub(crate) pointer: *mut T,
    allocator: *mut sys::OrtAllocator,
}

impl<T> Allocated<T> {
    /// # Safety
    /// `pointer` is NULL or was allocated with `allocator`, and nobody else frees it.
    pub(crate) unsafe fn new(pointer: *mut T, allocator: *mut sys::OrtAllocator) -> Self {
        Self { pointer, allocator }
    }
}

impl<T> Drop for Allocated<T> {
    fn drop(&mut self) {
        if self.pointer.is_null() {
            return;
        }
        // SAFETY: by the contract of `new`. The status is NULL: AllocatorFree cannot fail.
        unsafe {
            if let Ok(free) = entry!(ort.AllocatorFree) {
                let _ = crate::api::check(free(self.allocator, self.pointer.cast()));
            }
        }
    }
}

/// Reads a string that `fill` lets ONNX Runtime allocate, and frees it.
pub(crate) fn allocated_string(
    what: &str,
    fill: impl FnOnce(*mut sys::OrtAllocator, *mut *mut c_char) -> Result<()>,
) -> Result<String> {
    let allocator = default_allocator()?;
    let mut text: *mut c_char = std::ptr::null_mut();
    fill(allocator, &mut text)?;
    // SAFETY: `fill` succeeded, so the pointer is a string allocated with `allocator`, now ours.
    let text = unsafe { Allocated::new(text, allocator) };
    if text.pointer.is_null() {
        return Err(Error::invalid_argument(format!(
            "{what}: ONNX Runtime returned no string"
        )));
    }
    // SAFETY: a terminated string that lives until `text` is dropped.
    let bytes = unsafe { CStr::from_ptr(text.pointer) };
    match bytes.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Error::invalid_argument(format!(
            "{what}: expected UTF-8, found {:?}",
            bytes.to_string_lossy()
        ))),
    }
}
