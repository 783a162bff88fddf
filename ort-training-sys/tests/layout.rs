//! The bindings against the linked library.

use std::ffi::CStr;

use ort_training_sys as sys;

#[test]
fn api_tables_load_and_carry_training() {
    // SAFETY: OrtGetApiBase returns a static table; its two members are set in every release.
    let (version, api) = unsafe {
        let base = &*sys::OrtGetApiBase();
        let version = CStr::from_ptr(base.GetVersionString.unwrap()())
            .to_str()
            .unwrap();
        (version, base.GetApi.unwrap()(sys::ORT_API_VERSION))
    };
    assert!(
        !api.is_null(),
        "header {} but library {version}",
        sys::ORT_API_VERSION
    );
    let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
    assert!(
        minor >= sys::ORT_API_VERSION,
        "library {version}, header {}",
        sys::ORT_API_VERSION
    );
    // SAFETY: the table above is of the header's own version.
    let training = unsafe { (*api).GetTrainingApi.unwrap()(sys::ORT_API_VERSION) };
    assert!(
        !training.is_null(),
        "the library was built without training"
    );
}

#[test]
fn the_training_table_has_one_pointer_for_each_entry() {
    let pointers = size_of::<sys::OrtTrainingApi>() / size_of::<*const ()>();
    assert_eq!(
        pointers, 33,
        "OrtTrainingApi of ONNX Runtime 1.21 has 33 entries"
    );
}

#[test]
fn enums_hold_values_that_the_header_does_not_list() {
    let unknown = sys::OrtErrorCode(4711);
    assert_ne!(unknown, sys::OrtErrorCode::ORT_OK);
    assert_eq!(unknown.0, 4711);
}
