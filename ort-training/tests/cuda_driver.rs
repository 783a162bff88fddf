//! What the safe layer does with the driver, on a driver of the tests' own whose device memory is the host's.
//!
//! The loader takes `libcuda.so.1` from `LD_LIBRARY_PATH`, which it reads when a process starts: so each test runs itself
//! again in a process of its own.

#[path = "cuda_support/mod.rs"]
mod cuda_support;
mod support;

use std::path::Path;
use std::process::Command;
use std::ptr::NonNull;

use cuda_support::{compile, compile_empty};
use ort_training::{
    CudaDevice, CudaMemoryInfo, CudaOptions, CudaStatus, CudaStream, DeviceTensor, MemoryMeter,
    SessionOptions, TensorElement,
};
use support::refused;

const CHILD: &str = "ORT_TEST_DRIVER_CHILD";

/// Runs `body` in a process of its own, whose driver has these settings.
fn with_driver(test: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some_and(|child| child == test) {
        return body();
    }
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda_support/driver.c");
    compile(folder.path(), "libcuda.so.1", &source, &[], &[]);
    // What cargo set stays behind it: it holds libonnxruntime's folder.
    let mut path = vec![folder.path().to_owned()];
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH") {
        path.extend(std::env::split_paths(&rest));
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, test)
        .env("LD_LIBRARY_PATH", std::env::join_paths(path).unwrap())
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Asks the driver of the tests.
fn driver_says(question: &[u8]) -> i32 {
    // SAFETY: the library is loaded already, and its functions have this signature.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").unwrap();
        let ask: libloading::Symbol<'_, unsafe extern "C" fn() -> i32> =
            driver.get(question).unwrap();
        ask()
    }
}

/// A tensor over memory that this driver takes for its device's.
fn device<'a, T: TensorElement>(shape: &[usize], memory: &'a mut [T]) -> DeviceTensor<'a, T> {
    let info = CudaMemoryInfo::device(0).unwrap();
    // SAFETY: borrowed mutably as long as the tensor.
    unsafe {
        DeviceTensor::from_device_pointer_mut(&info, shape, NonNull::from(&mut memory[0])).unwrap()
    }
}

#[test]
fn copies() {
    with_driver("copies", &[], || {
        let elements: Vec<f32> = (0..6u8).map(f32::from).collect();
        let (mut first, mut second) = ([9f32; 6], [9f32; 6]);
        let mut there = device(&[2, 3], &mut first);
        let mut beside = device(&[6], &mut second);
        there.copy_from_host(&elements).unwrap();
        assert_eq!(there.to_vec().unwrap(), elements);
        beside.copy_from_device(&there).unwrap();
        let mut back = [0f32; 6];
        beside.copy_to_host(&mut back).unwrap();
        assert_eq!(back, elements[..]);
        assert_eq!(beside.to_tensor().unwrap().shape(), [6]);
        there.fill_zero().unwrap();
        assert_eq!(there.to_vec().unwrap(), [0.0; 6]);
        assert_eq!(there.device_id(), 0);

        refused(
            there.copy_from_host(&elements[..5]),
            &["expected 6 elements", "[2, 3]", "found 5"],
        );
        refused(
            there.copy_to_host(&mut back[..2]),
            &["expected 6 elements", "found 2"],
        );
        let mut small = [0f32; 2];
        refused(
            device(&[2], &mut small).copy_from_device(&there),
            &["expected 2 elements", "found 6"],
        );
        drop((there, beside));
        assert_eq!(first, [0.0; 6]);
        assert_eq!(second, elements[..]);

        let info = CudaMemoryInfo::device(0).unwrap();
        // SAFETY: read only while `second` is borrowed by nobody else.
        let mut lent = unsafe {
            DeviceTensor::<f32>::from_device_pointer(&info, [6], NonNull::from(&second[0]))
        }
        .unwrap();
        refused(lent.copy_from_host(&elements), &["lent for reading"]);
        assert_eq!(lent.to_vec().unwrap(), elements);
        assert_eq!(driver_says(b"test_driver_depth\0"), 0, "contexts left");
    });
}

#[test]
fn bytes_that_are_no_bools() {
    with_driver("bytes_that_are_no_bools", &[], || {
        let mut bytes = [0u8, 1, 2];
        let info = CudaMemoryInfo::device(0).unwrap();
        // SAFETY: memory of three bytes, which nobody else uses; the tensor never shows them as bools unseen.
        let tensor = unsafe {
            DeviceTensor::<bool>::from_device_pointer(
                &info,
                [3],
                NonNull::from(&mut bytes).cast::<bool>(),
            )
        }
        .unwrap();
        refused(tensor.to_vec(), &["no bool"]);
        refused(tensor.copy_to_host(&mut [false; 3]), &["no bool"]);
        let stream = CudaStream::new(CudaDevice::open(0).unwrap()).unwrap();
        let mut there = [false; 3];
        refused(
            stream.scope(|copies| copies.to_host(&tensor, &mut there)),
            &["bool"],
        );
    });
}

