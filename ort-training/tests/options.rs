//! Session options, run options, memory, CUDA on a machine or library without it.

mod support;

use std::ptr::NonNull;

use ort_training::{
    ArenaExtendStrategy, CudaMemoryInfo, CudaOptions, DeviceTensor, ErrorCode,
    GraphOptimizationLevel, InferenceSession, LogSeverity, MemoryInfo, RunOptions, SessionOptions,
    TrainingSession, available_providers,
};
use support::{digits_batch, env, fixture, one_thread, refused, session};

#[test]
fn every_session_option_is_accepted_by_a_training_session() {
    let folder = tempfile::tempdir().unwrap();
    let options = SessionOptions::new()
        .unwrap()
        .with_intra_op_threads(1)
        .unwrap()
        .with_inter_op_threads(1)
        .unwrap()
        .with_parallel_execution(false)
        .unwrap()
        .with_graph_optimization_level(GraphOptimizationLevel::Basic)
        .unwrap()
        .with_deterministic_compute(true)
        .unwrap()
        .with_cpu_memory_arena(false)
        .unwrap()
        .with_memory_pattern(false)
        .unwrap()
        .with_log_severity(LogSeverity::Error)
        .unwrap()
        .with_log_id("options")
        .unwrap()
        .with_free_dimension("batch", 4)
        .unwrap()
        .with_config_entry("session.set_denormal_as_zero", "1")
        .unwrap()
        .with_profiling(folder.path().join("profile"))
        .unwrap();
    let mut session = TrainingSession::builder(&env())
        .options(options)
        .artifacts(fixture("digits"))
        .unwrap()
        .build()
        .unwrap();
    let (images, labels) = digits_batch(4, 0);
    session.train_step(&[&images, &labels]).unwrap();
    drop(session);
    let profiles = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(profiles > 0, "profiling writes a file");
}

#[test]
fn config_entries_are_read_back() {
    let options = SessionOptions::new()
        .unwrap()
        .with_config_entry("a.key", "a value")
        .unwrap();
    assert_eq!(
        options.config_entry("a.key").unwrap().as_deref(),
        Some("a value")
    );
    assert_eq!(options.config_entry("another.key").unwrap(), None);
    let copy = options.try_clone().unwrap();
    let options = options.with_config_entry("a.key", "changed").unwrap();
    assert_eq!(
        options.config_entry("a.key").unwrap().as_deref(),
        Some("changed")
    );
    assert_eq!(
        copy.config_entry("a.key").unwrap().as_deref(),
        Some("a value")
    );
}

#[test]
fn options_with_nul_or_out_of_range_are_refused() {
    let new = || SessionOptions::new().unwrap();
    refused(
        new().with_config_entry("a\0b", "c"),
        &["config key", "NUL", "byte 1"],
    );
    refused(new().with_config_entry("a", "\0"), &["config value", "NUL"]);
    refused(new().with_log_id("\0"), &["log id", "NUL"]);
    refused(
        new().with_intra_op_threads(usize::MAX),
        &["threads", &usize::MAX.to_string()],
    );
    refused(
        RunOptions::new().unwrap().set_tag("a\0"),
        &["run tag", "NUL"],
    );
}

#[test]
fn settings_that_training_does_not_support_are_refused() {
    let build = |key: &str, value: &str| {
        let options = one_thread().with_config_entry(key, value).unwrap();
        TrainingSession::builder(&env())
            .options(options)
            .artifacts(fixture("digits"))
            .unwrap()
            .build()
    };
    refused(
        build("session.use_env_allocators", "1"),
        &["use_env_allocators", "not supported"],
    );
    let error = build("session.disable_prepacking", "0").unwrap_err();
    assert!(
        error.is_from_onnx_runtime() && error.message().contains("Prepacking"),
        "{error}"
    );
}

#[test]
fn run_options_keep_tag_and_severity() {
    let mut options = RunOptions::new().unwrap();
    assert_eq!(options.tag().unwrap(), "");
    assert_eq!(options.log_severity().unwrap(), -1);
    options.set_tag("step 7").unwrap();
    options.set_log_severity(LogSeverity::Fatal).unwrap();
    assert_eq!(options.tag().unwrap(), "step 7");
    assert_eq!(options.log_severity().unwrap(), 4);
}

