//! Inference sessions: what they are fed, what they return, several threads at once.

mod support;

use std::fs;
use std::thread;

use ort_training::{
    AsValue, Dimension, ElementType, InferenceSession, RunOptions, SessionOptions, Tensor,
    TensorRef,
};
use support::{digits_batch, env, fixture, one_thread, refused, session};

fn exported() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("digits.onnx");
    session("digits")
        .export_for_inference(&path, &["logits"])
        .unwrap();
    (folder, path)
}

#[test]
fn inputs_and_outputs_are_described() {
    let (_folder, path) = exported();
    let inference = InferenceSession::builder(&env())
        .options(one_thread())
        .model(&path)
        .build()
        .unwrap();
    let [input] = inference.inputs() else {
        panic!("one input")
    };
    assert_eq!(input.name(), "images");
    assert_eq!(input.element_type(), Some(ElementType::Float32));
    assert_eq!(
        input.dimensions(),
        Some(&[Dimension::Symbolic("batch".into()), Dimension::Fixed(64)][..])
    );
    assert_eq!(
        inference
            .outputs()
            .iter()
            .map(|output| output.name())
            .collect::<Vec<_>>(),
        ["logits"]
    );
}

#[test]
fn files_and_bytes_compute_the_same() {
    let (_folder, path) = exported();
    let from_file = InferenceSession::builder(&env())
        .options(one_thread())
        .model(&path)
        .build()
        .unwrap();
    let from_bytes = InferenceSession::builder(&env())
        .options(one_thread())
        .model_bytes(fs::read(&path).unwrap())
        .build()
        .unwrap();
    let (images, _) = digits_batch(5, 1);
    let first = from_file.run(&[&images]).unwrap().only().unwrap();
    let second = from_bytes
        .run_named(&[("images", &images)])
        .unwrap()
        .take("logits")
        .unwrap();
    assert_eq!(first.shape().unwrap(), [5, 10]);
    assert_eq!(first.data::<f32>().unwrap(), second.data::<f32>().unwrap());
}

#[test]
fn an_empty_batch_is_allowed() {
    let (_folder, path) = exported();
    let inference = InferenceSession::builder(&env())
        .options(one_thread())
        .model(&path)
        .build()
        .unwrap();
    let none = Tensor::<f32>::from_vec([0, 64], Vec::new()).unwrap();
    let logits = inference.run(&[&none]).unwrap().only().unwrap();
    assert_eq!(logits.shape().unwrap(), [0, 10]);
    assert!(logits.data::<f32>().unwrap().is_empty());
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let (_folder, path) = exported();
    let inference = InferenceSession::builder(&env())
        .options(one_thread())
        .model(&path)
        .build()
        .unwrap();
    let images = Tensor::filled([2, 64], 0f32).unwrap();
    refused(
        inference.run(&[]),
        &["inference", "1 inputs", "images", "found 0"],
    );
    refused(inference.run(&[&images, &images]), &["1 inputs", "found 2"]);
    let doubles = Tensor::filled([2, 64], 0f64).unwrap();
    refused(
        inference.run(&[&doubles]),
        &["images", "float32", "float64"],
    );
    let rank3 = Tensor::filled([2, 64, 1], 0f32).unwrap();
    refused(inference.run(&[&rank3]), &["images", "rank 2", "rank 3"]);
    let narrow = Tensor::filled([2, 63], 0f32).unwrap();
    refused(inference.run(&[&narrow]), &["images", "64", "63"]);
    refused(
        inference.run_named(&[("image", &images)]),
        &["\"image\"", "no such input", "images"],
    );
    refused(inference.run_named(&[]), &["images", "found none"]);
    let twice: [(&str, &dyn AsValue); 2] = [("images", &images), ("images", &images)];
    refused(inference.run_named(&twice), &["images", "twice"]);
}

#[test]
fn what_is_no_model_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing.onnx");
    let build = |path: &std::path::Path| InferenceSession::builder(&env()).model(path).build();
    refused(build(&path), &["missing.onnx", "No such file"]);
    refused(
        build(&fixture("digits").join("checkpoint")),
        &["checkpoint", "expected an ONNX model"],
    );
    refused(
        InferenceSession::builder(&env()).build(),
        &["expected a model, found none"],
    );
    refused(
        InferenceSession::builder(&env())
            .model_bytes(b"no".to_vec())
            .build(),
        &["from bytes", "ONNX model"],
    );
    let (_folder, whole) = exported();
    let bytes = fs::read(&whole).unwrap();
    let cut = folder.path().join("cut.onnx");
    for length in [1, bytes.len() / 3, bytes.len() - 1] {
        fs::write(&cut, &bytes[..length]).unwrap();
        refused(build(&cut), &["cut.onnx", "truncated"]);
    }
}

#[test]
fn runs_can_be_kept_from_beginning_by_another_thread() {
    let (_folder, path) = exported();
    let inference = InferenceSession::builder(&env())
        .options(one_thread())
        .model(&path)
        .build()
        .unwrap();
    let images = Tensor::filled([1, 64], 0f32).unwrap();
    let options = RunOptions::new().unwrap();
    inference.run_with(&[&images], &options).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| options.terminate().unwrap());
    });
    let error = inference.run_with(&[&images], &options).unwrap_err();
    assert!(
        error.is_from_onnx_runtime() && error.message().contains("terminate"),
        "{error}"
    );
    options.unset_terminate().unwrap();
    inference.run_with(&[&images], &options).unwrap();
}

#[test]
fn threads_share_a_session() {
    let (_folder, path) = exported();
    let inference = InferenceSession::builder(&env())
        .options(one_thread())
        .model(&path)
        .build()
        .unwrap();
    let expected: Vec<Vec<f32>> = (0..4)
        .map(|seed| {
            let (images, _) = digits_batch(3, seed);
            inference
                .run(&[&images])
                .unwrap()
                .only()
                .unwrap()
                .data::<f32>()
                .unwrap()
                .to_vec()
        })
        .collect();
    thread::scope(|scope| {
        for (seed, expected) in expected.iter().enumerate() {
            let inference = &inference;
            scope.spawn(move || {
                let (images, _) = digits_batch(3, seed);
                for _ in 0..20 {
                    let logits = inference.run(&[&images]).unwrap().only().unwrap();
                    assert_eq!(logits.data::<f32>().unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn borrowed_memory_is_read_in_place_and_outputs_outlive_it() {
    let (_folder, path) = exported();
    let inference = InferenceSession::builder(&env())
        .options(SessionOptions::new().unwrap())
        .model(&path)
        .build()
        .unwrap();
    let logits = {
        let pixels = vec![1f32; 2 * 64];
        let images = TensorRef::new([2, 64], &pixels).unwrap();
        assert_eq!(images.data().as_ptr(), pixels.as_ptr());
        inference.run(&[&images]).unwrap().only().unwrap()
    };
    drop(inference);
    let logits = logits.into_tensor::<f32>().unwrap();
    assert_eq!(logits.data()[..10], logits.data()[10..]);
}
