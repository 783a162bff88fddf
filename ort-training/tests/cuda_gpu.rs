//! On a CUDA device: memory, copies, sessions whose inputs, outputs and parameters are there.

mod support;

use std::time::{Duration, Instant};

use ort_training::{
    AsValue, Checkpoint, CudaAllocator, CudaDevice, CudaOptions, CudaStream, CudnnConvAlgoSearch,
    MemoryMeter, OptimizerState, ParameterSet, TrainingSession,
};
use support::{digits_batch, env, fixture, one_thread, refused, session};

/// How far losses on the device may lie from those of the CPU, relative to the loss.
const TOLERANCE: f32 = 1e-4;

fn options() -> CudaOptions {
    CudaOptions::device(0)
        .cudnn_conv_algo_search(CudnnConvAlgoSearch::Default)
        .use_tf32(false)
}

fn allocator() -> CudaAllocator {
    CudaAllocator::new(&env(), &options()).unwrap()
}

fn cuda_session(artifacts: &str, options: CudaOptions) -> TrainingSession {
    TrainingSession::builder(&env())
        .options(one_thread())
        .cuda(options)
        .unwrap()
        .artifacts(fixture(artifacts))
        .unwrap()
        .build()
        .unwrap()
}

fn full_step(session: &mut TrainingSession, inputs: &[&dyn AsValue]) -> f32 {
    let loss = session.train_step(inputs).unwrap().loss().unwrap();
    session.optimizer_step().unwrap();
    session.lazy_reset_grad().unwrap();
    loss
}

#[track_caller]
fn close(a: f32, b: f32, what: &str) {
    assert!(
        (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1e-3),
        "{what}: {a} and {b}"
    );
}

#[test]
#[ignore = "needs a GPU: an ONNX Runtime built with CUDA and a device"]
fn settings_in_effect() {
    let effective = options()
        .memory_limit(1 << 30)
        .entry("cudnn_conv_use_max_workspace", "0")
        .effective()
        .unwrap();
    for (key, value) in [
        ("device_id", "0"),
        ("gpu_mem_limit", "1073741824"),
        ("cudnn_conv_algo_search", "DEFAULT"),
        ("use_tf32", "0"),
        ("cudnn_conv_use_max_workspace", "0"),
    ] {
        assert_eq!(effective[key], value, "{key} of {effective:?}");
    }
    refused(
        options().entry("no such setting", "1").effective(),
        &["no such setting"],
    );
}

#[test]
#[ignore = "needs a GPU: an ONNX Runtime built with CUDA and a device"]
fn memory_and_copies() {
    let memory = allocator();
    let elements: Vec<f32> = (0..1 << 16).map(|at| at as f32 * 0.5).collect();
    let mut there = memory.tensor::<f32>([256, 256]).unwrap();
    assert_eq!(there.to_vec().unwrap(), vec![0.0; 1 << 16]);
    there.copy_from_host(&elements).unwrap();
    assert_eq!(there.to_vec().unwrap(), elements);
    let mut beside = memory.tensor::<f32>([1 << 16]).unwrap();
    beside.copy_from_device(&there).unwrap();
    assert_eq!(beside.to_tensor().unwrap().data(), elements);

    let mut staging = memory.pinned::<f32>([256, 256]).unwrap();
    staging.data_mut().fill(7.0);
    let mut back = memory.pinned::<f32>([1 << 16]).unwrap();
    let stream = CudaStream::new(CudaDevice::open(0).unwrap()).unwrap();
    stream
        .scope(|copies| copies.to_device(staging.data(), &mut there))
        .unwrap();
    stream
        .scope(|copies| copies.on_device(&there, &mut beside))
        .unwrap();
    stream
        .scope(|copies| copies.to_host(&beside, back.data_mut()))
        .unwrap();
    assert_eq!(back.data(), vec![7.0; 1 << 16]);

    let flags = memory.tensor_from([3], &[true, false, true]).unwrap();
    assert_eq!(flags.to_vec().unwrap(), [true, false, true]);
    let huge = CudaAllocator::new(&env(), &options().memory_limit(64 << 20)).unwrap();
    assert!(huge.tensor::<f32>([256 << 20]).is_err());
    // Tensors hold what frees them.
    drop((memory, stream));
    assert_eq!(there.to_vec().unwrap()[0], 7.0);
}

