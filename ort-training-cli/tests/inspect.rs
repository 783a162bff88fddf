//! Inspecting models, artifacts and checkpoints.

mod support;

use support::{Sandbox, fixture};

/// A row of a table, its cells without borders.
#[track_caller]
fn row(output: &str, first: &str) -> Vec<String> {
    let rows: Vec<Vec<String>> = output
        .lines()
        .map(|line| {
            line.split(['│', '┆'])
                .map(|cell| cell.trim().to_owned())
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    rows.into_iter()
        .find(|cells: &Vec<String>| cells.first().is_some_and(|cell| cell == first))
        .unwrap_or_else(|| panic!("no row {first:?} in\n{output}"))
}

#[test]
fn a_model() {
    let run = Sandbox::new().line("inspect {digits/forward.onnx} --operators");
    let output = &run.says(&["ONNX model"]).stdout;
    assert_eq!(row(output, "images"), ["images", "float32", "[batch, 64]"]);
    assert_eq!(row(output, "logits"), ["logits", "float32", "[batch, 10]"]);
    assert_eq!(
        row(output, "fc1.weight"),
        ["fc1.weight", "[48, 64]", "float32", "3,072", "yes"]
    );
    assert_eq!(row(output, "Gemm"), ["Gemm", "2"]);
    // 48·64 + 48 + 10·48 + 10 floats.
    assert_eq!(
        row(output, "4 in all, 14.4 kB")[1..],
        ["3,610", "4 (3,610)"]
    );
    assert!(row(output, "operator sets")[1].starts_with("ai.onnx "));
}

#[test]
fn artifacts() {
    let run = Sandbox::new().line("inspect {regression}");
    let output = &run
        .says(&["Inputs of a training step", "AdamWOptimizer"])
        .stdout;
    assert_eq!(row(output, "x"), ["x", "float32", "[batch, 4]"]);
    assert_eq!(row(output, "target")[..2], ["target", "float32"]);
    assert_eq!(row(output, "scale"), ["scale", "[8]", "float32", "8", "no"]);
    assert_eq!(
        row(output, "head.bias"),
        ["head.bias", "[1]", "float32", "1", "yes"]
    );
    for file in [
        "training_model.onnx",
        "eval_model.onnx",
        "optimizer_model.onnx",
        "checkpoint",
    ] {
        row(output, file);
    }
    // Gradients and what the session gives itself are no inputs of the caller's.
    assert!(!output.contains("accumulation") && !output.contains("lazy_reset_grad"));
}

#[test]
fn artifacts_without_evaluation_and_optimizer() {
    Sandbox::new()
        .line("inspect {train_only}")
        .says(&["No evaluation model", "No optimizer model"]);
}

#[test]
fn checkpoints() {
    let sandbox = Sandbox::new();
    let run = sandbox.line("inspect {regression/checkpoint}");
    let output = &run.says(&["Without an optimizer's state"]).stdout;
    assert_eq!(
        row(output, "x_proj.weight"),
        ["x_proj.weight", "[8, 4]", "float32", "32", "yes"]
    );
    assert_eq!(row(output, "scale").last().unwrap(), "no");
    let nominal = sandbox.line("inspect {regression/nominal_checkpoint}");
    let output = &nominal.says(&["nominal"]).stdout;
    assert_eq!(row(output, "x_proj.weight")[1], "?");
}

#[test]
fn what_is_none_of_these_is_refused() {
    let sandbox = Sandbox::new();
    sandbox
        .line("inspect nothing.onnx")
        .refuses(&["nothing.onnx", "No such file"]);
    sandbox.write("text.onnx", "hello, world");
    sandbox
        .line("inspect text.onnx")
        .refuses(&["text.onnx", "expected an ONNX model", "12 bytes"]);
    sandbox.write("empty", "");
    sandbox
        .line("inspect empty")
        .refuses(&["empty", "expected an ONNX model", "0 bytes"]);
    let whole = std::fs::read(fixture("digits/forward.onnx")).unwrap();
    sandbox.write("half.onnx", &whole[..whole.len() / 2]);
    sandbox
        .line("inspect half.onnx")
        .refuses(&["half.onnx", "truncated"]);
    let whole = std::fs::read(fixture("digits/checkpoint")).unwrap();
    sandbox.write("half.ckpt", &whole[..whole.len() / 2]);
    sandbox.line("inspect half.ckpt").refuses(&["half.ckpt"]);
    std::fs::create_dir(sandbox.path("folder")).unwrap();
    sandbox
        .line("inspect folder")
        .refuses(&["folder", "training_model.onnx"]);
}
