//! Making artifacts, and training from them. Needs an ONNX Runtime with the artifact maker.

mod support;

use support::{Sandbox, digits, names};

const FILES: [&str; 4] = [
    "checkpoint",
    "eval_model.onnx",
    "optimizer_model.onnx",
    "training_model.onnx",
];

#[test]
fn from_a_model_to_a_trained_one() {
    let sandbox = Sandbox::new();
    sandbox
        .line("artifacts {digits/forward.onnx} -o art --extra-output logits")
        .says(&[
            "fc1.weight",
            "[48, 64]",
            "images, labels",
            "logits",
            "training_model.onnx",
            "optimizer_model.onnx",
        ]);
    assert_eq!(names(&sandbox.path("art")), FILES);
    sandbox
        .line("inspect art")
        .says(&["labels", "AdamWOptimizer", "4 (3,610)"]);
    sandbox.write("rows.npz", digits(0..320).npz("images", "labels"));
    sandbox
        .line("train art --data rows.npz --epochs 10 --lr 5e-3 --export trained.onnx --threads 1")
        .says(&["exported trained.onnx (logits)"]);
    let losses = support::column(&sandbox.read("run/loss.csv"), "loss");
    assert!(losses[99] < losses[0] / 3.0, "{losses:?}");
    // Trained is not what it was.
    let run = sandbox.line("verify trained.onnx {digits/forward.onnx}");
    assert_eq!(run.status, 1, "{run:?}");
}

#[test]
fn options_reach_the_artifacts() {
    let sandbox = Sandbox::new();
    sandbox
        .line(
            "artifacts {digits/forward.onnx} -o a --train fc2.* --freeze fc1.weight --loss mse --target-name wanted \
             --reduction sum --optimizer sgd --clip-grad-norm 1 --prefix p_ --nominal-checkpoint --extra-output logits,relu1 \
             --no-rewrites --batch-norm frozen",
        )
        .says(&["images, wanted", "relu1", "p_nominal_checkpoint"]);
    assert_eq!(names(&sandbox.path("a")).len(), 5);
    let run = sandbox.line("inspect a --prefix p_");
    // fc2 is trained, fc1.weight is kept, fc1.bias is a constant of the models.
    run.says(&[
        "SGDOptimizer",
        "ClipGradNorm",
        "fc1.weight",
        "wanted",
        "2 (490)",
    ]);
    assert!(!run.stdout.contains("fc1.bias"), "{}", run.stdout);
    for line in [
        "--loss bce --pos-weight 2",
        "--loss l1 --optimizer none",
        "--loss output-gradient",
        "--label-smoothing 0.1 --ignore-index -1 --class-axis 1",
        "--class-weights 1,1,1,1,1,1,1,1,1,2 --reduction mean",
        "--adamw-variant torch --beta1 0.8 --beta2 0.99 --eps 1e-8 --weight-decay 0.01",
        "--no-bias-correction",
    ] {
        sandbox
            .line(&format!("artifacts {{digits/forward.onnx}} -o b {line}"))
            .says(&["training_model.onnx"]);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let sandbox = Sandbox::new();
    for (line, words) in [
        (
            "{digits/forward.onnx} --train fc1.wieght",
            &["fc1.wieght", "did you mean", "fc1.weight"][..],
        ),
        (
            "{digits/forward.onnx} --extra-output logit",
            &["logit", "logits"],
        ),
        (
            "{digits/forward.onnx} --loss mse --ignore-index 3",
            &["--ignore-index", "cross-entropy", "mse"],
        ),
        (
            "{digits/forward.onnx} --optimizer sgd --beta1 0.5",
            &["--beta1", "adamw", "sgd"],
        ),
        (
            "{digits/forward.onnx} --optimizer none --clip-grad-norm 1",
            &["--clip-grad-norm"],
        ),
        ("{digits/forward.onnx} --beta1 1.5", &["beta1", "1.5"]),
        ("{digits/forward.onnx} --loss custom", &["--loss-model"]),
        ("{digits/forward.onnx} --loss cross", &["cross-entropy"]),
        ("{digits/checkpoint}", &["checkpoint", "ONNX model"]),
        ("missing.onnx", &["missing.onnx"]),
    ] {
        sandbox
            .line(&format!("artifacts {line} -o art"))
            .refuses(words);
        assert!(sandbox.names().is_empty(), "{line}: {:?}", sandbox.names());
    }
}

#[test]
fn operators_with_gradients_are_listed() {
    let run = Sandbox::new().line("artifacts --list-operators");
    run.says(&["Conv", "Gemm"]);
    assert!(run.stdout.lines().count() > 50, "{}", run.stdout);
}

/// mean((logits - wanted)²), as a model of its own.
fn loss_model() -> Vec<u8> {
    use ort_training::artifacts::onnx::{
        GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TensorType,
        TypeProto, TypeValue, ValueInfoProto, data_type,
    };
    use prost::Message;
    let node = |op_type: &str, inputs: &[&str], output: &str| NodeProto {
        op_type: Some(op_type.into()),
        name: Some(output.into()),
        input: inputs.iter().map(|&input| input.into()).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    };
    let value = |name: &str, dims: usize| ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            value: Some(TypeValue::Tensor(TensorType {
                elem_type: Some(data_type::FLOAT),
                shape: Some(TensorShapeProto {
                    dim: vec![Default::default(); dims],
                }),
            })),
            denotation: None,
        }),
        ..ValueInfoProto::default()
    };
    let mut mean = node("ReduceMean", &["squared"], "mean");
    mean.attribute
        .push(ort_training::artifacts::onnx::AttributeProto {
            name: Some("keepdims".into()),
            r#type: Some(2), // INT
            i: Some(0),
            ..Default::default()
        });
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: None,
            version: Some(17),
        }],
        graph: Some(GraphProto {
            name: Some("loss".into()),
            node: vec![
                node("Sub", &["logits", "wanted"], "difference"),
                node("Mul", &["difference", "difference"], "squared"),
                mean,
            ],
            input: vec![value("logits", 2), value("wanted", 2)],
            output: vec![value("mean", 0)],
            ..GraphProto::default()
        }),
        ..ModelProto::default()
    }
    .encode_to_vec()
}

#[test]
fn a_loss_of_ones_own_trains() {
    let sandbox = Sandbox::new();
    sandbox.write("loss.onnx", loss_model());
    sandbox
        .line("artifacts {digits/forward.onnx} -o art --loss custom --loss-model loss.onnx")
        .says(&["images, wanted"]);
    let rows = digits(0..64);
    let wanted: Vec<f32> = rows
        .labels
        .iter()
        .flat_map(|&label| (0..10).map(move |class| f32::from(class == label)))
        .collect();
    let data = support::npz(&[
        ("images", support::floats(&[64, 64], &rows.features)),
        ("wanted", support::floats(&[64, 10], &wanted)),
    ]);
    sandbox.write("rows.npz", data);
    sandbox
        .line("train art --data rows.npz --epochs 20 --lr 5e-3")
        .says(&[]);
    let losses = support::column(&sandbox.read("run/loss.csv"), "loss");
    assert!(losses[39] < losses[0] / 3.0, "{losses:?}");
}
