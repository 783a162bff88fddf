//! Whole models: layers that behave differently in training, the evaluation form, operator sets, functions, what is
//! refused, and that the same input gives the same bytes.
#![cfg(feature = "artifacts")]

mod artifacts_support;

use artifacts_support::check::gradients;
use artifacts_support::model::{Attr, Model, info};
use artifacts_support::session::{Session, Tensor};
use artifacts_support::training::Training;
use artifacts_support::{Rng, require_artifacts};
use ort_training::artifacts::onnx::{
    FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    data_type,
};
use ort_training::artifacts::{
    Artifacts, ArtifactsBuilder, ArtifactsError, Loss, Optimizer, Reduction,
    differentiable_operators,
};
use prost::Message;

fn graph(bytes: &[u8]) -> GraphProto {
    ModelProto::decode(bytes)
        .expect("a model")
        .graph
        .expect("a graph")
}

fn build(builder: ArtifactsBuilder) -> Artifacts {
    require_artifacts();
    builder.build().unwrap_or_else(|e| panic!("{e}"))
}

/// Central differences of a function of one row of numbers.
fn differences(p: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let mut p = p.to_vec();
    (0..p.len())
        .map(|i| {
            let original = p[i];
            p[i] = original + 1e-5;
            let up = f(&p);
            p[i] = original - 1e-5;
            let down = f(&p);
            p[i] = original;
            (up - down) / 2e-5
        })
        .collect()
}

const CHANNELS: usize = 2;
const EPSILON: f64 = 1e-5;

/// A batch normalization in the form that PyTorch exports in training mode.
fn batch_norm_model(training_form: bool) -> Model {
    let outputs: &[&str] = if training_form {
        &["n", "mean_out", "var_out"]
    } else {
        &["n"]
    };
    let mode = [
        ("training_mode", Attr::Int(training_form.into())),
        ("momentum", Attr::Float(0.8)),
    ];
    Model::new(15)
        .input("x", &[4, CHANNELS as i64, 3])
        .weight("w", &[CHANNELS as i64, 1], &[0.7, -1.3])
        .node("Mul", &["x", "w"], &["h"])
        .weight("scale", &[2], &[1.2, 0.6])
        .weight("bias", &[2], &[0.3, -0.2])
        .weight("mean", &[2], &[0.1, 0.2])
        .weight("var", &[2], &[0.9, 1.1])
        .node_with(
            "BatchNormalization",
            &["h", "scale", "bias", "mean", "var"],
            outputs,
            &mode,
        )
        .node("Tanh", &["n"], &["y"])
        .output("y", &[4, CHANNELS as i64, 3])
}

/// Mean and (population) variance of a channel of h = w·x.
fn statistics(x: &[f64], w: f64, channel: usize) -> (f64, f64) {
    let values: Vec<f64> = x
        .chunks(3)
        .enumerate()
        .filter(|(i, _)| i % CHANNELS == channel)
        .flat_map(|(_, row)| row.iter().map(|x| x * w))
        .collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (
        mean,
        values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64,
    )
}

