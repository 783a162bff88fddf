//! The artifacts of this crate beside those of ONNX Runtime's Python package. `ci/artifacts-parity` makes the latter
//! and runs this; by itself the test has nothing to compare with and is not run.
#![cfg(feature = "artifacts")]

mod artifacts_support;

use std::path::Path;

use artifacts_support::Rng;
use artifacts_support::session::Tensor;
use artifacts_support::training::Training;
use ort_training::artifacts::onnx::{GraphProto, ModelProto, TypeValue, ValueInfoProto};
use ort_training::artifacts::{AdamW, ArtifactBytes, ArtifactsBuilder, Loss, Optimizer};
use prost::Message;

fn graph(bytes: &[u8]) -> GraphProto {
    ModelProto::decode(bytes)
        .expect("a model")
        .graph
        .expect("a graph")
}

/// Name, kind and element type of a value, and its shape where it is a tensor's.
fn signature(info: &ValueInfoProto) -> String {
    let kind = info.r#type.as_ref().and_then(|t| t.value.as_ref());
    let kind = match kind {
        Some(TypeValue::Tensor(t)) => {
            let dims: Option<Vec<String>> = t
                .shape
                .as_ref()
                .map(|s| s.dim.iter().map(|d| format!("{:?}", d.value)).collect());
            format!("tensor {:?} {dims:?}", t.elem_type)
        }
        other => format!("{other:?}"),
    };
    format!("{} {kind}", info.name.as_deref().unwrap_or_default())
}

fn signatures(infos: &[ValueInfoProto]) -> Vec<String> {
    infos.iter().map(signature).collect()
}

fn ours(case: &str, forward: &Path) -> ArtifactBytes {
    let parts: Vec<&str> = case.split('-').collect();
    let loss = match parts[1] {
        "ce" => Loss::cross_entropy(),
        "bce" => Loss::bce_with_logits(),
        "mse" => Loss::mse(),
        "l1" => Loss::l1(),
        other => panic!("loss {other}"),
    };
    let mut builder = ArtifactsBuilder::from_path(forward)
        .loss(loss)
        .extra_outputs(["logits"]);
    builder = match parts[2] {
        "adamw" => builder.optimizer(Optimizer::adamw()),
        "sgd" => builder.optimizer(Optimizer::Sgd),
        "adamw_clip" => builder
            .optimizer(Optimizer::AdamW(AdamW {
                betas: (0.8, 0.99),
                eps: 1e-5,
                weight_decay: 0.02,
                ..AdamW::default()
            }))
            .clip_grad_norm(0.3),
        other => panic!("optimizer {other}"),
    };
    builder
        .build()
        .unwrap_or_else(|e| panic!("{case}: {e}"))
        .into_bytes()
        .expect("bytes")
}

fn batch(case: &str, rng: &mut Rng) -> Vec<Tensor> {
    let x = if case.starts_with("attention") {
        Tensor::i64(
            &[6, 5],
            &(0..30)
                .map(|_| (rng.next() % 11) as i64)
                .collect::<Vec<_>>(),
        )
    } else if case.starts_with("convnet") {
        Tensor::f32(&[6, 2, 6, 6], &rng.values(6 * 72, -1.0, 1.0))
    } else {
        Tensor::f32(&[6, 8], &rng.values(48, -1.0, 1.0))
    };
    let target = match case.split('-').nth(1) {
        Some("ce") => Tensor::i64(
            &[6],
            &(0..6).map(|_| (rng.next() % 4) as i64).collect::<Vec<_>>(),
        ),
        Some("bce") => Tensor::f32(
            &[6, 4],
            &(0..24).map(|_| (rng.next() % 2) as f64).collect::<Vec<_>>(),
        ),
        _ => Tensor::f32(&[6, 4], &rng.values(24, -1.0, 1.0)),
    };
    vec![x, target]
}

#[test]
#[ignore = "compares with artifacts that ci/artifacts-parity makes; run that"]
fn same_as_python() {
    let root = std::env::var("ARTIFACTS_PARITY_DIR")
        .expect("ARTIFACTS_PARITY_DIR, as ci/artifacts-parity sets it");
    let mut cases: Vec<String> = std::fs::read_dir(&root)
        .expect("the folder")
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "{root} is empty");
    for case in &cases {
        let folder = Path::new(&root).join(case);
        let file = |name: &str| {
            std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{case}/{name}: {e}"))
        };
        let theirs = ArtifactBytes {
            training_model: file("training_model.onnx"),
            eval_model: file("eval_model.onnx"),
            optimizer_model: Some(file("optimizer_model.onnx")),
            checkpoint: file("checkpoint"),
        };
        let ours = ours(case, &folder.join("forward.onnx"));
        for (what, a, b) in [
            (
                "training model",
                &ours.training_model,
                &theirs.training_model,
            ),
            ("evaluation model", &ours.eval_model, &theirs.eval_model),
            (
                "optimizer model",
                ours.optimizer_model.as_ref().expect("made"),
                theirs.optimizer_model.as_ref().expect("read"),
            ),
        ] {
            let (a, b) = (graph(a), graph(b));
            assert_eq!(
                signatures(&a.input),
                signatures(&b.input),
                "{case}: inputs of the {what}"
            );
            assert_eq!(
                signatures(&a.output),
                signatures(&b.output),
                "{case}: outputs of the {what}"
            );
        }

        let (ours, theirs) = (
            Training::new(ours).expect("ours"),
            Training::new(theirs).expect("theirs"),
        );
        let mut worst: f64 = 0.0;
        let (mut first, mut last) = (0.0, 0.0);
        for step in 0..100 {
            let mut rng = Rng(step % 5);
            let mut inputs = batch(case, &mut rng);
            let a = ours.train(&mut inputs).expect("a step")[0].values()[0];
            let b = theirs.train(&mut inputs).expect("a step")[0].values()[0];
            worst = worst.max((a - b).abs() / b.abs().max(1e-3));
            if step == 0 {
                first = a;
            }
            last = a;
            ours.step(0.01).expect("a step");
            theirs.step(0.01).expect("a step");
        }
        println!("{case}: loss {first:.4} to {last:.4}, largest relative difference {worst:.1e}");
        assert!(worst < 1e-6, "{case}: losses differ by {worst:.2e}");
    }
}
