//! Prints ONNX Runtime's version as C sees it, and the first and the last loss of 20 steps as C++ trains them.

use std::ffi::{CStr, CString, c_char, c_int};

unsafe extern "C" {
    fn native_version() -> *const c_char;
    fn native_train(artifacts: *const c_char, steps: c_int) -> f32;
}

fn main() {
    // The crate must be linked for its library to be.
    let base = unsafe { ort_training_sys::OrtGetApiBase() };
    assert!(!base.is_null());
    let artifacts = std::env::args()
        .nth(1)
        .expect("usage: native <artifacts folder>");
    let artifacts = CString::new(artifacts).unwrap();
    let (version, first, last) = unsafe {
        (
            CStr::from_ptr(native_version()),
            native_train(artifacts.as_ptr(), 1),
            native_train(artifacts.as_ptr(), 20),
        )
    };
    println!("{} {first} {last}", version.to_str().unwrap());
}