#[test]
fn batch_normalization_in_training() {
    let x = Rng(5).values(24, -1.0, 2.0);
    let target = Rng(6).values(24, -1.0, 1.0);
    for training_form in [true, false] {
        let model = batch_norm_model(training_form).bytes();
        let artifacts = build(
            ArtifactsBuilder::from_bytes(model.clone())
                .loss(Loss::Mse(Reduction::Sum))
                .extra_outputs(["y"]),
        );
        let report = artifacts.report().clone();
        assert_eq!(report.trainable, ["w", "scale", "bias"]);
        assert_eq!(report.frozen, ["mean", "var"]);
        let artifacts = artifacts.into_bytes().expect("bytes");
        let dims = [4, 2, 3];
        let inputs = [
            ("x".to_owned(), Tensor::f32(&dims, &x)),
            ("target".to_owned(), Tensor::f32(&dims, &target)),
        ];
        let (results, found) = gradients(&artifacts, &report, &model, &inputs);
        let (x, target) = (inputs[0].1.values(), inputs[1].1.values());
        // w, scale, bias of each channel.
        let loss = |p: &[f64]| -> f64 {
            let mut total = 0.0;
            for (i, (&x, &t)) in x.iter().zip(&target).enumerate() {
                let c = i / 3 % CHANNELS;
                let (mean, var) = statistics(&inputs[0].1.values(), p[c], c);
                let y = ((x * p[c] - mean) / (var + EPSILON).sqrt() * p[2 + c] + p[4 + c]).tanh();
                total += (y - t).powi(2);
            }
            total
        };
        let p: Vec<f64> = [0.7f32, -1.3, 1.2, 0.6, 0.3, -0.2].map(f64::from).to_vec();
        assert!((results[0].values()[0] - loss(&p)).abs() < 1e-4);
        let expected = differences(&p, loss);
        let found: Vec<f64> = found.into_iter().flat_map(|(_, g)| g).collect();
        // Scaling a channel before it is normalized changes (almost) nothing: those two are small differences.
        for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
            assert!(
                (f - e).abs() < 2e-5,
                "{i}: {f} for {e}, training form {training_form}"
            );
        }

        // The running statistics follow the batches and are what the evaluation model uses.
        let training = Training::new(artifacts).expect("a session");
        let mut steps = [inputs[0].1.clone(), inputs[1].1.clone()];
        training.train(&mut steps).expect("a step");
        let (mean, var) = statistics(&x, p[0], 0);
        let running = training.parameter("mean").expect("mean").values()[0];
        let expected_mean = 0.8 * f64::from(0.1f32) + 0.2 * mean;
        assert!(
            (running - expected_mean).abs() < 1e-6,
            "{running} for {expected_mean}"
        );
        let running_var = training.parameter("var").expect("var").values()[0];
        assert!(
            (running_var - f64::from(0.9f32)).abs() > 1e-4,
            "{running_var} did not move (batch {var})"
        );
        let evaluated = training.evaluate(&mut steps).expect("an evaluation");
        let y = evaluated[1].values()[0];
        let expected =
            ((x[0] * p[0] - running) / (running_var + EPSILON).sqrt() * p[2] + p[4]).tanh();
        assert!((y - expected).abs() < 1e-5, "{y} for {expected}");
    }
}

fn dropout_model(outputs: &[&str]) -> Model {
    Model::new(15)
        .input("x", &[64, 4])
        .weight("w", &[4, 4], &Rng(8).values(16, 0.5, 1.0))
        .node("MatMul", &["x", "w"], &["h"])
        .scalar("ratio", 0.25)
        .flag("training", true)
        .node("Dropout", &["h", "ratio", "training"], outputs)
        .node("Identity", &["d"], &["y"])
        .output("y", &[64, 4])
}

#[test]
fn dropout() {
    for outputs in [&["d"][..], &["d", "mask"]] {
        let model = dropout_model(outputs).bytes();
        let builder = ArtifactsBuilder::from_bytes(model.clone())
            .loss(Loss::OutputGradient)
            .extra_outputs(["h", "y"]);
        let artifacts = build(builder);
        let report = artifacts.report().clone();
        let artifacts = artifacts.into_bytes().expect("bytes");
        let x = Tensor::f32(&[64, 4], &Rng(9).values(256, 0.5, 1.0));
        let ones = Tensor::f32(&[64, 4], &[1.0; 256]);
        let inputs = [("x".to_owned(), x.clone()), ("y.gradient".to_owned(), ones)];
        let (results, found) = gradients(&artifacts, &report, &model, &inputs);
        let (h, y) = (results[1].values(), results[2].values());
        let kept: Vec<f64> = h.iter().zip(&y).map(|(h, y)| y / h).collect();
        assert!(
            kept.iter()
                .all(|k| k.abs() < 1e-6 || (k - 1.0 / 0.75).abs() < 1e-5),
            "{kept:?}"
        );
        let share = kept.iter().filter(|k| **k > 0.0).count();
        assert!(
            (150..235).contains(&share),
            "{share} of 256 kept at a ratio of 0.25"
        );
        // dL/dw = xᵀ·(mask/0.75), with the very mask of the forward pass.
        let x = x.values();
        for i in 0..4 {
            for j in 0..4 {
                let expected: f64 = (0..64).map(|n| x[n * 4 + i] * kept[n * 4 + j]).sum();
                assert!((found[0].1[i * 4 + j] - expected).abs() < 1e-3);
            }
        }
        // In evaluation nothing is dropped.
        let session = Session::new(&artifacts.eval_model).expect("an evaluation model");
        let w = artifacts_support::check::parameters(&model, &["w".to_owned()]).remove(0);
        let mut feeds = [inputs[0].clone(), w];
        let evaluated = session
            .run(&mut feeds, &["h".to_owned(), "y".to_owned()])
            .expect("an evaluation");
        assert_eq!(evaluated[0], evaluated[1]);
    }
}

