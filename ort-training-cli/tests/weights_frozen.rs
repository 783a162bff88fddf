//! Weights of a model from PyTorch whose first layer is frozen, out and in again: names, strictness, and what stays as it is.

mod support;

use std::collections::BTreeMap;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use support::{Sandbox, floats, integers, npz};

/// Everything that PyTorch's `state_dict` has, but for the count of batches.
const ALL: [&str; 7] = [
    "classifier.bias",
    "classifier.weight",
    "conv.weight",
    "norm.bias",
    "norm.running_mean",
    "norm.running_var",
    "norm.weight",
];

type Weights = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn read(sandbox: &Sandbox, name: &str) -> Weights {
    let bytes = sandbox.read(name);
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.tensors().into_iter();
    tensors
        .map(|(name, view)| {
            let tensor = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            (name, tensor)
        })
        .collect()
}

fn write(sandbox: &Sandbox, name: &str, weights: &Weights) {
    let views = weights.iter().map(|(name, (dtype, shape, bytes))| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
        (name, view)
    });
    sandbox.write(name, serialize(views, None).unwrap());
}

/// Artifacts with these options in `artifacts`, and data for them.
fn artifacts(options: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox
        .line(&format!(
            "artifacts {{pytorch/small/model.onnx}} -o artifacts {options}"
        ))
        .says(&["classifier.weight"]);
    let pixels: Vec<f32> = (0..12 * 64)
        .map(|at| (at * 37 % 101) as f32 / 50.0 - 1.0)
        .collect();
    let labels: Vec<i64> = (0..12).map(|row| row % 3).collect();
    let data = npz(&[
        ("x", floats(&[12, 1, 8, 8], &pixels)),
        ("labels", integers(&[12], &labels)),
    ]);
    sandbox.write("data.npz", data);
    sandbox
}

fn differing(a: &Weights, b: &Weights) -> Vec<String> {
    assert!(a.keys().eq(b.keys()));
    a.keys()
        .filter(|name| a[*name] != b[*name])
        .cloned()
        .collect()
}

#[test]
fn frozen_parameters_and_statistics_go_out_and_in_with_the_others() {
    let sandbox = artifacts("--freeze conv.weight");
    let export = |checkpoint: &str, file: &str| {
        sandbox
            .line(&format!(
                "weights export artifacts --checkpoint {checkpoint} -o {file}"
            ))
            .says(&["7 parameters"]);
        read(&sandbox, file)
    };
    let start = export("artifacts/checkpoint", "start.safetensors");
    assert!(start.keys().eq(&ALL));
    sandbox
        .line("train artifacts --data data.npz --epochs 2 --lr 0.01 --batch-size 6")
        .says(&["epoch    2"]);
    let trained = export("run/epoch-0002.ckpt", "trained.safetensors");
    let changed = ALL.iter().filter(|name| **name != "conv.weight");
    assert!(differing(&start, &trained).iter().eq(changed));

    // All of it, and nothing else: strict.
    sandbox
        .line("weights import artifacts trained.safetensors -o loaded.ckpt")
        .says(&["7 parameters loaded"]);
    assert!(export("loaded.ckpt", "again.safetensors") == trained);
    // Frozen is what the artifacts freeze, whatever the file came from: here from a run that trained everything.
    sandbox
        .line("artifacts {pytorch/small/model.onnx} -o all")
        .says(&["conv.weight"]);
    sandbox
        .line("weights import all trained.safetensors -o all/checkpoint")
        .says(&["7 parameters loaded"]);
    sandbox
        .line("train all --data data.npz --epochs 1 --batch-size 6 --output other")
        .says(&["epoch    1"]);
    sandbox
        .line("weights export all --checkpoint other/epoch-0001.ckpt -o all.safetensors")
        .says(&["7 parameters"]);
    let everything = read(&sandbox, "all.safetensors");
    assert!(differing(&trained, &everything).iter().eq(&ALL));
    sandbox
        .line("weights import artifacts all.safetensors -o artifacts/checkpoint")
        .says(&["7 parameters loaded"]);
    sandbox
        .line("train artifacts --data data.npz --epochs 1 --batch-size 6 --overwrite")
        .says(&["epoch    1"]);
    let further = export("run/epoch-0001.ckpt", "further.safetensors");
    assert!(further["conv.weight"] == everything["conv.weight"]);
    assert_eq!(differing(&further, &everything).len(), 6);
}

#[test]
fn strict_is_as_in_pytorch_and_partial_says_the_rest() {
    let sandbox = artifacts("--freeze conv.weight");
    sandbox
        .line("weights export artifacts -o start.safetensors")
        .says(&["7 parameters"]);
    // As `safetensors.torch.save_file(model.state_dict(), …)` writes it.
    let mut state = read(&sandbox, "start.safetensors");
    let count = (Dtype::I64, Vec::new(), 5i64.to_le_bytes().to_vec());
    state.insert("norm.num_batches_tracked".to_owned(), count);
    write(&sandbox, "state.safetensors", &state);
    let import = |file: &str, option: &str| {
        sandbox.line(&format!(
            "weights import artifacts {file} -o new.ckpt {option}"
        ))
    };
    import("state.safetensors", "").refuses(&["no such parameters: norm.num_batches_tracked"]);
    assert!(!sandbox.path("new.ckpt").exists());
    import("state.safetensors", "--partial").says(&[
        "7 parameters loaded",
        "in the file, no such parameter: norm.num_batches_tracked",
    ]);
    // Without the frozen layer: that is missing as any other would be.
    state.remove("conv.weight");
    state.remove("norm.num_batches_tracked");
    write(&sandbox, "rest.safetensors", &state);
    import("rest.safetensors", "").refuses(&["missing in the file: conv.weight"]);
    import("rest.safetensors", "--partial")
        .says(&["6 parameters loaded", "not in the file, kept: conv.weight"]);
    // A frozen one of another shape is refused either way.
    let conv = (Dtype::F32, vec![2], vec![0; 8]);
    state.insert("conv.weight".to_owned(), conv);
    write(&sandbox, "shape.safetensors", &state);
    for option in ["", "--partial"] {
        import("shape.safetensors", option)
            .refuses(&["\"conv.weight\": expected float32 [4, 1, 3, 3], found F32 [2]"]);
    }
}

#[test]
fn what_is_neither_trained_nor_frozen_is_no_parameter() {
    // A constant of the models: the checkpoint does not have it, and neither does the file.
    let sandbox = artifacts("--train classifier.*");
    sandbox
        .line("weights export artifacts -o some.safetensors")
        .says(&["parameters"]);
    let some = read(&sandbox, "some.safetensors");
    assert!(some.contains_key("classifier.weight") && !some.contains_key("conv.weight"));
    let whole = artifacts("");
    whole
        .line("weights export artifacts -o whole.safetensors")
        .says(&["7 parameters"]);
    sandbox.write("whole.safetensors", whole.read("whole.safetensors"));
    sandbox
        .line("weights import artifacts whole.safetensors -o new.ckpt")
        .refuses(&["no such parameters: conv.weight"]);
}
