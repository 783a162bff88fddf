//! CUDA on a machine or library without it: what is missing is said, and the CPU is taken only when that was asked for.

#[path = "cuda_support/mod.rs"]
mod cuda_support;
mod support;

use std::path::Path;

use cuda_support::compile_empty;
use ort_training::{
    CudaAllocator, CudaChoice, CudaDevice, CudaMemoryInfo, CudaOptions, CudaStatus,
    CudnnConvAlgoSearch, DeviceTensor, ErrorCode, ParameterSet, SessionOptions, TrainingSession,
    available_providers,
};
use support::{digits_batch, env, fixture, one_thread, refused, session};

const PROVIDER: &str = "libonnxruntime_providers_cuda.so";
const BRIDGE: &str = "libonnxruntime_providers_shared.so";

fn usable() -> bool {
    CudaStatus::probe().ensure(0).is_ok()
}

#[test]
fn a_provider_that_is_missing_or_broken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |words: &[&str]| {
        let status = CudaStatus::probe_folder(folder.path());
        let error = status.ensure(0).unwrap_err();
        refused(Err::<(), _>(error.clone()), words);
        assert!(status.to_string().contains("provider: missing"), "{status}");
        assert!(status.libraries().is_empty());
        error
    };
    let provider = folder.path().join(PROVIDER);
    let error = refuse(&["expected the CUDA execution provider", PROVIDER]);
    assert_eq!(error.code(), ErrorCode::NoSuchFile);

    std::fs::write(&provider, "not a library").unwrap();
    refuse(&["expected the providers' bridge", BRIDGE]);
    compile_empty(folder.path(), BRIDGE, &[], &[]);
    refuse(&[PROVIDER, "64-bit ELF shared library", "cut off"]);

    // A real library, cut off at several places.
    std::fs::remove_file(&provider).unwrap();
    compile_empty(folder.path(), PROVIDER, &[], &[]);
    let whole = std::fs::read(&provider).unwrap();
    for length in [0, 1, 63, 64, 200, 4096, whole.len() / 2, whole.len() - 64] {
        std::fs::write(&provider, &whole[..length.min(whole.len() - 1)]).unwrap();
        refuse(&[PROVIDER, "cut off"]);
    }
    std::fs::write(&provider, &whole).unwrap();
    CudaStatus::probe_folder(folder.path()).provider().unwrap();
}

#[test]
fn libraries_that_the_provider_needs_are_found_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = folder.path();
    compile_empty(path, BRIDGE, &[], &[]);
    // Two libraries of which the first in the list needs the second.
    let later = compile_empty(elsewhere.path(), "libort_test_later.so.7", &[], &[]);
    let here = format!("-Wl,-rpath-link,{}", elsewhere.path().display());
    let first = compile_empty(
        elsewhere.path(),
        "libort_test_first.so.7",
        &[&later],
        &[&here],
    );
    let gone = compile_empty(path, "libcublasLt.so.97", &[], &[]);
    let run_path = format!("-Wl,-rpath,$ORIGIN:{}", elsewhere.path().display());
    compile_empty(
        path,
        PROVIDER,
        &[&first, &later, &gone],
        &[&run_path, &here],
    );
    std::fs::remove_file(&gone).unwrap();

    let status = CudaStatus::probe_folder(path);
    let found = |name: &str| {
        let mut all = status.libraries().iter();
        all.find(|library| library.name == name)
            .unwrap()
            .found
            .clone()
    };
    assert_eq!(found("libort_test_later.so.7"), Ok(later));
    assert_eq!(found("libort_test_first.so.7"), Ok(first));
    let reason = found("libcublasLt.so.97").unwrap_err();
    assert!(reason.contains("libcublasLt.so.97"), "{reason}");
    refused(
        status.ensure(0),
        &[
            "libcublasLt.so.97",
            "cuBLAS 97",
            "ORT_TRAINING_CUDA_LIBRARIES",
        ],
    );
    assert!(
        status
            .to_string()
            .contains("libcublasLt.so.97: missing (cuBLAS 97"),
        "{status}"
    );
}

