//! What training refuses: each time with the name of what is wrong, what was expected and what was found, and nothing
//! left behind.

mod support;

use support::{Sandbox, digits, doubles, floats, integers, npz};

/// Refused, with these words, and without a folder of a run.
#[track_caller]
fn refused(sandbox: &Sandbox, line: &str, words: &[&str]) {
    let before = sandbox.names();
    sandbox.line(line).refuses(words);
    assert_eq!(before, sandbox.names(), "{line}: something was left behind");
}

#[test]
fn csv_files() {
    let sandbox = Sandbox::new();
    let csv = digits(0..3).csv();
    sandbox.write("rows.csv", &csv);
    let train = |more: &str| format!("train {{digits}} --data {more}");
    refused(
        &sandbox,
        &train("rows.csv --label digits"),
        &["rows.csv", "'digits'", "did you mean 'digit'"],
    );
    refused(
        &sandbox,
        &train("rows.csv"),
        &["'images' and 'labels'", "--label", "pixel0"],
    );
    refused(
        &sandbox,
        &train("rows.csv --label digit --map image=pixel*"),
        &["--map image", "did you mean 'images'"],
    );
    refused(
        &sandbox,
        &train("rows.csv --label digit --map images=pixel0..pixel9"),
        &["'images'", "expected 64", "found 10"],
    );
    refused(
        &sandbox,
        &train("rows.csv --label pixel3"),
        &["line 2", "'pixel3'", "'labels'", "int64"],
    );
    refused(
        &sandbox,
        &train("missing.csv --label digit"),
        &["missing.csv", "No such file"],
    );
    // The third line: a word among numbers, a cell that is missing.
    let with = |cell: &str| {
        let mut lines: Vec<String> = csv.lines().map(str::to_owned).collect();
        lines[2] = format!("{cell}{}", &lines[2][lines[2].find(',').unwrap()..]);
        lines.join("\n")
    };
    sandbox.write("word.csv", with("dark"));
    refused(
        &sandbox,
        &train("word.csv --label digit"),
        &["word.csv", "line 3", "'pixel0'", "float32", "\"dark\""],
    );
    sandbox.write("gap.csv", with(""));
    refused(
        &sandbox,
        &train("gap.csv --label digit"),
        &["gap.csv", "line 3", "'pixel0'"],
    );
    sandbox.write("short.csv", csv.trim_end().rsplit_once(',').unwrap().0);
    refused(
        &sandbox,
        &train("short.csv --label digit"),
        &["short.csv", "64 fields", "65 fields"],
    );
    sandbox.write("header.csv", csv.lines().next().unwrap());
    refused(
        &sandbox,
        &train("header.csv --label digit"),
        &["at least one row"],
    );
    sandbox.write("empty.csv", "");
    refused(
        &sandbox,
        &train("empty.csv --label digit"),
        &["empty.csv", "empty file"],
    );
}

#[test]
fn numpy_files() {
    let sandbox = Sandbox::new();
    let images = || floats(&[2, 64], &[0.5; 128]);
    let train = |more: &str| format!("train {{digits}} --data {more}");
    sandbox.write(
        "names.npz",
        npz(&[("images", images()), ("label", images())]),
    );
    refused(
        &sandbox,
        &train("names.npz"),
        &["names.npz", "'labels'", "did you mean 'label'"],
    );
    sandbox.write(
        "rows.npz",
        npz(&[("images", images()), ("labels", integers(&[3], &[1, 2, 3]))]),
    );
    refused(
        &sandbox,
        &train("rows.npz"),
        &["2 for 'images'", "3 for 'labels'"],
    );
    sandbox.write(
        "type.npz",
        npz(&[("images", images()), ("labels", doubles(&[2], &[1.0, 0.5]))]),
    );
    refused(&sandbox, &train("type.npz"), &["'labels'", "[1]", "0.5"]);
    sandbox.write(
        "shape.npz",
        npz(&[
            ("images", floats(&[2, 63], &[0.5; 126])),
            ("labels", integers(&[2], &[1, 2])),
        ]),
    );
    refused(
        &sandbox,
        &train("shape.npz"),
        &["'images'", "expected 64", "found 63"],
    );
    let whole = npz(&[("images", images())]);
    sandbox.write("half.npz", &whole[..whole.len() / 2]);
    refused(&sandbox, &train("half.npz"), &["half.npz", "truncated"]);
    sandbox.write("images.npy", &images()[..300]);
    refused(
        &sandbox,
        &train("images=images.npy --data labels=images.npy"),
        &["images.npy", "expected 128 elements"],
    );
    refused(
        &sandbox,
        &train("images.npy"),
        &["images.npy", "INPUT=FILE", "images, labels"],
    );
    refused(
        &sandbox,
        &train("imges=images.npy"),
        &["imges", "did you mean 'images'"],
    );
    refused(&sandbox, &train("rows.parquet"), &["rows.parquet", ".csv"]);
}