#[test]
#[ignore = "needs a GPU: an ONNX Runtime built with CUDA and a device"]
fn the_device_trains_as_the_cpu_does() {
    let memory = allocator();
    let mut on_cpu = session("digits");
    let mut host_fed = cuda_session("digits", options());
    let mut device_fed = cuda_session("digits", options());
    for step in 0..20 {
        let (images, labels) = digits_batch(32, step);
        let images_there = memory.tensor_from([32, 64], images.data()).unwrap();
        let labels_there = memory.tensor_from([32], labels.data()).unwrap();
        let expected = full_step(&mut on_cpu, &[&images, &labels]);
        let what = format!("loss of step {step}");
        close(
            full_step(&mut host_fed, &[&images, &labels]),
            expected,
            &what,
        );
        let there: [&dyn AsValue; 2] = [&images_there, &labels_there];
        close(full_step(&mut device_fed, &there), expected, &what);
    }
    // What was trained on the device goes on on the CPU.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("from-device.ckpt");
    device_fed
        .save_checkpoint(&path, OptimizerState::Include)
        .unwrap();
    let mut resumed = TrainingSession::builder(&env())
        .options(one_thread())
        .checkpoint(Checkpoint::load(&path).unwrap())
        .artifacts(fixture("digits"))
        .unwrap()
        .build()
        .unwrap();
    let (images, labels) = digits_batch(32, 20);
    close(
        full_step(&mut resumed, &[&images, &labels]),
        full_step(&mut on_cpu, &[&images, &labels]),
        "loss after resuming on the CPU",
    );
}

#[test]
#[ignore = "needs a GPU: an ONNX Runtime built with CUDA and a device"]
fn outputs_and_parameters_stay_there() {
    let memory = allocator();
    let mut session = cuda_session("digits", options());
    let (images, labels) = digits_batch(32, 3);
    let outputs = session.eval_step(&[&images, &labels]).unwrap();
    let loss_name = session.train_outputs()[0].name().to_owned();
    let logits = outputs.get("logits").unwrap();
    assert!(
        logits.is_host().unwrap(),
        "outputs come to the host unless asked for"
    );
    let mut there = memory.tensor::<f32>(logits.shape().unwrap()).unwrap();
    let rest = session
        .eval_step_to_device(&[&images, &labels], &mut [("logits", &mut there)])
        .unwrap();
    assert!(rest.get("logits").is_err());
    assert_eq!(rest.loss().unwrap(), outputs.loss().unwrap());
    assert_eq!(there.to_vec().unwrap(), logits.data::<f32>().unwrap());

    let mut loss = memory.tensor::<f32>([]).unwrap();
    session
        .train_step_to_device(&[&images, &labels], &mut [(&loss_name, &mut loss)])
        .unwrap();
    assert_eq!(loss.to_vec().unwrap()[0], outputs.loss().unwrap());
    let mut wrong = memory.tensor::<f32>([3]).unwrap();
    refused(
        session.train_step_to_device(&[&images, &labels], &mut [(&loss_name, &mut wrong)]),
        &[&loss_name, "[3]"],
    );
    refused(
        session.train_step_to_device(&[&images, &labels], &mut [("none", &mut wrong)]),
        &["none", &loss_name],
    );

    let before = session.parameters_buffer(ParameterSet::All).unwrap();
    let mut kept = memory.tensor::<f32>([before.len()]).unwrap();
    session
        .copy_parameters_to_device(&mut kept, ParameterSet::All)
        .unwrap();
    assert_eq!(kept.to_vec().unwrap(), before);
    session.optimizer_step().unwrap();
    assert_ne!(
        session.parameters_buffer(ParameterSet::All).unwrap(),
        before
    );
    session
        .copy_device_to_parameters(&kept, ParameterSet::All)
        .unwrap();
    assert_eq!(
        session.parameters_buffer(ParameterSet::All).unwrap(),
        before
    );
}

#[test]
#[ignore = "needs a GPU: an ONNX Runtime built with CUDA and a device"]
fn a_stream_of_the_callers() {
    let stream = CudaStream::new(CudaDevice::open(0).unwrap()).unwrap();
    let mut on_stream = cuda_session("digits", options().stream(&stream));
    drop(stream);
    let mut on_cpu = session("digits");
    for step in 0..5 {
        let (images, labels) = digits_batch(32, step);
        close(
            full_step(&mut on_stream, &[&images, &labels]),
            full_step(&mut on_cpu, &[&images, &labels]),
            "loss",
        );
    }
}

