//! ONNX Runtime's function tables, found once and checked.

use std::ffi::CStr;
use std::sync::OnceLock;

use ort_training_sys as sys;

use crate::error::{Error, ErrorCode, Result};

/// The oldest table whose entries this crate calls.
const OLDEST_API_VERSION: u32 = 17;

/// The tables stay raw pointers: a library older than the header has a shorter `OrtApi`, and a reference to the whole
/// struct would claim memory behind its end.
pub(crate) struct Tables {
    pub(crate) ort: *const sys::OrtApi,
    training: *const sys::OrtTrainingApi,
    version: String,
    api_version: u32,
}

// SAFETY: both tables are constant data of the library (`static constexpr` in ONNX Runtime), which is never unloaded.
unsafe impl Send for Tables {}
// SAFETY: as above; they are only read.
unsafe impl Sync for Tables {}

impl Tables {
    /// # Safety
    /// `base` must be what `OrtGetApiBase` returns, or point to a table of the same form whose functions may be called.
    unsafe fn load(base: *const sys::OrtApiBase) -> Result<Self> {
        let fail = |message: String| Error::new(ErrorCode::NotImplemented, message);
        // SAFETY: by the contract of this function.
        let (get_api, get_version) = unsafe {
            let base = base
                .as_ref()
                .ok_or_else(|| fail("OrtGetApiBase returned NULL".into()))?;
            (base.GetApi, base.GetVersionString)
        };
        let get_api = get_api.ok_or_else(|| fail("OrtApiBase has no GetApi".into()))?;
        let version = match get_version {
            // SAFETY: GetVersionString returns a constant string with a terminator.
            Some(get) => unsafe { CStr::from_ptr(get()) }
                .to_string_lossy()
                .into_owned(),
            None => "unknown".to_owned(),
        };
        let found = (OLDEST_API_VERSION..=sys::ORT_API_VERSION)
            .rev()
            .find_map(|api_version| {
                // SAFETY: GetApi may be asked for any version and answers NULL for one that it lacks.
                let api = unsafe { get_api(api_version) };
                (!api.is_null()).then_some((api, api_version))
            });
        let Some((ort, api_version)) = found else {
            return Err(fail(format!(
                "ONNX Runtime too old: this crate was built for API version {} and needs at least \
                 {OLDEST_API_VERSION}, the library that was loaded is {version}",
                sys::ORT_API_VERSION
            )));
        };
        // SAFETY: GetTrainingApi is in every table since API version 13, and 17 is the oldest accepted above.
        let training = unsafe {
            match (&raw const (*ort).GetTrainingApi).read() {
                Some(get) => get(api_version),
                None => std::ptr::null(),
            }
        };
        Ok(Self {
            ort,
            training,
            version,
            api_version,
        })
    }

    #[inline]
    pub(crate) fn training(&self) -> Result<*const sys::OrtTrainingApi> {
        if self.training.is_null() {
            return Err(self.no_training());
        }
        Ok(self.training)
    }

    #[cold]
    fn no_training(&self) -> Error {
        Error::new(
            ErrorCode::NotImplemented,
            format!(
                "this ONNX Runtime ({}) was built without training: OrtApi::GetTrainingApi returned NULL; \
                 link one that was built with onnxruntime_ENABLE_TRAINING_APIS=ON",
                self.version
            ),
        )
    }
}

static TABLES: OnceLock<Result<Tables>> = OnceLock::new();

/// The tables of the linked library; loaded on the first call.
#[inline]
pub(crate) fn tables() -> Result<&'static Tables> {
    match TABLES.get() {
        Some(Ok(tables)) => Ok(tables),
        _ => load_tables(),
    }
}

#[cold]
fn load_tables() -> Result<&'static Tables> {
    // SAFETY: the linked library's own OrtGetApiBase.
    match TABLES.get_or_init(|| unsafe { Tables::load(sys::OrtGetApiBase()) }) {
        Ok(tables) => Ok(tables),
        Err(error) => Err(error.clone()),
    }
}