#[test]
fn artifacts_and_options() {
    let sandbox = Sandbox::new();
    sandbox.write("rows.npz", digits(0..64).npz("images", "labels"));
    refused(
        &sandbox,
        "train nowhere --data rows.npz",
        &["nowhere", "expected a folder of artifacts"],
    );
    refused(
        &sandbox,
        "train {digits} --prefix a_ --data rows.npz",
        &["a_training_model.onnx", "--prefix ''"],
    );
    refused(
        &sandbox,
        "train {train_only} --data rows.npz",
        &["optimizer model"],
    );
    let train = |more: &str| format!("train {{digits}} --data rows.npz {more}");
    refused(
        &sandbox,
        &train("--export out.onnx --export-output logit"),
        &["logit", "did you mean 'logits'"],
    );
    refused(
        &sandbox,
        &train("--export nowhere/out.onnx"),
        &["nowhere", "--export"],
    );
    refused(
        &sandbox,
        &train("--eval rows.npz --accuracy scores"),
        &["--accuracy scores", "logits"],
    );
    refused(
        &sandbox,
        &train("--resume"),
        &["--resume", "expected a checkpoint", "run"],
    );
    refused(&sandbox, &train("--resume missing.ckpt"), &["missing.ckpt"]);
    // A checkpoint, but none of a run.
    refused(
        &sandbox,
        "train {digits} --data rows.npz --resume {digits/checkpoint}",
        &["epochs done"],
    );
    // One of another model.
    refused(
        &sandbox,
        "train {digits} --data rows.npz --resume {regression/checkpoint}",
        &["belong together"],
    );
    refused(&sandbox, &train("--lr -1"), &["--lr"]);
    refused(&sandbox, &train("--lr 0"), &["--lr", "positive"]);
    refused(&sandbox, &train("--epochs 0"), &["--epochs"]);
    refused(&sandbox, &train("--batch-size 0"), &["--batch-size"]);
    refused(
        &sandbox,
        &train("--warmup-steps 3"),
        &["--warmup-steps", "linear"],
    );
    refused(
        &sandbox,
        &train("--batch-size 100 --drop-last"),
        &["100 rows", "found 64"],
    );
}

#[test]
fn a_run_is_not_overwritten_unasked() {
    let sandbox = Sandbox::new();
    sandbox.write("rows.npz", digits(0..64).npz("images", "labels"));
    let line = "train {digits} --data rows.npz --epochs 3";
    sandbox.line(line).says(&[]);
    let before = sandbox.read("run/epoch-0003.ckpt");
    sandbox.line(&format!("{line} --seed 3")).refuses(&[
        "run",
        "3 epochs",
        "--resume",
        "--overwrite",
    ]);
    assert!(before == sandbox.read("run/epoch-0003.ckpt"));
    sandbox
        .line("train {digits} --data rows.npz --epochs 1 --overwrite")
        .says(&[]);
    assert!(!sandbox.path("run/epoch-0003.ckpt").exists());
    assert!(sandbox.path("run/epoch-0001.ckpt").exists());
}

#[test]
fn a_loss_that_is_no_number_stops_the_run() {
    let sandbox = Sandbox::new();
    let rows = npz(&[
        ("x", floats(&[8, 4], &[1.0; 32])),
        ("z", floats(&[8, 3], &[1.0; 24])),
        ("target", floats(&[8, 1], &[1.0; 8])),
    ]);
    sandbox.write("rows.npz", rows);
    sandbox
        .line("train {regression_sgd} --data rows.npz --lr 1e30 --epochs 5 --export out.onnx --export-output prediction")
        .refuses(&["epoch", "the loss became", "learning rate"]);
    assert!(!sandbox.path("out.onnx").exists());
}