#[test]
fn a_terminated_training_step_changes_nothing() {
    let mut session = session("digits");
    let (images, labels) = digits_batch(4, 0);
    let options = RunOptions::new().unwrap();
    session
        .train_step_with(&[&images, &labels], &options)
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| options.terminate().unwrap());
    });
    assert!(options.is_terminated());
    let before = session
        .parameters_buffer(ort_training::ParameterSet::All)
        .unwrap();
    refused(
        session.train_step_with(&[&images, &labels], &options),
        &["training step", "terminate"],
    );
    refused(
        session.eval_step_with(&[&images, &labels], &options),
        &["evaluation step", "terminate"],
    );
    refused(
        session.optimizer_step_with(&options),
        &["optimizer step", "terminate"],
    );
    assert_eq!(
        session
            .parameters_buffer(ort_training::ParameterSet::All)
            .unwrap(),
        before
    );
    options.unset_terminate().unwrap();
    session.optimizer_step_with(&options).unwrap();
    assert_ne!(
        session
            .parameters_buffer(ort_training::ParameterSet::All)
            .unwrap(),
        before
    );
}

#[test]
fn memory_is_described_and_compared() {
    let host = MemoryInfo::host().unwrap();
    assert_eq!(host.name().unwrap(), "Cpu");
    assert_eq!(host.device_id().unwrap(), 0);
    assert_eq!(host, MemoryInfo::host().unwrap());
    let device = CudaMemoryInfo::device(1).unwrap();
    assert_eq!(device.device_id().unwrap(), 1);
    assert_eq!(device, CudaMemoryInfo::device(1).unwrap());
    assert_ne!(device, CudaMemoryInfo::device(0).unwrap());
    refused(CudaMemoryInfo::device(-1), &["CUDA device", "-1"]);
}

#[test]
fn cuda_is_refused_by_name_where_the_library_lacks_it() {
    let providers = available_providers().unwrap();
    assert!(
        providers.iter().any(|name| name == "CPUExecutionProvider"),
        "{providers:?}"
    );
    let cuda = CudaOptions::device(0)
        .memory_limit(1 << 30)
        .arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        .entry("cudnn_conv_use_max_workspace", "1");
    if providers.iter().any(|name| name == "CUDAExecutionProvider") {
        // A library with CUDA, on a machine with or without a device: an unknown setting is refused by both.
        refused(
            SessionOptions::new()
                .unwrap()
                .with_cuda(&cuda.entry("no such setting", "1")),
            &["CUDA"],
        );
        return;
    }
    let error = SessionOptions::new().unwrap().with_cuda(&cuda).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotImplemented);
    assert!(
        error.to_string().contains("CUDA") && error.to_string().contains("CPUExecutionProvider"),
        "{error}"
    );
    refused(TrainingSession::builder(&env()).cuda(cuda), &["CUDA"]);
}

#[test]
fn device_memory_without_a_device_is_refused() {
    let memory = CudaMemoryInfo::device(0).unwrap();
    // SAFETY: nothing reads the address: that is what this test is about.
    let images = unsafe {
        DeviceTensor::<f32>::from_device_pointer(&memory, [2, 64], NonNull::<f32>::dangling())
    }
    .unwrap();
    assert_eq!(images.shape(), [2, 64]);
    let (_, labels) = digits_batch(2, 0);
    let mut session = session("digits");
    refused(
        session.train_step(&[&images, &labels]),
        &["training step", "images", "host", "device"],
    );
    refused(
        session.eval_step(&[&images, &labels]),
        &["evaluation step", "images", "host", "device"],
    );
    let forward = InferenceSession::builder(&env())
        .model(fixture("digits").join("forward.onnx"))
        .build()
        .unwrap();
    refused(
        forward.run(&[&images]),
        &["inference", "images", "host", "device"],
    );
}