/// Whoever reads the mask or the statistics that an inference form does not have still gets something sensible.
#[test]
fn evaluation_form_keeps_its_readers() {
    let model = batch_norm_model(true)
        .node("Add", &["mean_out", "var_out"], &["statistics"])
        .output("statistics", &[2])
        .bytes();
    let artifacts = build(
        ArtifactsBuilder::from_bytes(model)
            .loss(Loss::mse())
            .extra_outputs(["statistics", "mean_out"]),
    );
    let eval = graph(artifacts.eval_model());
    let bn = eval
        .node
        .iter()
        .find(|n| n.op_type.as_deref() == Some("BatchNormalization"))
        .expect("it");
    assert_eq!(bn.output, ["n"]);
    let training = Training::new(artifacts.into_bytes().expect("bytes")).expect("a session");
    let x = Tensor::f32(&[4, 2, 3], &[0.5; 24]);
    let results = training
        .evaluate(&mut [x.clone(), x])
        .expect("an evaluation");
    let sums = results[1].values();
    assert!(
        (sums[0] - 1.0).abs() < 1e-6 && (sums[1] - 1.3).abs() < 1e-6,
        "{sums:?}"
    );
}

/// A small U-Net: transposed convolution on one way up, bilinear and nearest resizing on the other, skip connections.
fn unet() -> Model {
    let mut rng = Rng(91);
    let half = [
        ("mode", Attr::Text("linear")),
        ("coordinate_transformation_mode", Attr::Text("half_pixel")),
    ];
    let pads = [("pads", Attr::Ints(&[1, 1, 1, 1]))];
    let pool = [
        ("kernel_shape", Attr::Ints(&[2, 2])),
        ("strides", Attr::Ints(&[2, 2])),
    ];
    Model::new(17)
        .input("image", &[-1, 1, 16, 16])
        .weight("down1.weight", &[6, 1, 3, 3], &rng.values(54, -0.4, 0.4))
        .weight("down1.bias", &[6], &[0.05; 6])
        .node_with(
            "Conv",
            &["image", "down1.weight", "down1.bias"],
            &["c1"],
            &pads,
        )
        .weight("norm.scale", &[6], &[1.0; 6])
        .weight("norm.bias", &[6], &[0.0; 6])
        .node(
            "InstanceNormalization",
            &["c1", "norm.scale", "norm.bias"],
            &["n1"],
        )
        .node("HardSwish", &["n1"], &["a1"])
        .node_with("MaxPool", &["a1"], &["p1"], &pool)
        .weight("down2.weight", &[8, 6, 3, 3], &rng.values(432, -0.2, 0.2))
        .node_with("Conv", &["p1", "down2.weight"], &["c2"], &pads)
        .node("Elu", &["c2"], &["a2"])
        .weight("up.weight", &[8, 6, 2, 2], &rng.values(192, -0.2, 0.2))
        .node_with(
            "ConvTranspose",
            &["a2", "up.weight"],
            &["u1"],
            &[("strides", Attr::Ints(&[2, 2]))],
        )
        .weight("scales", &[4], &[1.0, 1.0, 2.0, 2.0])
        .node_with("Resize", &["a2", "", "scales"], &["u2"], &half)
        .node_with(
            "Resize",
            &["a2", "", "scales"],
            &["u3"],
            &[("mode", Attr::Text("nearest"))],
        )
        .node_with(
            "Concat",
            &["a1", "u1", "u2", "u3"],
            &["joined"],
            &[("axis", Attr::Int(1))],
        )
        .weight("head.weight", &[1, 28, 3, 3], &rng.values(252, -0.2, 0.2))
        .node_with("Conv", &["joined", "head.weight"], &["logits"], &pads)
        .output("logits", &[-1, 1, 16, 16])
}