/// Run alone: the figures are the whole device's.
#[test]
#[ignore = "needs a GPU: an ONNX Runtime built with CUDA and a device; alone on it"]
fn a_thousand_steps_take_no_more_memory() {
    let memory = allocator();
    let (images, labels) = digits_batch(256, 1);
    let images_there = memory.tensor_from([256, 64], images.data()).unwrap();
    let labels_there = memory.tensor_from([256], labels.data()).unwrap();
    let mut session = cuda_session("digits", options());
    for fed in 0..10 {
        match fed % 2 {
            0 => full_step(&mut session, &[&images, &labels]),
            _ => full_step(&mut session, &[&images_there, &labels_there]),
        };
    }
    let mut meter = MemoryMeter::start(CudaDevice::open(0).unwrap()).unwrap();
    for _ in 0..500 {
        full_step(&mut session, &[&images, &labels]);
        full_step(&mut session, &[&images_there, &labels_there]);
        meter.sample().unwrap();
    }
    let report = meter.report();
    println!("result: memory over 1,000 steps: {report}");
    assert_eq!(report.peak, report.at_start, "{report}");
}

/// Shows the times; only that both ways work is asserted.
#[test]
#[ignore = "needs a GPU: an ONNX Runtime built with CUDA and a device; alone on it"]
fn time_of_host_and_device_inputs() {
    let memory = allocator();
    for rows in [256, 16_384] {
        let (images, labels) = digits_batch(rows, 1);
        let images_there = memory.tensor_from([rows, 64], images.data()).unwrap();
        let labels_there = memory.tensor_from([rows], labels.data()).unwrap();
        let mut session = cuda_session("digits", options());
        let mut rounds = Vec::new();
        for _ in 0..7 {
            let mut time = |inputs: &[&dyn AsValue]| -> Duration {
                let started = Instant::now();
                for _ in 0..100 {
                    assert!(full_step(&mut session, inputs).is_finite());
                }
                started.elapsed() / 100
            };
            rounds.push((
                time(&[&images, &labels]),
                time(&[&images_there, &labels_there]),
            ));
        }
        // The first round warms up.
        let mut rounds = rounds.split_off(1);
        rounds.sort_by_key(|(host, _)| *host);
        let (host, there) = rounds[rounds.len() / 2];
        println!(
            "result: step with {rows} rows: host inputs {:.1} µs, device inputs {:.1} µs, ratio {:.3}",
            host.as_secs_f64() * 1e6,
            there.as_secs_f64() * 1e6,
            host.as_secs_f64() / there.as_secs_f64()
        );
    }
}

#[cfg(feature = "cudarc")]
#[test]
#[ignore = "needs a GPU: an ONNX Runtime built with CUDA and a device"]
fn slices_of_cudarc() {
    use cudarc::driver::CudaContext;
    use ort_training::DeviceTensor;

    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let mut session = cuda_session("digits", options());
    let (images, labels) = digits_batch(8, 2);
    let images_there = stream.clone_htod(images.data()).unwrap();
    let labels_there = stream.clone_htod(labels.data()).unwrap();
    let mut logits = stream.alloc_zeros::<f32>(80).unwrap();
    let expected = session.eval_step(&[&images, &labels]).unwrap();
    {
        let images = DeviceTensor::from_cuda_slice([8, 64], &images_there).unwrap();
        let labels = DeviceTensor::from_cuda_slice([8], &labels_there).unwrap();
        let mut output = DeviceTensor::from_cuda_slice_mut([8, 10], &mut logits).unwrap();
        session
            .eval_step_to_device(&[&images, &labels], &mut [("logits", &mut output)])
            .unwrap();
        refused(
            DeviceTensor::from_cuda_slice([9, 64], &images_there),
            &["[9, 64]", "576", "512"],
        );
    }
    assert_eq!(
        stream.clone_dtoh(&logits).unwrap(),
        expected.get("logits").unwrap().data::<f32>().unwrap()
    );
    full_step(&mut session, &[&images, &labels]);
}
