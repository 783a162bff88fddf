use prost::Message;

use super::model::onnx;
use super::*;

/// The training, evaluation, optimizer and forward models of a fixture.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ort-training/fixtures")
        .join(name)
}

#[test]
fn forward_gradient_optimizer_and_inserted_operators_are_there() {
    let operators = Operators::read([fixture("digits")]).unwrap();
    assert!(operators.has_domain("ai.onnx") && !operators.has_domain(ML_DOMAIN));
    let onnx = operators
        .by_opset
        .keys()
        .find(|(domain, _)| domain == "ai.onnx")
        .unwrap()
        .1;
    for (domain, version, name) in [
        ("ai.onnx", onnx, "Gemm"),
        ("ai.onnx", onnx, "SoftmaxCrossEntropyLoss"),
        ("com.microsoft", 1, "ReluGrad"),
        ("com.microsoft", 1, "SoftmaxCrossEntropyLossGrad"),
        ("com.microsoft", 1, "InPlaceAccumulatorV2"),
        ("com.microsoft", 1, "AdamWOptimizer"),
        // In no file: put in when the models are opened.
        ("com.microsoft", 1, "FusedMatMul"),
        ("com.microsoft", 1, "FusedGemm"),
        ("ai.onnx", onnx, "Cast"),
    ] {
        assert!(operators.contains(domain, version, name), "{domain} {name}");
    }
    for name in ["LSTM", "Einsum", "Conv"] {
        assert!(!operators.contains("ai.onnx", onnx, name), "{name}");
    }
    assert!(operators.types.contains("float") && !operators.types.contains("double"));
    assert!(operators.count() < 80, "{}", operators.count());
}

#[test]
fn a_list_that_was_written_reads_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let operators = Operators::read([fixture("dropout"), fixture("regression_sgd")]).unwrap();
    let list = dir.path().join("required_operators.config");
    fs::write(&list, operators.to_config()).unwrap();
    assert_eq!(Operators::read([&list]).unwrap(), operators);
    // Models add to one another.
    let one = Operators::read([fixture("dropout")]).unwrap();
    assert_ne!(one, operators);
    assert!(
        one.to_config().contains("DropoutGrad"),
        "{}",
        one.to_config()
    );
}

#[test]
fn a_list_without_types_keeps_all_types() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("a.config");
    fs::write(&list, "# made by hand\nai.onnx;11,13;Add, Mul\n").unwrap();
    let operators = Operators::read([list.clone(), fixture("linear1")]).unwrap();
    assert!(operators.types.is_empty());
    assert!(operators.contains("ai.onnx", 11, "Mul") && operators.contains("ai.onnx", 13, "Add"));
}