#[test]
fn unet_trains_on_the_cpu() {
    let artifacts =
        build(ArtifactsBuilder::from_bytes(unet().bytes()).loss(Loss::bce_with_logits()));
    let mut rewritten: Vec<&str> = artifacts
        .report()
        .rewrites
        .iter()
        .map(|r| r.op_type.as_str())
        .collect();
    rewritten.sort_unstable();
    assert_eq!(
        rewritten,
        [
            "ConvTranspose",
            "Elu",
            "HardSwish",
            "InstanceNormalization",
            "Resize",
            "Resize"
        ]
    );
    assert!(!artifacts.report().trainable.contains(&"scales".to_owned()));
    // The evaluation model keeps the operators.
    let kept = graph(artifacts.eval_model());
    assert!(
        kept.node
            .iter()
            .any(|n| n.op_type.as_deref() == Some("ConvTranspose"))
    );

    let training = Training::new(artifacts.into_bytes().expect("bytes")).expect("a session");
    // Discs to be separated from a noisy ground.
    let (mut images, mut masks) = (Vec::new(), Vec::new());
    let mut rng = Rng(5);
    for _ in 0..4 {
        let (cx, cy, r) = (
            5.0 + 3.0 * (rng.unit() + 1.0),
            5.0 + 3.0 * (rng.unit() + 1.0),
            3.5,
        );
        for i in 0..256 {
            let inside = ((i % 16) as f64 - cx).hypot((i / 16) as f64 - cy) < r;
            masks.push(f64::from(u8::from(inside)));
            images.push(f64::from(u8::from(inside)) + 0.5 * rng.unit());
        }
    }
    let dims = [4, 1, 16, 16];
    let mut inputs = [Tensor::f32(&dims, &images), Tensor::f32(&dims, &masks)];
    let mut losses = Vec::new();
    for _ in 0..60 {
        // The rewritten training form and the evaluation form agree all the way.
        let evaluated = training.evaluate(&mut inputs).expect("an evaluation")[0].values()[0];
        let loss = training.train(&mut inputs).expect("a step")[0].values()[0];
        assert!(
            (loss - evaluated).abs() < 1e-5 * loss,
            "{loss} in training, {evaluated} in evaluation"
        );
        losses.push(loss);
        training.step(0.01).expect("a step");
    }
    assert!(
        losses[59] < 0.2 * losses[0],
        "from {} to {}",
        losses[0],
        losses[59]
    );
}