/// The function `name` is not in the library's table, or its object is NULL.
#[cold]
pub(crate) fn missing(name: &str) -> Error {
    let found = match tables() {
        Ok(tables) => format!("{} with API version {}", tables.version, tables.api_version),
        Err(error) => return error,
    };
    Error::new(
        ErrorCode::NotImplemented,
        format!(
            "{name}: this crate was built for ONNX Runtime's API version {}, the library that was loaded is {found} and \
             does not have it",
            sys::ORT_API_VERSION
        ),
    )
}

/// The place of the last function of `OrtApi` that every accepted library has: ONNX Runtime appends, and holds itself to the
/// size of each version (onnxruntime_c_api.cc, "Size of version 17 API cannot change").
pub(crate) const LAST_OF_OLDEST: usize = 275;

/// The function `name` of the table `ort` or `training`, as a `Result`. Use inside `unsafe`.
macro_rules! entry {
    (ort.$name:ident) => {{
        // Behind the end of an older library's table lies anything.
        const {
            let place = std::mem::offset_of!(ort_training_sys::OrtApi, $name) / size_of::<usize>();
            assert!(
                place <= $crate::api::LAST_OF_OLDEST,
                "not in every library that is accepted"
            );
        }
        $crate::api::tables().and_then(|tables| {
            (&raw const (*tables.ort).$name)
                .read()
                .ok_or_else(|| $crate::api::missing(stringify!($name)))
        })
    }};
    (training.$name:ident) => {
        $crate::api::tables()
            .and_then(|tables| tables.training())
            .and_then(|training| {
                (&raw const (*training).$name)
                    .read()
                    .ok_or_else(|| $crate::api::missing(stringify!($name)))
            })
    };
}

/// Calls a function that returns a status, as a `Result<()>`. Use inside `unsafe`.
macro_rules! call {
    ($table:ident.$name:ident($($argument:expr),* $(,)?)) => {
        $crate::api::entry!($table.$name)
            .and_then(|function| $crate::api::check(function($($argument),*)))
    };
}

/// Calls a function without a status, for releasing; does nothing where the function is missing. Use inside `unsafe`.
macro_rules! release {
    ($table:ident.$name:ident($argument:expr)) => {
        if let Ok(function) = $crate::api::entry!($table.$name) {
            function($argument);
        }
    };
}

pub(crate) use {call, entry, release};

/// Turns a status into a `Result` and releases it.
///
/// # Safety
/// `status` is NULL or a status that nobody else releases.
#[inline]
pub(crate) unsafe fn check(status: sys::OrtStatusPtr) -> Result<()> {
    if status.is_null() {
        return Ok(());
    }
    // SAFETY: by the contract of this function.
    Err(unsafe { take_status(status) })
}

#[cold]
unsafe fn take_status(status: sys::OrtStatusPtr) -> Error {
    // SAFETY: the status is alive until it is released at the end, and its message lives as long.
    unsafe {
        let code = match entry!(ort.GetErrorCode) {
            Ok(get) => get(status).0,
            Err(error) => return error,
        };
        let message = match entry!(ort.GetErrorMessage) {
            Ok(get) => CStr::from_ptr(get(status)).to_string_lossy().into_owned(),
            Err(error) => return error,
        };
        release!(ort.ReleaseStatus(status));
        Error::from_ort(code, message)
    }
}

/// The version of the ONNX Runtime that is loaded, such as `1.21.0` (wraps `OrtApiBase::GetVersionString`).
///
/// # Errors
/// The loaded library is too old for this crate.
pub fn onnx_runtime_version() -> Result<&'static str> {
    Ok(&tables()?.version)
}

/// The API version that was negotiated with the library: at most the one of the headers that this crate was built with
/// (wraps `OrtApiBase::GetApi`).
///
/// # Errors
/// The loaded library is too old for this crate.
pub fn api_version() -> Result<u32> {
    Ok(tables()?.api_version)
}

