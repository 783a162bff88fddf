//! Verifying: planted differences are found and shown, equal models agree.

mod support;

use support::{Sandbox, changed_model, floats, npz};

#[test]
fn a_model_agrees_with_itself() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .line("verify {digits/forward.onnx} {digits/forward.onnx} --rtol 0 --atol 0 --rows 7");
    run.ends(0, &["agree: 0 of 70 elements", "[7, 10]"]);
}

#[test]
fn a_planted_difference_between_models_is_found() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "planted.onnx",
        changed_model("digits/forward.onnx", "fc2.bias", 3, 0.5),
    );
    let run = sandbox.line("verify planted.onnx {digits/forward.onnx} --rows 5");
    // One column of five rows, by 0.5.
    run.ends(
        1,
        &[
            "differ: 5 of 50 elements",
            "output 'logits' at [",
            ", 3]: found",
        ],
    );
    let difference: f64 = run
        .stdout
        .split_once(", difference ")
        .unwrap()
        .1
        .split(',')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((difference - 0.5).abs() < 1e-6, "{}", run.stdout);
    // As large as is allowed.
    let run = sandbox.line("verify planted.onnx {digits/forward.onnx} --rows 5 --atol 0.6");
    run.ends(0, &["agree: 0 of 50"]);
    let run =
        sandbox.line("verify planted.onnx {digits/forward.onnx} --rows 5 --atol 0.4 --rtol 0");
    run.ends(1, &["differ: 5 of 50"]);
}

#[test]
fn saved_results() {
    let sandbox = Sandbox::new();
    let inputs: Vec<f32> = (0..3 * 64).map(|at| (at as f32 * 0.1).cos()).collect();
    sandbox.write("inputs.npz", npz(&[("images", floats(&[3, 64], &inputs))]));
    sandbox
        .line("verify {digits/forward.onnx} --inputs inputs.npz --write-reference saved.npz")
        .says(&["wrote saved.npz: 1 inputs, 1 outputs"]);
    let run = sandbox.line("verify {digits/forward.onnx} --reference saved.npz --rtol 0 --atol 0");
    run.ends(0, &["agree: 0 of 30"]);
    sandbox.write(
        "planted.onnx",
        changed_model("digits/forward.onnx", "fc1.bias", 0, 1.0),
    );
    let run = sandbox.line("verify planted.onnx --reference saved.npz");
    run.ends(1, &["differ: "]);
}

#[test]
fn a_planted_element_in_saved_results_is_shown() {
    let sandbox = Sandbox::new();
    // y = x·weight + bias, by hand.
    use ort_training::artifacts::onnx::ModelProto;
    use prost::Message;
    let bytes = std::fs::read(support::fixture("linear1/forward.onnx")).unwrap();
    let graph = ModelProto::decode(bytes.as_slice()).unwrap().graph.unwrap();
    let values = |name: &str| -> Vec<f32> {
        let tensor = graph
            .initializer
            .iter()
            .find(|t| t.name.as_deref() == Some(name))
            .unwrap();
        tensor
            .raw_data
            .as_ref()
            .unwrap()
            .chunks(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    };
    let x = [1.0f32, -2.0, 0.5, 3.0];
    let y: f32 = x
        .iter()
        .zip(values("weight"))
        .map(|(x, w)| x * w)
        .sum::<f32>()
        + values("bias")[0];
    let saved = |y: f32| npz(&[("x", floats(&[1, 4], &x)), ("y", floats(&[1, 1], &[y]))]);
    sandbox.write("right.npz", saved(y));
    let run = sandbox.line("verify {linear1/forward.onnx} --reference right.npz");
    run.ends(0, &["agree: 0 of 1"]);
    sandbox.write("planted.npz", saved(y + 0.001));
    let run = sandbox.line("verify {linear1/forward.onnx} --reference planted.npz");
    run.ends(
        1,
        &["output 'y' at [0, 0]", &format!("reference {}", y + 0.001)],
    );
}

#[test]
fn shapes_and_types_differ_without_an_error() {
    let sandbox = Sandbox::new();
    let x = floats(&[1, 4], &[1.0; 4]);
    sandbox.write(
        "shape.npz",
        npz(&[("x", x.clone()), ("y", floats(&[2, 1], &[0.0; 2]))]),
    );
    let run = sandbox.line("verify {linear1/forward.onnx} --reference shape.npz");
    run.ends(1, &["found [1, 1], reference [2, 1]"]);
    sandbox.write(
        "type.npz",
        npz(&[("x", x), ("y", support::integers(&[1, 1], &[0]))]),
    );
    let run = sandbox.line("verify {linear1/forward.onnx} --reference type.npz");
    run.ends(1, &["found float32, reference int64"]);
}

#[test]
fn errors_are_not_differences() {
    let sandbox = Sandbox::new();
    let x = floats(&[1, 4], &[1.0; 4]);
    sandbox
        .line("verify missing.onnx {linear1/forward.onnx}")
        .refuses(&["missing.onnx"]);
    sandbox
        .line("verify {linear1/forward.onnx}")
        .refuses(&["--reference"]);
    sandbox.write(
        "name.npz",
        npz(&[("x", x.clone()), ("yy", floats(&[1], &[0.0]))]),
    );
    sandbox
        .line("verify {linear1/forward.onnx} --reference name.npz")
        .refuses(&["'yy'", "did you mean"]);
    sandbox.write("none.npz", npz(&[("x", x.clone())]));
    sandbox
        .line("verify {linear1/forward.onnx} --reference none.npz")
        .refuses(&["at least one output", "y"]);
    sandbox.write("noinput.npz", npz(&[("y", floats(&[1, 1], &[0.0]))]));
    sandbox
        .line("verify {linear1/forward.onnx} --reference noinput.npz")
        .refuses(&["input 'x'"]);
    sandbox
        .line("verify {linear1/forward.onnx} {digits/forward.onnx}")
        .refuses(&["digits", "no input 'x'", "images"]);
    sandbox
        .line("verify {linear1/forward.onnx} {linear1/forward.onnx} --output z")
        .refuses(&["'z'", "y"]);
    sandbox
        .line("verify {digits/forward.onnx} {digits/forward.onnx} --dim bach=3")
        .refuses(&["bach", "did you mean 'batch'"]);
    sandbox
        .line("verify {digits/forward.onnx} {digits/forward.onnx} --rtol -1")
        .refuses(&["--rtol"]);
    sandbox.write("wrong.npz", npz(&[("images", x)]));
    sandbox
        .line("verify {digits/forward.onnx} {digits/forward.onnx} --inputs wrong.npz")
        .refuses(&["images", "64", "4"]);
}