#[test]
fn what_is_missing_of_driver_and_device_is_said() {
    match CudaDevice::count() {
        Err(error) => {
            refused(CudaDevice::open(0), &["CUDA"]);
            refused(CudaDevice::driver_version(), &["CUDA"]);
            let text = error.to_string();
            assert!(
                text.contains("libcuda.so.1") || text.contains("cuInit"),
                "{text}"
            );
        }
        Ok(count) => {
            refused(
                CudaDevice::open(count),
                &[&format!("below {count}"), &format!("number {count}")],
            );
        }
    }
}

#[test]
fn cuda_is_an_error_and_the_cpu_a_choice() {
    let cuda = || CudaOptions::device(0).use_tf32(false);
    if usable() {
        let (_, choice) = SessionOptions::new()
            .unwrap()
            .with_cuda_or_cpu(&cuda())
            .unwrap();
        assert!(choice.is_cuda());
        return;
    }
    let missing = CudaStatus::probe().ensure(0).unwrap_err().to_string();
    refused(TrainingSession::builder(&env()).cuda(cuda()), &[&missing]);
    refused(
        SessionOptions::new().unwrap().with_cuda(&cuda()),
        &[&missing],
    );
    refused(cuda().effective(), &[&missing]);
    refused(CudaAllocator::new(&env(), &cuda()), &[&missing]);
    let (builder, choice) = TrainingSession::builder(&env())
        .options(one_thread())
        .cuda_or_cpu(cuda())
        .unwrap();
    assert!(!choice.is_cuda());
    assert_eq!(choice.to_string(), format!("the CPU ({missing})"));
    let CudaChoice::Cpu(why) = choice else {
        panic!("{choice}")
    };
    assert_eq!(why.to_string(), missing);
    // And it is the CPU: the same loss as without.
    let mut chosen = builder
        .artifacts(fixture("digits"))
        .unwrap()
        .build()
        .unwrap();
    let (images, labels) = digits_batch(4, 1);
    let loss = |session: &mut TrainingSession| {
        let outputs = session.train_step(&[&images, &labels]).unwrap();
        outputs.loss().unwrap()
    };
    assert_eq!(loss(&mut chosen), loss(&mut session("digits")));
}

#[test]
fn a_library_without_cuda_says_what_it_has() {
    let providers = available_providers().unwrap();
    let provider = CudaStatus::probe();
    if providers.iter().any(|name| name == "CUDAExecutionProvider") {
        let path = provider.provider().unwrap();
        assert!(path.ends_with(Path::new(PROVIDER)), "{}", path.display());
    } else {
        refused(
            provider.provider(),
            &[
                "built with the CUDA execution provider",
                "CPUExecutionProvider",
            ],
        );
    }
}

#[test]
fn graphs_are_refused_with_the_reason() {
    let options = CudaOptions::device(0)
        .cudnn_conv_algo_search(CudnnConvAlgoSearch::Heuristic)
        .entry("enable_cuda_graph", "1");
    refused(
        TrainingSession::builder(&env()).cuda(options),
        &["enable_cuda_graph", "resets gradients"],
    );
}

#[test]
fn device_memory_and_sessions_on_the_cpu_do_not_go_together() {
    let memory = CudaMemoryInfo::device(0).unwrap();
    // SAFETY: nothing reads the address: that is what this test is about.
    let device = |shape: &[usize]| {
        unsafe {
            DeviceTensor::<f32>::from_device_pointer_mut(
                &memory,
                shape,
                std::ptr::NonNull::dangling(),
            )
        }
        .unwrap()
    };
    let mut session = session("digits");
    let (images, labels) = digits_batch(2, 0);
    refused(
        session.bind_train_step(vec![device(&[2, 64]).into(), labels.into()]),
        &["bound training step", "images", "host", "device"],
    );
    let (_, labels) = digits_batch(2, 0);
    let mut loss = device(&[]);
    refused(
        session.train_step_to_device(&[&images, &labels], &mut [("loss", &mut loss)]),
        &["training step to the device", "CUDA device", "CPU"],
    );
    refused(
        session.eval_step_to_device(&[&images, &labels], &mut []),
        &["evaluation step to the device", "CUDA device", "CPU"],
    );
    let count = session.parameter_count(ParameterSet::All).unwrap();
    let mut buffer = device(&[count]);
    refused(
        session.copy_parameters_to_device(&mut buffer, ParameterSet::All),
        &["copying parameters to the device", "CPU"],
    );
    refused(
        session.copy_device_to_parameters(&buffer, ParameterSet::All),
        &["copying parameters from the device", "CPU"],
    );
}