/// Every operator set that is accepted, with layers whose definition changed between them.
#[test]
fn operator_sets() {
    require_artifacts();
    for opset in 11..=22 {
        let mut rng = Rng(13);
        let mut model = Model::new(opset)
            .input("x", &[-1, 2, 6, 6])
            .weight("conv", &[3, 2, 3, 3], &rng.values(54, -0.4, 0.4))
            .node("Conv", &["x", "conv"], &["c"])
            .weight("scale", &[3], &[1.0; 3])
            .weight("bias", &[3], &[0.1; 3])
            .weight("mean", &[3], &[0.0; 3])
            .weight("var", &[3], &[1.0; 3])
            .node(
                "BatchNormalization",
                &["c", "scale", "bias", "mean", "var"],
                &["n"],
            )
            .node("HardSwish", &["n"], &["a"])
            .node_with(
                "MaxPool",
                &["a"],
                &["p"],
                &[("kernel_shape", Attr::Ints(&[2, 2]))],
            )
            .node("GlobalAveragePool", &["p"], &["g"])
            .node("Flatten", &["g"], &["f"])
            .weight("fc", &[3, 4], &rng.values(12, -0.4, 0.4))
            .node("MatMul", &["f", "fc"], &["y"])
            .output("y", &[-1, 4]);
        if opset < 14 {
            // HardSwish came with 14.
            for node in &mut model.graph().node {
                if node.op_type.as_deref() == Some("HardSwish") {
                    node.op_type = Some("Softplus".to_owned());
                }
            }
        }
        // Cross-entropy came with 12.
        let loss = if opset < 12 {
            Loss::mse()
        } else {
            Loss::cross_entropy()
        };
        let artifacts = ArtifactsBuilder::from_bytes(model.bytes())
            .loss(loss)
            .build()
            .unwrap_or_else(|e| panic!("operator set {opset}: {e}"));
        let training = Training::new(artifacts.into_bytes().expect("bytes"))
            .unwrap_or_else(|e| panic!("operator set {opset}: {e}"));
        let mut inputs = [
            Tensor::f32(&[3, 2, 6, 6], &Rng(1).values(216, -1.0, 1.0)),
            if opset < 12 {
                Tensor::f32(&[3, 4], &Rng(2).values(12, -1.0, 1.0))
            } else {
                Tensor::i64(&[3], &[0, 3, 1])
            },
        ];
        let first = training.train(&mut inputs).expect("a step")[0].values()[0];
        training.evaluate(&mut inputs).expect("an evaluation");
        for _ in 0..30 {
            training.train(&mut inputs).expect("a step");
            training.step(0.03).expect("a step");
        }
        let last = training.train(&mut inputs).expect("a step")[0].values()[0];
        assert!(
            last < 0.8 * first,
            "operator set {opset}: {first} to {last}"
        );
    }
}

/// A model whose layers are calls of its own functions, as newer exporters write them.
#[test]
fn functions_are_differentiated_through() {
    let plain = |name: &str, inputs: &[&str], output: &str| NodeProto {
        op_type: Some(name.to_owned()),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: vec![output.to_owned()],
        ..NodeProto::default()
    };
    let mut model = Model::new(17)
        .input("x", &[-1, 3])
        .weight("w", &[3, 2], &Rng(4).values(6, -1.0, 1.0))
        .weight("b", &[2], &[0.1, 0.2])
        .node("Layer", &["x", "w", "b"], &["y"])
        .output("y", &[-1, 2]);
    model.graph().node[0].domain = Some("local".to_owned());
    model.proto.opset_import.push(OperatorSetIdProto {
        domain: Some("local".to_owned()),
        version: Some(1),
    });
    model.proto.functions.push(FunctionProto {
        name: Some("Layer".to_owned()),
        domain: Some("local".to_owned()),
        input: ["in", "weight", "bias"].map(str::to_owned).to_vec(),
        output: vec!["out".to_owned()],
        node: vec![
            plain("MatMul", &["in", "weight"], "product"),
            plain("Add", &["product", "bias"], "sum"),
            plain("Softplus", &["sum"], "out"),
        ],
        opset_import: vec![OperatorSetIdProto {
            domain: Some(String::new()),
            version: Some(17),
        }],
        ..FunctionProto::default()
    });
    let artifacts = build(ArtifactsBuilder::from_bytes(model.bytes()).loss(Loss::mse()));
    assert_eq!(artifacts.report().trainable, ["w", "b"]);
    assert_eq!(artifacts.report().rewrites.len(), 1);
    let training = Training::new(artifacts.into_bytes().expect("bytes")).expect("a session");
    let mut inputs = [
        Tensor::f32(&[4, 3], &Rng(1).values(12, -1.0, 1.0)),
        Tensor::f32(&[4, 2], &[0.7; 8]),
    ];
    let first = training.train(&mut inputs).expect("a step")[0].values()[0];
    for _ in 0..40 {
        training.train(&mut inputs).expect("a step");
        training.step(0.05).expect("a step");
    }
    let last = training.train(&mut inputs).expect("a step")[0].values()[0];
    assert!(last < 0.1 * first, "{first} to {last}");
}

