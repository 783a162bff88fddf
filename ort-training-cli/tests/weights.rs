//! Weights out of a checkpoint and into another.

mod support;

use std::fs;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use support::{Sandbox, fixture, text};

#[test]
fn what_is_exported_can_be_imported() {
    let sandbox = Sandbox::new();
    sandbox
        .line("weights export {digits} -o w.safetensors")
        .says(&["4 parameters", "w.safetensors"]);
    let bytes = fs::read(sandbox.path("w.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("fc1.weight").unwrap().shape(), [48, 64]);

    // Twice the bias, and back out of the checkpoint that it went into.
    let bias = file.tensor("fc2.bias").unwrap();
    let twice: Vec<u8> = bias
        .data()
        .chunks(4)
        .flat_map(|bytes| (f32::from_le_bytes(bytes.try_into().unwrap()) * 2.0).to_le_bytes())
        .collect();
    let one = [(
        "fc2.bias",
        TensorView::new(Dtype::F32, vec![10], &twice).unwrap(),
    )];
    fs::write(
        sandbox.path("one.safetensors"),
        serialize(one, None).unwrap(),
    )
    .unwrap();
    sandbox
        .line("weights import {digits} one.safetensors -o start.ckpt --partial")
        .says(&[
            "1 parameters loaded",
            "not in the file, kept: fc1.bias, fc1.weight, fc2.weight",
        ]);
    sandbox
        .line("weights export {digits} --checkpoint start.ckpt -o again.safetensors")
        .says(&["4 parameters"]);
    let bytes = fs::read(sandbox.path("again.safetensors")).unwrap();
    let again = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(again.tensor("fc2.bias").unwrap().data(), twice);
    assert_eq!(
        again.tensor("fc1.bias").unwrap().data(),
        file.tensor("fc1.bias").unwrap().data()
    );
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let sandbox = Sandbox::new();
    let digits = text(&fixture("digits"));
    let refuses = |weights: &str, words: &[&str]| {
        sandbox
            .run(&["weights", "import", &digits, weights, "-o", "new.ckpt"])
            .refuses(words);
    };
    refuses(
        "absent.safetensors",
        &["absent.safetensors", "No such file"],
    );
    fs::write(sandbox.path("text"), "no tensors").unwrap();
    refuses("text", &["text", "expected a safetensors file"]);
    let strange = [("x", TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap())];
    fs::write(sandbox.path("strange"), serialize(strange, None).unwrap()).unwrap();
    refuses(
        "strange",
        &["missing in the file", "fc1.weight", "no such parameters: x"],
    );
    sandbox
        .run(&[
            "weights",
            "import",
            &digits,
            "strange",
            "-o",
            "new.ckpt",
            "--partial",
        ])
        .refuses(&["strange", "found none"]);
    sandbox
        .run(&["weights", "export", "nowhere", "-o", "w"])
        .refuses(&["nowhere", "expected a folder of artifacts"]);
    sandbox
        .run(&["weights", "export", &digits, "-o", "no/w"])
        .refuses(&["--output no/w", "no folder no"]);
    assert!(!sandbox.path("new.ckpt").exists());
}
