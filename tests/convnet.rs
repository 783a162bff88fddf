//! The convolutional example: it trains here, and on a machine without a GPU it says so when it is asked for one.

// A binary's modules have what only its main function uses.
#[allow(dead_code)]
#[path = "../ort-training/examples/convnet.rs"]
mod example;

use example::network::Network;
use example::options::Options;
use ort_training::CudaStatus;

fn options(out: &std::path::Path) -> Options {
    Options {
        network: Network::Digits,
        steps: 60,
        batch_size: 32,
        cuda: None,
        compare: false,
        memory: false,
        out: out.to_owned(),
    }
}

#[test]
fn convnet_example() {
    let out = tempfile::tempdir().unwrap();
    // It fails by itself when the loss does not fall.
    example::run(&options(out.path())).unwrap();
    let mut on_device = options(out.path());
    on_device.cuda = Some(0);
    on_device.compare = true;
    match CudaStatus::probe().ensure(0) {
        Ok(()) => example::run(&on_device).unwrap(),
        Err(_) => {
            let error = example::run(&on_device).unwrap_err().to_string();
            assert!(error.contains("CUDA"), "{error}");
        }
    }
}
