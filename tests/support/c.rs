//! The C scenarios (tests/c/parity.h) and how to call them.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::case::{Case, Column};
use crate::log::Log;

#[repr(C)]
struct CLog {
    data: *mut u8,
    length: usize,
    capacity: usize,
}

#[repr(C)]
struct CColumn {
    element_type: ort_training_sys::ONNXTensorElementDataType,
    width: usize,
    data: *const c_void,
}

#[repr(C)]
struct CCase {
    artifacts: *const c_char,
    scratch: *const c_char,
    columns: *const CColumn,
    column_count: usize,
    rows: usize,
    parameters: *const *const c_char,
    parameter_count: usize,
    batch_size: usize,
    steps: usize,
    learning_rate: f32,
    inference_output: *const c_char,
}

#[link(name = "parity", kind = "static")]
unsafe extern "C" {
    fn parity_log_free(log: *mut CLog);
    fn parity_train(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_accumulate(case: *const CCase, micro_batches: usize, log: *mut CLog) -> c_int;
    fn parity_schedule(case: *const CCase, warmup: i64, total: i64, log: *mut CLog) -> c_int;
    fn parity_save_load_continue(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_parameters_buffer(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_parameters(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_properties(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_checkpoint_from_bytes(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_nominal_checkpoint(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_session_from_bytes(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_export(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_model_io(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_seed(case: *const CCase, seed: i64, log: *mut CLog) -> c_int;
    fn parity_release(case: *const CCase, times: usize, log: *mut CLog) -> c_int;
    fn parity_run_options(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_checkpoint_errors(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_session_errors(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_input_errors(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_missing_models(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_export_errors(case: *const CCase, log: *mut CLog) -> c_int;
    fn parity_wrong_index(case: *const CCase, which: c_int, log: *mut CLog) -> c_int;
    fn parity_digits(
        case: *const CCase,
        parameters: *const f32,
        parameter_count: usize,
        batch_sizes: *const usize,
        batch_count: usize,
        warmup: i64,
        total: i64,
        log: *mut CLog,
    ) -> c_int;
}

/// A scenario of the C side, with what it takes besides the case.
pub enum Scenario<'data> {
    Train,
    Accumulate {
        micro_batches: usize,
    },
    Schedule {
        warmup: i64,
        total: i64,
    },
    SaveLoadContinue,
    ParametersBuffer,
    Parameters,
    Properties,
    CheckpointFromBytes,
    NominalCheckpoint,
    SessionFromBytes,
    Export,
    ModelIo,
    Seed(i64),
    Release {
        times: usize,
    },
    RunOptions,
    CheckpointErrors,
    SessionErrors,
    InputErrors,
    MissingModels,
    ExportErrors,
    WrongIndex(i32),
    Digits {
        parameters: &'data [f32],
        batch_sizes: &'data [usize],
        warmup: i64,
        total: i64,
    },
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path without NUL")
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("text without NUL")
}

impl Scenario<'_> {
    /// Runs it. Panics when a call failed that should have gone well.
    #[track_caller]
    pub fn run(&self, case: &Case) -> Log {
        let artifacts = c_path(&case.artifacts);
        let scratch = c_path(case.scratch.path());
        let inference_output = c_text(case.inference_output);
        let names: Vec<CString> = case.parameters.iter().map(|name| c_text(name)).collect();
        let name_pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let columns: Vec<CColumn> = case
            .columns
            .iter()
            .map(|column| match column {
                Column::Floats { width, data } => CColumn {
                    element_type: ort_training_sys::ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
                    width: *width,
                    data: data.as_ptr().cast(),
                },
                Column::Labels(data) => CColumn {
                    element_type: ort_training_sys::ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
                    width: 0,
                    data: data.as_ptr().cast(),
                },
            })
            .collect();
        let c_case = CCase {
            artifacts: artifacts.as_ptr(),
            scratch: scratch.as_ptr(),
            columns: columns.as_ptr(),
            column_count: columns.len(),
            rows: case.rows,
            parameters: name_pointers.as_ptr(),
            parameter_count: name_pointers.len(),
            batch_size: case.batch_size,
            steps: case.steps,
            learning_rate: case.learning_rate,
            inference_output: inference_output.as_ptr(),
        };
        let mut c_log = CLog {
            data: std::ptr::null_mut(),
            length: 0,
            capacity: 0,
        };
        let (case, log) = (&raw const c_case, &raw mut c_log);
        // SAFETY: the declarations above are those of parity.h; everything the case points to lives until the end of
        // this function, and the scenarios read within the counts that go with it.
        let failed = unsafe {
            match *self {
                Self::Train => parity_train(case, log),
                Self::Accumulate { micro_batches } => parity_accumulate(case, micro_batches, log),
                Self::Schedule { warmup, total } => parity_schedule(case, warmup, total, log),
                Self::SaveLoadContinue => parity_save_load_continue(case, log),
                Self::ParametersBuffer => parity_parameters_buffer(case, log),
                Self::Parameters => parity_parameters(case, log),
                Self::Properties => parity_properties(case, log),
                Self::CheckpointFromBytes => parity_checkpoint_from_bytes(case, log),
                Self::NominalCheckpoint => parity_nominal_checkpoint(case, log),
                Self::SessionFromBytes => parity_session_from_bytes(case, log),
                Self::Export => parity_export(case, log),
                Self::ModelIo => parity_model_io(case, log),
                Self::Seed(seed) => parity_seed(case, seed, log),
                Self::Release { times } => parity_release(case, times, log),
                Self::RunOptions => parity_run_options(case, log),
                Self::CheckpointErrors => parity_checkpoint_errors(case, log),
                Self::SessionErrors => parity_session_errors(case, log),
                Self::InputErrors => parity_input_errors(case, log),
                Self::MissingModels => parity_missing_models(case, log),
                Self::ExportErrors => parity_export_errors(case, log),
                Self::WrongIndex(which) => parity_wrong_index(case, which, log),
                Self::Digits {
                    parameters,
                    batch_sizes,
                    warmup,
                    total,
                } => parity_digits(
                    case,
                    parameters.as_ptr(),
                    parameters.len(),
                    batch_sizes.as_ptr(),
                    batch_sizes.len(),
                    warmup,
                    total,
                    log,
                ),
            }
        };
        let bytes = if c_log.data.is_null() {
            &[]
        } else {
            // SAFETY: the log's buffer holds this many bytes that were written.
            unsafe { std::slice::from_raw_parts(c_log.data, c_log.length) }
        };
        let log = Log::parse(bytes);
        // SAFETY: the buffer is the log's own and isn't used after this.
        unsafe { parity_log_free(&raw mut c_log) };
        if failed != 0 {
            let last = log.records.last().expect("a failure is recorded");
            panic!("the C side: {}: {}", last.name, last.payload);
        }
        log
    }
}