/// Checks that the ONNX Runtime that is loaded can train (wraps `OrtApi::GetTrainingApi`).
///
/// # Errors
/// It was built without training, or is too old for this crate.
pub fn ensure_training() -> Result<()> {
    tables()?.training().map(|_| ())
}

/// Seeds the random numbers of ONNX Runtime for the whole process, dropout's for one (wraps `OrtTrainingApi::SetSeed`).
///
/// Kernels take their generator when a session is built: seed before building. Any thread may call it; the seed is
/// one for all sessions.
///
/// # Errors
/// The loaded library cannot train.
pub fn set_seed(seed: i64) -> Result<()> {
    // SAFETY: no pointers; ONNX Runtime keeps the seed in an atomic (random_seed.cc) and its generators lock.
    unsafe { call!(training.SetSeed(seed)) }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_char;
    use std::mem::MaybeUninit;

    use super::*;

    unsafe extern "C" fn version() -> *const c_char {
        c"1.12.1".as_ptr()
    }

    unsafe extern "C" fn no_api(_: u32) -> *const sys::OrtApi {
        std::ptr::null()
    }

    unsafe extern "C" fn no_training(_: u32) -> *const sys::OrtTrainingApi {
        std::ptr::null()
    }

    struct Shared(sys::OrtApi);
    // SAFETY: only read.
    unsafe impl Sync for Shared {}
    // SAFETY: holds functions only.
    unsafe impl Send for Shared {}

    unsafe extern "C" fn api_without_training(wanted: u32) -> *const sys::OrtApi {
        static API: OnceLock<Shared> = OnceLock::new();
        if wanted > 19 {
            return std::ptr::null();
        }
        let shared = API.get_or_init(|| {
            // SAFETY: every member is an optional function pointer, for which zero is None.
            let mut api: sys::OrtApi = unsafe { MaybeUninit::zeroed().assume_init() };
            api.GetTrainingApi = Some(no_training);
            Shared(api)
        });
        &shared.0
    }

    #[test]
    fn a_library_that_is_too_old_names_both_versions() {
        let base = sys::OrtApiBase {
            GetApi: Some(no_api),
            GetVersionString: Some(version),
        };
        // SAFETY: the table above.
        let error = unsafe { Tables::load(&base) }.err().unwrap().to_string();
        assert!(error.contains("1.12.1"), "{error}");
        assert!(
            error.contains(&format!("version {}", sys::ORT_API_VERSION)),
            "{error}"
        );
    }

    #[test]
    fn a_library_without_training_is_an_error_when_training_is_asked_for() {
        let base = sys::OrtApiBase {
            GetApi: Some(api_without_training),
            GetVersionString: Some(version),
        };
        // SAFETY: the table above.
        let tables = unsafe { Tables::load(&base) }.unwrap();
        assert_eq!(tables.api_version, 19, "negotiates downwards");
        let error = tables.training().unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotImplemented);
        assert!(
            error.to_string().contains("built without training"),
            "{error}"
        );
    }

    #[test]
    fn what_a_library_lacks_names_both_versions() {
        let error = missing("OrtApi::SomethingNew");
        assert_eq!(error.code(), ErrorCode::NotImplemented);
        let error = error.to_string();
        for word in [
            "OrtApi::SomethingNew",
            &format!("version {}", sys::ORT_API_VERSION),
            onnx_runtime_version().unwrap(),
        ] {
            assert!(error.contains(word), "{word:?} is not in {error}");
        }
    }

    /// ONNX Runtime's own word for it.
    #[test]
    fn the_oldest_table_ends_where_it_is_said_to() {
        let place = std::mem::offset_of!(
            sys::OrtApi,
            SessionOptionsAppendExecutionProvider_OpenVINO_V2
        );
        assert_eq!(place / size_of::<usize>(), LAST_OF_OLDEST);
    }

    #[test]
    fn the_linked_library_trains() {
        ensure_training().unwrap();
        assert!(onnx_runtime_version().unwrap().starts_with("1."));
        assert!(api_version().unwrap() >= OLDEST_API_VERSION);
    }
}
