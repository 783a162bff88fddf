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