#[test]
fn what_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (path, expected) in [
        (
            dir.path().join("none.onnx"),
            "none.onnx, which is not there",
        ),
        (empty, "empty, which has none"),
        (write("a.txt", ""), "a.txt"),
        (
            write("b.onnx", "not a model"),
            "b.onnx: expected an ONNX model",
        ),
        (
            write("c.onnx", ""),
            "c.onnx: expected an ONNX model, found one without a graph",
        ),
        (
            write("d.config", "ai.onnx;x;Add"),
            "d.config: line 1: expected opset versions",
        ),
        (
            write("e.config", "#\nai.onnx;Add"),
            "e.config: line 2: expected `domain;opset",
        ),
        (
            write("f.config", "ai.onnx;1;A d"),
            "expected operators' names",
        ),
        (
            write("g.config", "!globally_allowed_types;half"),
            "found \"!globally_allowed_types;half\"",
        ),
        (
            write("h.config", "ai.onnx;1;Add{\"inputs\": {}}"),
            "without types of their own",
        ),
        (write("i.config", "# nothing"), "at least one operator"),
    ] {
        let message = Operators::read([&path]).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// Each of these was seen in the model that a full build of ONNX Runtime 1.21 on x86-64 had made of the evaluation or
/// training model of the fixture, with all optimizations, and in neither model itself.
#[test]
fn what_onnx_runtime_put_into_real_models_is_there() {
    const NCHWC: &str = "com.microsoft.nchwc";
    const MICROSOFT: &str = "com.microsoft";
    let pooled: &[(&str, &str)] = &[
        (NCHWC, "MaxPool"),
        (NCHWC, "ReorderInput"),
        (NCHWC, "ReorderOutput"),
        (MICROSOFT, "FusedConv"),
    ];
    let transformer: &[(&str, &str)] = &[
        (MICROSOFT, "BiasGelu"),
        (MICROSOFT, "FusedGemm"),
        (MICROSOFT, "FusedMatMul"),
    ];
    for (name, seen) in [
        ("bert", transformer),
        ("distilbert", transformer),
        (
            "gpt",
            &[(MICROSOFT, "BiasGelu"), (MICROSOFT, "FusedMatMul")],
        ),
        ("lenet", pooled),
        ("unet", pooled),
        ("mlp", &[(MICROSOFT, "FusedGemm"), (MICROSOFT, "Gelu")]),
    ] {
        let operators = Operators::read([fixture("pytorch").join(name)]).unwrap();
        for (domain, inserted) in seen {
            assert!(
                operators.contains(domain, 1, inserted),
                "{name}: {domain} {inserted}"
            );
        }
    }
    let lstm = Operators::read([fixture("pytorch/lstm")]).unwrap();
    let has = |name| (1..=25).any(|version| lstm.contains("ai.onnx", version, name));
    assert!(has("Split"));
}

/// A model of one node.
fn single(folder: &Path, domain: &str, op_type: &str) -> PathBuf {
    let opset = |domain: &str, version| onnx::OpsetId {
        domain: domain.into(),
        version,
    };
    let model = onnx::Model {
        graph: Some(Box::new(onnx::Graph {
            node: vec![onnx::Node {
                op_type: op_type.into(),
                domain: domain.into(),
                ..Default::default()
            }],
            ..Default::default()
        })),
        opset_import: vec![
            opset("", 18),
            opset("com.microsoft", 1),
            opset(ML_DOMAIN, 3),
        ],
        functions: Vec::new(),
    };
    let path = folder.join(format!("{op_type}.onnx"));
    fs::write(&path, model.encode_to_vec()).unwrap();
    path
}

/// What a full build had in the place of each function that has no kernel, opened alone.
#[test]
fn functions_without_a_kernel_bring_their_bodies() {
    let dir = tempfile::tempdir().unwrap();
    let microsoft = "com.microsoft";
    for (domain, function, body) in [
        (microsoft, "DivGrad", "Div Mul Neg Reshape Shape"),
        ("", "Bernoulli", "Cast Greater RandomUniformLike"),
        ("", "CastLike", "Cast"),
        (
            "",
            "CenterCropPad",
            "Add Concat Div Max Pad Shape Slice Sub",
        ),
        (
            "",
            "GroupNormalization",
            "Add Cast Concat Div Mul ReduceMean Reshape Shape Sqrt Sub",
        ),
        ("", "HardSwish", "HardSigmoid Mul"),
        ("", "Mish", "Mul Softplus Tanh"),
        (
            "",
            "NegativeLogLikelihoodLoss",
            "Cast Div Equal Gather GatherElements Mul Neg ReduceMean ReduceSum Slice Squeeze Sub Unsqueeze Where",
        ),
        (
            microsoft,
            "NegativeLogLikelihoodLossInternal2",
            "Cast Div Equal GatherElements Mul Neg ReduceSum Slice Squeeze Sub Unsqueeze Where",
        ),
        (
            "",
            "SequenceMap",
            "Identity Loop SequenceAt SequenceEmpty SequenceInsert SequenceLength",
        ),
    ] {
        let operators = Operators::read([single(dir.path(), domain, function)]).unwrap();
        for name in body.split(' ') {
            assert!(
                operators.contains("ai.onnx", 18, name),
                "{function}: {name}"
            );
        }
    }
    let division = Operators::read([dir.path().join("DivGrad.onnx")]).unwrap();
    assert!(division.contains(microsoft, 1, "BroadcastGradientArgs"));
    assert!(division.contains(microsoft, 1, "ReduceSumTraining"));
    // Nothing of ONNX's comes into a graph of Microsoft's operators that have kernels.
    let optimizer = Operators::read([single(dir.path(), microsoft, "AdamWOptimizer")]).unwrap();
    assert_eq!(optimizer.count(), 1, "{}", optimizer.to_config());
    let trees = Operators::read([single(dir.path(), ML_DOMAIN, "TreeEnsembleRegressor")]).unwrap();
    assert!(trees.has_domain(ML_DOMAIN));
}
