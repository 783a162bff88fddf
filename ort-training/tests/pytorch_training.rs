//! Real architectures train in Rust as in PyTorch: the same start, batches and optimizer give the same losses and
//! parameters. What PyTorch gave is stored; `ci/pytorch-parity` runs PyTorch itself, and longer.
#![cfg(feature = "artifacts")]

mod artifacts_support;
mod pytorch_support;

use std::collections::BTreeMap;

use artifacts_support::require_artifacts;
use pytorch_support::{Trained, folder, furthest};

/// Trains the model and holds every loss and every parameter against PyTorch's.
fn trains_as_in_pytorch(name: &'static str) {
    require_artifacts();
    let trained = Trained::read(name);
    let mut session = trained.session();
    let before: BTreeMap<String, Vec<f32>> = session
        .checkpoint()
        .parameters()
        .iter()
        .map(|info| {
            let tensor = session.checkpoint().parameter(info.name()).unwrap();
            (info.name().to_owned(), tensor.into_vec())
        })
        .collect();
    let losses = trained.train(&mut session);

    let allowed = trained.file.number("loss_tolerance");
    for (step, (found, expected)) in losses.iter().zip(&trained.losses).enumerate() {
        let apart = (f64::from(*found) - expected).abs() / expected.abs();
        assert!(
            apart <= allowed,
            "{name}: loss of step {step}: expected {expected}, found {found}, {apart:.1e} apart"
        );
    }

    let after: BTreeMap<&str, &[f32]> = trained
        .file
        .tensors
        .iter()
        .filter_map(|(name, tensor)| Some((name.strip_prefix("after.")?, tensor.floats())))
        .collect();
    // All of PyTorch's are here, and what is here is in PyTorch: but for running variances, which are of another kind.
    let missing: Vec<&str> = after
        .keys()
        .copied()
        .filter(|name| !before.contains_key(*name))
        .collect();
    assert!(missing.is_empty(), "{name}: no parameters {missing:?}");
    let unknown: Vec<&String> = before
        .keys()
        .filter(|name| !after.contains_key(name.as_str()) && !name.ends_with(".running_var"))
        .collect();
    assert!(unknown.is_empty(), "{name}: PyTorch has no {unknown:?}");

    // Differences are measured by the largest change that training made to any parameter.
    let is_statistic = |name: &str| name.ends_with(".running_mean");
    let change = |kind: bool| {
        after
            .iter()
            .filter(|(name, _)| is_statistic(name) == kind)
            .map(|(name, expected)| furthest(expected, &before[*name]))
            .fold(0.0, f32::max)
    };
    let (parameters, statistics) = (change(false), change(true));
    assert!(parameters > 0.0, "{name}: PyTorch changed nothing");
    let allowed = trained.file.number("parameter_tolerance") as f32;
    let mut worst = (0.0, "");
    for (parameter, expected) in &after {
        let found = session.checkpoint().parameter(parameter).unwrap();
        let scale = if is_statistic(parameter) {
            statistics
        } else {
            parameters
        };
        let apart = furthest(found.data(), expected) / scale;
        assert!(
            apart <= allowed,
            "{name}: parameter {parameter}: {apart:.1e} of the largest change apart, {allowed:.1e} are allowed"
        );
        if apart > worst.0 {
            worst = (apart, *parameter);
        }
    }
    println!("{name}: furthest parameter {worst:?}");
}

macro_rules! models {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                trains_as_in_pytorch(stringify!($name));
            }
        )*

        /// A fixture that no test trains would be dead weight.
        #[test]
        fn every_stored_training_is_used() {
            let mut stored: Vec<String> = std::fs::read_dir(folder(""))
                .unwrap()
                .map(|entry| entry.unwrap())
                .filter(|entry| entry.path().join("training.safetensors").exists())
                .map(|entry| entry.file_name().into_string().unwrap())
                .collect();
            stored.sort();
            let mut used = vec![$(stringify!($name)),*];
            used.sort_unstable();
            assert_eq!(stored, used);
        }
    };
}

models!(mlp lenet resnet bert distilbert unet lstm gpt);
