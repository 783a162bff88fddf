//! Training data from safetensors files: whole, or in batches as PyTorch saw them.

mod support;

use std::fs;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use support::{Rows, Sandbox, column, digits, fixture};

/// A tensor's name, shape and bytes.
struct Named(String, Dtype, Vec<usize>, Vec<u8>);

fn floats(name: &str, shape: &[usize], values: &[f32]) -> Named {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Named(name.to_owned(), Dtype::F32, shape.to_vec(), bytes)
}

fn integers(name: &str, values: &[i64]) -> Named {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Named(name.to_owned(), Dtype::I64, vec![values.len()], bytes)
}

fn file(tensors: &[Named]) -> Vec<u8> {
    let views = tensors.iter().map(|Named(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
        (name, view)
    });
    serialize(views, None).unwrap()
}

/// The rows in batches that end at these numbers.
fn batches(rows: &Rows, ends: &[usize]) -> Vec<Named> {
    let mut from = 0;
    let mut tensors = Vec::new();
    for (number, &end) in ends.iter().enumerate() {
        tensors.push(floats(
            &format!("batch.{number}.images"),
            &[end - from, 64],
            &rows.features[from * 64..end * 64],
        ));
        tensors.push(integers(
            &format!("batch.{number}.labels"),
            &rows.labels[from..end],
        ));
        from = end;
    }
    tensors
}

#[test]
fn whole_or_in_batches_it_is_the_same_run_as_from_numpy() {
    let sandbox = Sandbox::new();
    let rows = digits(0..96);
    sandbox.write("rows.npz", rows.npz("images", "labels"));
    let whole = |images: &str, labels: &str| {
        file(&[
            floats(images, &[96, 64], &rows.features),
            integers(labels, &rows.labels),
        ])
    };
    sandbox.write("whole.safetensors", whole("images", "labels"));
    sandbox.write("named.safetensors", whole("x", "y"));
    // Twelve batches: they are joined by their numbers, and not in the order of the names' letters.
    let ends: Vec<usize> = (1..=12).map(|number| number * 8).collect();
    sandbox.write("batches.safetensors", file(&batches(&rows, &ends)));
    sandbox.write("uneven.safetensors", file(&batches(&rows, &[40, 41, 96])));
    let mut runs = Vec::new();
    for data in [
        "rows.npz",
        "whole.safetensors",
        "named.safetensors --map images=x --map labels=y",
        "batches.safetensors",
        "uneven.safetensors",
    ] {
        let run = sandbox.line(&format!(
            "train {{digits}} --data {data} --eval {data} --epochs 2 --threads 1 --overwrite"
        ));
        run.says(&["96 rows, 3 steps in an epoch", "evaluation"]);
        runs.push((data, sandbox.read("run/loss.csv")));
    }
    for (data, losses) in &runs[1..] {
        assert!(*losses == runs[0].1, "{data}");
    }
}

#[test]
fn batches_from_pytorch_give_its_losses() {
    let sandbox = Sandbox::new();
    sandbox
        .line("artifacts {pytorch/mlp/model.onnx} -o artifacts --optimizer sgd")
        .says(&["0.weight"]);
    sandbox
        .line(
            "train artifacts --data {pytorch/mlp/training.safetensors} --map x=input.x --map labels=target --no-shuffle \
             --batch-size 4 --epochs 1 --lr 0.01",
        )
        .says(&["32 rows, 8 steps in an epoch"]);
    let found = column(&sandbox.read("run/loss.csv"), "loss");
    let bytes = fs::read(fixture("pytorch/mlp/training.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let expected: Vec<f64> = stored
        .tensor("losses")
        .unwrap()
        .data()
        .chunks(8)
        .map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(found.len(), expected.len());
    for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let apart = (f64::from(*found) - expected).abs() / expected;
        assert!(apart < 1e-4, "step {step}: {found}, {expected} in PyTorch");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let sandbox = Sandbox::new();
    let rows = digits(0..8);
    let refused = |contents: Vec<u8>, options: &str, words: &[&str]| {
        sandbox.write("data.safetensors", contents);
        let line = format!("train {{digits}} --data data.safetensors {options}");
        sandbox.line(&line).refuses(words);
        assert_eq!(sandbox.names(), ["data.safetensors"]);
    };
    let labels = || integers("labels", &rows.labels);
    let images = || floats("images", &[8, 64], &rows.features);
    let whole = file(&[images(), labels()]);
    refused(
        whole[..whole.len() - 4].to_vec(),
        "",
        &["data.safetensors: expected a safetensors file", "truncated"],
    );
    refused(
        file(&[images()]),
        "",
        &["data.safetensors: expected an array 'labels'", "images"],
    );
    refused(
        file(&[images(), integers("label", &rows.labels)]),
        "",
        &["'labels'", "did you mean 'label'"],
    );
    refused(
        file(&[images(), labels()]),
        "--map labels=label",
        &["there is no array 'label'", "did you mean 'labels'"],
    );
    refused(
        file(&[floats("images", &[8, 32], &rows.features[..256]), labels()]),
        "",
        &[
            "input 'images' (float32 [batch, 64])",
            "expected 64",
            "found 32",
        ],
    );
    refused(
        file(&[floats("images", &[4, 64], &rows.features[..256]), labels()]),
        "",
        &["found 4 for 'images' and 8 for 'labels'"],
    );
    refused(
        file(&[images(), floats("labels", &[8], &[0.5; 8])]),
        "",
        &["input 'labels' (int64 [batch])", "int64", "found 0.5"],
    );
    // Batches.
    let without = |name: &str| {
        let mut tensors = batches(&rows, &[2, 4, 8]);
        tensors.retain(|tensor| tensor.0 != name);
        tensors
    };
    refused(
        file(&without("batch.1.labels")),
        "",
        &["expected a tensor batch.1.labels", "3 batches"],
    );
    let mut tensors = without("batch.2.labels");
    tensors.push(integers("batch.2.labels", &rows.labels[..3]));
    refused(
        file(&tensors),
        "",
        &["tensor batch.2.labels: expected 4 rows, as in 'images', found 3"],
    );
    let mut tensors = without("batch.1.images");
    tensors.push(floats("batch.1.images", &[2, 8, 8], &rows.features[..128]));
    refused(
        file(&tensors),
        "",
        &[
            "tensor batch.1.images",
            "expected float32 [2, 64]",
            "found float32 [2, 8, 8]",
        ],
    );
    let mut tensors = batches(&rows, &[2, 8]);
    tensors.push(images());
    refused(file(&tensors), "", &["'images'", "in batches, found both"]);
}