#[test]
fn what_cannot_be_differentiated_is_named() {
    require_artifacts();
    let model = |op_type: &str, attributes: &[(&str, Attr)]| {
        Model::new(17)
            .input("x", &[2, 3])
            .weight("deep.weight", &[3, 3], &Rng(4).values(9, -1.0, 1.0))
            .node("MatMul", &["x", "deep.weight"], &["h"])
            .integers("axis", &[1])
            .node_with(op_type, &["h"], &["y"], attributes)
            .output("y", &[2, 3])
    };
    let error = ArtifactsBuilder::from_bytes(model("Ceil", &[]).bytes())
        .loss(Loss::mse())
        .build()
        .unwrap_err();
    let ArtifactsError::NotDifferentiable(nodes) = &error else {
        panic!("{error}")
    };
    assert_eq!(nodes.len(), 1);
    assert_eq!(
        (nodes[0].op_type.as_str(), nodes[0].node.as_str()),
        ("Ceil", "Ceil_1")
    );
    assert_eq!(nodes[0].parameter.as_deref(), Some("deep.weight"));
    let text = error.to_string();
    assert!(
        text.contains("Ceil") && text.contains("differentiable_operators"),
        "{text}"
    );

    // Frozen before it, it is no obstacle.
    let both =
        model("Ceil", &[])
            .weight("after", &[3], &[1.0; 3])
            .node("Add", &["y", "after"], &["z"]);
    let mut both = both.output("z", &[2, 3]);
    both.graph().output.remove(0);
    let artifacts = build(
        ArtifactsBuilder::from_bytes(both.bytes())
            .loss(Loss::mse())
            .frozen(["deep.*"]),
    );
    assert_eq!(artifacts.report().trainable, ["after"]);
    assert_eq!(artifacts.report().frozen, ["deep.weight"]);
    Training::new(artifacts.into_bytes().expect("bytes")).expect("a session");

    // A gradient that only CUDA has a kernel for, when rewriting is switched off.
    let transposed = Model::new(17)
        .input("x", &[1, 2, 4, 4])
        .weight("w", &[2, 1, 2, 2], &[0.5; 8])
        .node("ConvTranspose", &["x", "w"], &["y"])
        .output("y", &[1, 1, 5, 5]);
    let error = ArtifactsBuilder::from_bytes(transposed.bytes())
        .loss(Loss::mse())
        .rewrites(false)
        .build()
        .unwrap_err();
    assert!(
        error.to_string().contains("ConvTransposeGrad") && error.to_string().contains("CPU kernel"),
        "{error}"
    );

    // A rewrite that does not apply says why.
    let cropped = Model::new(17)
        .input("x", &[1, 1, 4, 4])
        .weight("w", &[1], &[0.5])
        .node("Mul", &["x", "w"], &["h"])
        .weight("roi", &[8], &[0.0, 0.0, 0.1, 0.1, 1.0, 1.0, 0.9, 0.9])
        .weight("scales", &[4], &[1.0, 1.0, 2.0, 2.0])
        .node_with(
            "Resize",
            &["h", "roi", "scales"],
            &["y"],
            &[
                ("mode", Attr::Text("linear")),
                (
                    "coordinate_transformation_mode",
                    Attr::Text("tf_crop_and_resize"),
                ),
            ],
        )
        .output("y", &[1, 1, 8, 8]);
    let error = ArtifactsBuilder::from_bytes(cropped.bytes())
        .loss(Loss::mse())
        .build()
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("Resize_1") && text.contains("tf_crop_and_resize") && text.contains("'w'"),
        "{text}"
    );
}

#[test]
fn operators_with_gradients_are_listed() {
    require_artifacts();
    let operators = differentiable_operators().expect("a list");
    let has = |name: &str| operators.iter().any(|(_, operator)| operator == name);
    assert!(
        has("Conv") && has("MatMul") && has("LayerNormalization") && has("SoftmaxCrossEntropyLoss")
    );
    assert!(!has("Ceil") && !has("NonMaxSuppression"));
}

