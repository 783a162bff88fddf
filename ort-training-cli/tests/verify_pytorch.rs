//! Models from PyTorch against what PyTorch computed.

mod support;

use std::collections::HashMap;
use std::fs;

use safetensors::tensor::{Dtype, SafeTensors, View, serialize};
use support::{Run, Sandbox, fixture};

/// A tensor that owns its bytes.
#[derive(Clone)]
struct Owned {
    dtype: Dtype,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl View for Owned {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        self.data.as_slice().into()
    }

    fn data_len(&self) -> usize {
        self.data.len()
    }
}

/// The reference of a fixture, to be bent.
struct Reference {
    tensors: HashMap<String, Owned>,
    metadata: HashMap<String, String>,
}

impl Reference {
    fn of(model: &str) -> Self {
        let path = fixture(&format!("pytorch/{model}/model.reference.safetensors"));
        let bytes = fs::read(path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.tensors().into_iter().map(|(name, view)| {
            let owned = Owned {
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
                data: view.data().to_vec(),
            };
            (name, owned)
        });
        Self {
            tensors: tensors.collect(),
            metadata: header.metadata().clone().unwrap(),
        }
    }

    fn float(&mut self, tensor: &str, element: usize) -> &mut [u8; 4] {
        let tensor = self.tensors.get_mut(tensor).unwrap();
        (&mut tensor.data[4 * element..4 * element + 4])
            .try_into()
            .unwrap()
    }

    /// Adds to one element; what it is then.
    fn bend(&mut self, tensor: &str, element: usize, change: f32) -> f32 {
        let place = self.float(tensor, element);
        let bent = f32::from_le_bytes(*place) + change;
        *place = bent.to_le_bytes();
        bent
    }

    fn rename(&mut self, from: &str, to: &str) {
        let tensor = self.tensors.remove(from).unwrap();
        self.tensors.insert(to.to_owned(), tensor);
    }

    fn bytes(&self) -> Vec<u8> {
        serialize(self.tensors.clone(), Some(self.metadata.clone())).unwrap()
    }

    /// Holds the fixture's model against this.
    fn verify(&self, model: &str, options: &str) -> Run {
        let sandbox = Sandbox::new();
        sandbox.write("bent.safetensors", self.bytes());
        sandbox.line(&format!(
            "verify {{pytorch/{model}/model.onnx}} --reference bent.safetensors {options}"
        ))
    }
}

#[test]
fn outputs_loss_and_gradients_agree() {
    // Convolution, batch normalization, max-pooling and dropout, as exported for training. Nothing but the model is
    // named: its reference lies beside it.
    let run = Sandbox::new().line("verify {pytorch/small/model.onnx}");
    run.says(&[
        "model.reference.safetensors (PyTorch 1.13",
        "agree: 0 of 15 elements outside rtol 1e-4, atol 1e-5",
        "│ conv.weight",
        "│ norm.bias",
        "agree: 0 of 240 elements",
    ]);
    assert!(
        !run.stdout.contains("not in the reference"),
        "{}",
        run.stdout
    );
}

#[test]
fn tied_weights_have_one_gradient() {
    let sandbox = Sandbox::new();
    sandbox
        .line("verify {pytorch/gpt/model.onnx}")
        .says(&["│ word.weight", "agree: 0 of 18,945 elements"]);
    // The same under the tensor's other name.
    let mut reference = Reference::of("gpt");
    assert_eq!(
        reference.metadata["tied"],
        r#"{"head.weight": "word.weight"}"#
    );
    reference.rename("grad.word.weight", "grad.head.weight");
    reference
        .verify("gpt", "")
        .says(&["│ head.weight", "agree: 0 of 18,945 elements"]);
}

/// Mean loss of scores and targets, and its gradient by the scores, as PyTorch's functions define them.
type Loss = fn(f32, f32) -> (f32, f32);

#[test]
fn every_kind_of_loss_is_pytorchs() {
    let losses: [(&str, Loss); 3] = [
        ("mse", |y, t| ((y - t).powi(2), 2.0 * (y - t))),
        ("l1", |y, t| ((y - t).abs(), (y - t).signum())),
        ("bce_with_logits", |y, t| {
            (y.exp().ln_1p() - t * y, 1.0 / (1.0 + (-y).exp()) - t)
        }),
    ];
    for (kind, loss) in losses {
        // Without dropout and batch normalization, the outputs are those of the training step.
        let mut reference = Reference::of("mlp");
        let scores = reference.tensors["output.logits"].clone();
        let values: Vec<f32> = scores
            .data
            .chunks(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        let target: Vec<f32> = (0..values.len()).map(|at| (at % 3) as f32 / 2.0).collect();
        let count = values.len() as f32;
        let columns = scores.shape[1];
        let (mut sum, mut bias) = (0.0, vec![0f32; columns]);
        for (at, (y, t)) in values.iter().zip(&target).enumerate() {
            let (value, gradient) = loss(*y, *t);
            sum += value;
            bias[at % columns] += gradient / count;
        }
        let tensor = |shape: &[usize], values: &[f32]| Owned {
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            data: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        reference
            .tensors
            .retain(|name, _| name.starts_with("input.") || name.starts_with("output."));
        reference.tensors.extend([
            ("target.target".to_owned(), tensor(&scores.shape, &target)),
            ("loss".to_owned(), tensor(&[], &[sum / count])),
            ("grad.4.bias".to_owned(), tensor(&[columns], &bias)),
        ]);
        let info = format!(r#"{{"kind": "{kind}", "output": "logits", "class_axis": 1}}"#);
        reference.metadata.insert("loss".to_owned(), info);
        reference
            .verify("mlp", "")
            .says(&["agree: 0 of 20", "│ 4.bias", "agree: 0 of 6"]);
        reference.bend("grad.4.bias", 2, 0.01);
        reference
            .verify("mlp", "")
            .ends(1, &["gradient '4.bias' at [2]", "differ: 1 of 6"]);
    }
}

#[test]
fn a_bent_output_is_shown() {
    let mut reference = Reference::of("small");
    let bent = reference.bend("output.logits", 7, 0.01);
    let run = reference.verify("small", "");
    run.ends(
        1,
        &[
            "worst element: output 'logits' at [2, 1]: found ",
            &format!(", reference {}, difference 1.0000", f64::from(bent)),
            "differ: 1 of 15",
            "agree: 0 of 240",
        ],
    );
    // Flags win over the reference's tolerances.
    reference
        .verify("small", "--atol 0.02")
        .says(&["agree: 0 of 15"]);
}

#[test]
fn a_bent_gradient_or_loss_is_shown() {
    let mut reference = Reference::of("small");
    let bent = reference.bend("grad.conv.weight", 13, 0.01);
    reference.verify("small", "").ends(
        1,
        &[
            "agree: 0 of 15",
            "worst element: gradient 'conv.weight' at [1, 0, 1, 1]: found ",
            &format!(", reference {}, difference 1.0000", f64::from(bent)),
            "differ: 1 of 240",
        ],
    );
    let mut reference = Reference::of("small");
    reference.bend("loss", 0, 0.01);
    reference
        .verify("small", "")
        .ends(1, &["worst element: loss 'loss' at []", "differ: 1 of 240"]);
}

#[test]
fn a_reference_without_a_training_step_has_outputs_alone() {
    let mut reference = Reference::of("small");
    reference.metadata.remove("loss");
    reference
        .tensors
        .retain(|name, _| name.starts_with("input.") || name.starts_with("output."));
    reference
        .verify("small", "")
        .says(&["agree: 0 of 15", "no training step"]);
}

#[test]
fn the_reference_of_another_model_names_all_that_does_not_fit() {
    let sandbox = Sandbox::new();
    sandbox
        .line(
            "verify {pytorch/mlp/model.onnx} --reference {pytorch/small/model.reference.safetensors}",
        )
        .refuses(&[
            "model.reference.safetensors is the reference of another model",
            "input 'x': expected float32 [batch, 16], found float32 [5, 1, 8, 8]",
            "output 'logits': expected float32 [batch, 5], found float32 [5, 3]",
            "gradient 'classifier.bias': the model has no initializer of this name",
            "gradient 'conv.weight': the model",
            "gradient 'norm.weight': the model",
        ]);
    let mut reference = Reference::of("small");
    reference.rename("input.x", "input.y");
    reference.rename("output.logits", "output.scores");
    let tensor = reference.tensors.get_mut("grad.conv.weight").unwrap();
    tensor.shape = vec![4, 9];
    reference.verify("small", "").refuses(&[
        "input 'y': the model has none of this name",
        "input 'x': expected float32 [batch, 1, 8, 8], found no tensor input.x",
        "output 'scores': the model has none of this name",
        "gradient 'conv.weight': expected float32 [4, 1, 3, 3], as the parameter, found float32 [4, 9]",
    ]);
}

#[test]
fn what_is_no_whole_reference_is_refused() {
    let sandbox = Sandbox::new();
    let bytes = Reference::of("small").bytes();
    for end in [0, 5, 200, bytes.len() - 1] {
        sandbox.write("cut.safetensors", &bytes[..end]);
        sandbox
            .line("verify {pytorch/small/model.onnx} --reference cut.safetensors")
            .refuses(&["cut.safetensors: expected a safetensors file", "truncated"]);
    }
    let refuses = |change: &dyn Fn(&mut Reference), words: &[&str]| {
        let mut reference = Reference::of("small");
        change(&mut reference);
        reference.verify("small", "").refuses(words);
    };
    refuses(
        &|r| drop(r.tensors.remove("target.labels")),
        &["expected the tensor target.labels", "found no target"],
    );
    refuses(
        &|r| r.rename("target.labels", "target.target"),
        &["expected the tensor target.labels", "found target.target"],
    );
    refuses(
        &|r| drop(r.tensors.remove("loss")),
        &["expected the tensor loss"],
    );
    refuses(
        &|r| r.tensors.retain(|name, _| !name.starts_with("grad.")),
        &["expected tensors grad.PARAMETER"],
    );
    refuses(
        &|r| r.tensors.retain(|name, _| !name.starts_with("output.")),
        &["at least one tensor output.NAME"],
    );
    refuses(
        &|r| r.rename("loss", "lost"),
        &["grad.NAME and loss, found 'lost'"],
    );
    refuses(
        &|r| drop(r.metadata.remove("loss")),
        &["expected the entry 'loss' in the metadata", "rtol"],
    );
    let loss = |text: &'static str| {
        move |r: &mut Reference| drop(r.metadata.insert("loss".to_owned(), text.to_owned()))
    };
    refuses(
        &loss(r#"{"kind": "hinge", "output": "logits"}"#),
        &["cross_entropy, bce_with_logits, mse or l1, found 'hinge'"],
    );
    refuses(
        &loss("mse"),
        &["expected kind and output in 'loss', found mse"],
    );
    refuses(
        &loss(r#"{"kind": "cross_entropy", "output": "logit"}"#),
        &["computed from 'logit'", "did you mean 'logits'"],
    );
    refuses(
        &|r| drop(r.metadata.insert("rtol".into(), "small".into())),
        &["expected a number as rtol, found 'small'"],
    );
    let sandbox = Sandbox::new();
    sandbox
        .line("verify {pytorch/small/model.onnx} --output logits")
        .refuses(&["--output", "has its own inputs"]);
    sandbox
        .line("verify {pytorch/small/model.onnx} --reference none.safetensors")
        .refuses(&["none.safetensors", "No such file"]);
}

/// The model with the weights of its layers in a second file, as exporters write large ones.
fn with_external_data(sandbox: &Sandbox, folder: &str) {
    use ort_training::artifacts::onnx::{ModelProto, StringStringEntryProto};
    use prost::Message;
    let bytes = fs::read(fixture("pytorch/small/model.onnx")).unwrap();
    let mut model = ModelProto::decode(bytes.as_slice()).unwrap();
    let mut data = Vec::new();
    for tensor in &mut model.graph.as_mut().unwrap().initializer {
        if !tensor
            .name
            .as_deref()
            .unwrap_or_default()
            .ends_with(".weight")
        {
            continue;
        }
        let raw = tensor.raw_data.take().unwrap();
        let entries = [
            ("location", "weights.bin".to_owned()),
            ("offset", data.len().to_string()),
            ("length", raw.len().to_string()),
        ];
        let entries = entries
            .into_iter()
            .map(|(key, value)| StringStringEntryProto {
                key: Some(key.to_owned()),
                value: Some(value),
            });
        tensor.external_data = entries.collect();
        tensor.data_location = Some(1);
        data.extend_from_slice(&raw);
    }
    assert!(data.len() > 900, "{}", data.len());
    fs::create_dir(sandbox.path(folder)).unwrap();
    sandbox.write(&format!("{folder}/weights.bin"), data);
    sandbox.write(&format!("{folder}/large.onnx"), model.encode_to_vec());
}

#[test]
fn weights_in_a_second_file_are_found_beside_the_model() {
    let sandbox = Sandbox::new();
    with_external_data(&sandbox, "exported");
    sandbox.write(
        "exported/large.reference.safetensors",
        Reference::of("small").bytes(),
    );
    sandbox
        .line("verify exported/large.onnx")
        .says(&["agree: 0 of 15", "agree: 0 of 240"]);
    fs::remove_file(sandbox.path("exported/weights.bin")).unwrap();
    sandbox
        .line("verify exported/large.onnx")
        .refuses(&["exported/large.onnx", "weights.bin"]);
}

#[test]
fn on_cuda_it_agrees_or_says_what_is_missing() {
    let run = Sandbox::new().line("verify {pytorch/small/model.onnx} --cuda");
    match run.status {
        0 => drop(run.says(&["agree: 0 of 15", "agree: 0 of 240"])),
        _ => run.refuses(&["model.onnx: CUDA: expected "]),
    }
}