#[test]
fn copies_beside_other_work() {
    with_driver("copies_beside_other_work", &[], || {
        let stream = CudaStream::new(CudaDevice::open(0).unwrap()).unwrap();
        let source = [1f32, 2.0, 3.0];
        let mut memory = [0f32; 3];
        let at = memory.as_ptr();
        let mut there = device(&[3], &mut memory);
        let seen = stream
            .scope(|copies| {
                copies.to_device(&source, &mut there)?;
                // This driver copies when it is waited for, not before.
                // SAFETY: an address of live floats, read as the device would write them.
                Ok(unsafe { at.read_volatile() })
            })
            .unwrap();
        assert_eq!(seen, 0.0);
        assert_eq!(there.to_vec().unwrap(), source);

        // In the order in which they were queued.
        let (mut other, mut back) = ([0f32; 3], [0f32; 3]);
        let mut beside = device(&[3], &mut other);
        stream
            .scope(|copies| copies.on_device(&there, &mut beside))
            .unwrap();
        stream
            .scope(|copies| copies.to_host(&beside, &mut back))
            .unwrap();
        assert_eq!(back, source);

        // What was queued is copied also when the rest fails or panics.
        let mut back = [0f32; 3];
        refused(
            stream.scope(|copies| {
                copies.to_host(&beside, &mut back)?;
                copies.to_device(&source[..1], &mut there)
            }),
            &["expected 3 elements", "found 1"],
        );
        assert_eq!(back, source);
        let mut back = [0f32; 3];
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            stream.scope(|copies| {
                copies.to_host(&beside, &mut back)?;
                if !copies_nothing() {
                    panic!("on purpose");
                }
                Ok(())
            })
        }))
        .unwrap_err();
        assert_eq!(back, source);

        let again = stream.clone();
        assert_eq!(driver_says(b"test_driver_streams\0"), 1);
        drop(stream);
        assert_eq!(driver_says(b"test_driver_streams\0"), 1);
        let options = CudaOptions::device(0).stream(&again);
        drop(again);
        assert_eq!(
            driver_says(b"test_driver_streams\0"),
            1,
            "the options hold it"
        );
        drop(options);
        assert_eq!(driver_says(b"test_driver_streams\0"), 0);
        assert_eq!(driver_says(b"test_driver_depth\0"), 0, "contexts left");
    });
}

fn copies_nothing() -> bool {
    std::env::var_os(CHILD).is_none()
}

#[test]
fn devices_and_their_memory() {
    with_driver(
        "devices_and_their_memory",
        &[("TEST_DRIVER_DEVICES", "2")],
        || {
            assert_eq!(CudaDevice::count().unwrap(), 2);
            assert_eq!(CudaDevice::driver_version().unwrap(), (13, 0));
            let device = CudaDevice::open(1).unwrap();
            assert_eq!(device.ordinal(), 1);
            assert_eq!(device.name().unwrap(), "a device of the tests");
            assert_eq!(device.compute_capability().unwrap(), (9, 0));
            refused(CudaDevice::open(2), &["below 2", "number 2"]);
            // This driver's memory is taken by one MiB each time it is asked for.
            let mut meter = MemoryMeter::start(device).unwrap();
            for _ in 0..3 {
                meter.sample().unwrap();
            }
            let report = meter.report();
            assert_eq!(report.total, 1 << 30);
            assert_eq!(report.at_start, 64 << 20);
            assert_eq!(report.peak, 67 << 20);
            assert_eq!(report.now, 67 << 20);
            assert_eq!(report.samples, 4);
            let other = CudaStream::new(CudaDevice::open(0).unwrap()).unwrap();
            refused(
                SessionOptions::new()
                    .unwrap()
                    .with_cuda(&CudaOptions::device(1).stream(&other)),
                &["stream of device 1", "device 0"],
            );
        },
    );
}

#[test]
fn a_driver_that_does_not_start() {
    with_driver(
        "a_driver_that_does_not_start",
        &[("TEST_DRIVER_INIT", "100")],
        || {
            refused(
                CudaDevice::count(),
                &[
                    "cuInit",
                    "CUDA_ERROR_NO_DEVICE (100)",
                    "no CUDA-capable device",
                ],
            );
        },
    );
}

/// A folder with a provider that needs this library, which is there.
fn install(folder: &Path, needed: &str) {
    compile_empty(folder, "libonnxruntime_providers_shared.so", &[], &[]);
    let library = compile_empty(folder, needed, &[], &[]);
    compile_empty(
        folder,
        "libonnxruntime_providers_cuda.so",
        &[&library],
        &["-Wl,-rpath,$ORIGIN"],
    );
}

#[test]
fn no_device() {
    with_driver("no_device", &[("TEST_DRIVER_DEVICES", "0")], || {
        let folder = tempfile::tempdir().unwrap();
        install(folder.path(), "libcudart.so.13");
        let status = CudaStatus::probe_folder(folder.path());
        refused(status.ensure(0), &["expected device 0", "found 0 devices"]);
        assert!(status.to_string().ends_with("devices: 0"), "{status}");
    });
}

#[test]
fn a_driver_older_than_the_libraries() {
    with_driver(
        "a_driver_older_than_the_libraries",
        &[("TEST_DRIVER_VERSION", "12040")],
        || {
            let folder = tempfile::tempdir().unwrap();
            install(folder.path(), "libcudart.so.13");
            refused(
                CudaStatus::probe_folder(folder.path()).ensure(0),
                &["driver for CUDA 13", "one for CUDA 12.4"],
            );
        },
    );
}

#[test]
fn all_is_there() {
    with_driver("all_is_there", &[], || {
        let folder = tempfile::tempdir().unwrap();
        install(folder.path(), "libcudart.so.13");
        let status = CudaStatus::probe_folder(folder.path());
        status.ensure(0).unwrap();
        refused(status.ensure(1), &["expected device 1", "found 1 devices"]);
        assert_eq!(status.driver_version().unwrap(), (13, 0));
        assert_eq!(status.device_count().unwrap(), 1);
    });
}