/// Nothing of a user's model is lost on the way into the evaluation model.
#[test]
fn metadata_survives() {
    let entry = |k: &str, v: &str| StringStringEntryProto {
        key: Some(k.to_owned()),
        value: Some(v.to_owned()),
    };
    let mut model = Model::new(17)
        .input("x", &[-1, 3])
        .weight("w", &[3, 4], &Rng(4).values(12, -1.0, 1.0))
        .node("MatMul", &["x", "w"], &["y"])
        .output("y", &[-1, 4]);
    model.proto.doc_string = Some("what it does".to_owned());
    model.proto.producer_name = Some("someone".to_owned());
    model.proto.model_version = Some(7);
    model.proto.metadata_props = vec![entry("author", "a person")];
    model.graph().doc_string = Some("the graph".to_owned());
    model.graph().metadata_props = vec![entry("layer", "1")];
    model.graph().node[0].doc_string = Some("the product".to_owned());
    model.graph().node[0].metadata_props = vec![entry("source", "line 3")];
    model.graph().input[0].doc_string = Some("the features".to_owned());
    let before = model.proto.clone();
    let artifacts = build(ArtifactsBuilder::from_bytes(model.bytes()));
    let after = ModelProto::decode(artifacts.eval_model()).expect("a model");
    assert_eq!(
        (
            &after.doc_string,
            &after.producer_name,
            after.model_version,
            &after.metadata_props
        ),
        (
            &before.doc_string,
            &before.producer_name,
            before.model_version,
            &before.metadata_props
        )
    );
    let (after, before) = (
        after.graph.expect("a graph"),
        before.graph.expect("a graph"),
    );
    assert_eq!(
        (&after.doc_string, &after.metadata_props),
        (&before.doc_string, &before.metadata_props)
    );
    assert_eq!(after.node[0], before.node[0]);
    assert_eq!(after.input[0], before.input[0]);
}

/// Double precision trains as far as ONNX Runtime has it: gradients, but no optimizer.
#[test]
fn double_precision() {
    require_artifacts();
    let model = Model::new(17)
        .input("x", &[2, 3])
        .weight("w", &[3, 4], &Rng(4).values(12, -1.0, 1.0))
        .node("MatMul", &["x", "w"], &["y"])
        .output("y", &[2, 4]);
    let double = artifacts_support::model::to_double(&model.bytes());
    let builder = || ArtifactsBuilder::from_bytes(double.clone()).loss(Loss::mse());
    let error = builder().build().unwrap_err();
    assert!(error.to_string().contains("'w' is double"), "{error}");
    let artifacts = build(builder().without_optimizer());
    assert!(artifacts.optimizer_model().is_none());
    let training = graph(artifacts.training_model());
    let gradient = training
        .input
        .iter()
        .find(|i| i.name.as_deref() == Some("w_grad.accumulation.buffer"));
    let expected = info("w_grad.accumulation.buffer", data_type::DOUBLE, &[3, 4]);
    assert_eq!(gradient.map(|g| &g.r#type), Some(&expected.r#type));
}

/// A hash of everything that is made (FNV-1a).
fn digest() -> u64 {
    let artifacts =
        build(ArtifactsBuilder::from_bytes(unet().bytes()).loss(Loss::bce_with_logits()))
            .into_bytes()
            .expect("bytes");
    let recurrent = Model::new(14)
        .input("x", &[4, 2, 2])
        .weight("w", &[2, 12, 2], &Rng(1).values(48, -1.0, 1.0))
        .weight("r", &[2, 12, 3], &Rng(2).values(72, -1.0, 1.0))
        .node_with(
            "LSTM",
            &["x", "w", "r"],
            &["y"],
            &[
                ("hidden_size", Attr::Int(3)),
                ("direction", Attr::Text("bidirectional")),
            ],
        )
        .output("y", &[4, 2, 2, 3]);
    let more = build(
        ArtifactsBuilder::from_bytes(recurrent.bytes())
            .loss(Loss::mse())
            .optimizer(Optimizer::Sgd),
    )
    .into_bytes()
    .expect("bytes");
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for part in [artifacts, more] {
        for bytes in [
            part.training_model,
            part.eval_model,
            part.optimizer_model.expect("made"),
            part.checkpoint,
        ] {
            for byte in bytes {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    hash
}

/// The same bytes from every process: each has its own addresses and its own seeds of hash tables.
#[test]
fn same_input_same_bytes() {
    const CHILD: &str = "ARTIFACTS_DIGEST_CHILD";
    let own = digest();
    if std::env::var_os(CHILD).is_some() {
        println!("digest {own:016x}");
        return;
    }
    assert_eq!(own, digest());
    for _ in 0..4 {
        let output = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "same_input_same_bytes", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("a child");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains(&format!("digest {own:016x}")),
            "{own:016x} here; there: {text}"
        );
    }
}

/// A branch that uses a trained value: no gradient would pass, so it is refused rather than trained in part.
#[test]
fn subgraphs_on_the_way_are_refused() {
    require_artifacts();
    let branch = |op_type: &str| {
        let mut graph = Model::new(17)
            .node(op_type, &["h"], &["b"])
            .output("b", &[2, 3]);
        graph.graph().name = Some(op_type.to_owned());
        graph.proto.graph
    };
    let model = |trained: &str| {
        let mut model = Model::new(17)
            .input("x", &[2, 3])
            .input_of("choice", data_type::BOOL, &[])
            .weight("w", &[3], &[0.1, 0.2, 0.3])
            .weight("v", &[3], &[0.1, 0.2, 0.3])
            .node("Mul", &["x", "w"], &["h"])
            .node("If", &["choice"], &["c"])
            .node("Mul", &["c", "v"], &["y"])
            .output("y", &[2, 3]);
        let node = &mut model.graph().node[1];
        for (name, graph) in [
            ("then_branch", branch("Relu")),
            ("else_branch", branch("Tanh")),
        ] {
            node.attribute
                .push(ort_training::artifacts::onnx::AttributeProto {
                    name: Some(name.to_owned()),
                    r#type: Some(5),
                    g: graph,
                    ..Default::default()
                });
        }
        ArtifactsBuilder::from_bytes(model.bytes())
            .loss(Loss::mse())
            .requires_grad([trained])
    };
    // The gradient of v needs nothing from the branches.
    Training::new(build(model("v")).into_bytes().expect("bytes")).expect("a session");
    let error = model("w").build().unwrap_err().to_string();
    assert!(error.contains("'w'"), "{error}");
    let error = model("*").build().unwrap_err().to_string();
    assert!(
        error.contains("If at node 'If_1'") && error.contains("'h'") && error.contains("'w'"),
        "{error}"
    );
}

/// Frozen normalization holds for layers before the trained ones, too.
#[test]
fn frozen_normalization_off_the_gradient_path() {
    require_artifacts();
    let model = batch_norm_model(true)
        .weight("head", &[3, 2], &Rng(2).values(6, -1.0, 1.0))
        .node("MatMul", &["y", "head"], &["z"])
        .output("z", &[4, 2, 2]);
    let artifacts = build(
        ArtifactsBuilder::from_bytes(model.bytes())
            .loss(Loss::mse())
            .loss_inputs(["z"])
            .requires_grad(["head"])
            .frozen(["w", "scale", "bias"])
            .batch_norm(ort_training::artifacts::BatchNorm::Frozen),
    );
    let training = Training::new(artifacts.into_bytes().expect("bytes")).expect("a session");
    let mut inputs = [
        Tensor::f32(&[4, 2, 3], &Rng(5).values(24, -1.0, 2.0)),
        Tensor::f32(&[4, 2, 2], &Rng(6).values(16, -1.0, 1.0)),
    ];
    let evaluated = training.evaluate(&mut inputs).expect("an evaluation")[0].values()[0];
    let trained = training.train(&mut inputs).expect("a step")[0].values()[0];
    assert!(
        (evaluated - trained).abs() < 1e-6,
        "{evaluated} in evaluation, {trained} in training"
    );
    let mean = training.parameter("mean").expect("mean").values()[0];
    assert!(
        (mean - f64::from(0.1f32)).abs() < 1e-9,
        "the statistics moved to {mean}"
    );
}
