//! Training: from CSV and NumPy files, with evaluation, resume and export.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use support::{Sandbox, column, digits, fixture, floats, integers, names, text};

const TRAINING: std::ops::Range<usize> = 0..640;
const HELD_OUT: std::ops::Range<usize> = 640..960;

#[test]
fn a_classifier_from_csv() {
    let sandbox = Sandbox::new();
    sandbox.write("train.csv", digits(TRAINING).csv());
    sandbox.write("test.csv", digits(HELD_OUT).csv());
    let run = sandbox.line(
        "train {digits} --data train.csv --eval test.csv --label digit --accuracy logits --epochs 15 --lr 5e-3 \
         --export trained.onnx --threads 1",
    );
    run.says(&[
        "640 rows, 20 steps in an epoch, 15 epochs",
        "epoch   15",
        "exported trained.onnx (logits)",
    ]);
    let last = run
        .stdout
        .lines()
        .find(|line| line.starts_with("epoch   15"))
        .unwrap();
    let accuracy: f64 = last
        .split_once("accuracy ")
        .unwrap()
        .1
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(accuracy > 85.0, "{last}");

    let losses = sandbox.read("run/loss.csv");
    assert_eq!(column(&losses, "loss").len(), 15 * 20);
    let evaluations = column(&losses, "eval_loss");
    assert_eq!(evaluations.len(), 15);
    assert!(evaluations[14] < evaluations[0] / 2.0, "{evaluations:?}");
    assert!(sandbox.read("run/loss.png").starts_with(b"\x89PNG"));
    // The latest two, and no temporary files.
    assert_eq!(
        names(&sandbox.path("run")),
        ["epoch-0014.ckpt", "epoch-0015.ckpt", "loss.csv", "loss.png"]
    );
    sandbox.line("inspect run/epoch-0015.ckpt").says(&[
        "With the optimizer's state after 300 steps",
        "epochs done",
        "batch size",
    ]);
    sandbox
        .line("inspect trained.onnx")
        .says(&["images", "logits"]);
}

#[test]
fn the_same_data_in_every_form_gives_the_same_run() {
    let sandbox = Sandbox::new();
    let rows = digits(0..96);
    sandbox.write("rows.csv", rows.csv());
    sandbox.write("rows.tsv", rows.csv().replace(',', "\t"));
    let csv = rows.csv();
    sandbox.write("bare.csv", csv.split_once('\n').unwrap().1);
    sandbox.write("rows.npz", rows.npz("images", "labels"));
    sandbox.write("named.npz", rows.npz("x", "y"));
    sandbox.write("x.npy", floats(&[96, 8, 8], &rows.features));
    sandbox.write("y.npy", integers(&[96, 1], &rows.labels));
    let mut first: Option<Vec<u8>> = None;
    for data in [
        "--data rows.csv --label digit",
        "--data rows.tsv --map labels=digit",
        "--data rows.csv --map images=pixel* --map labels=digit",
        "--data rows.csv --map images=pixel0..pixel31,pixel32..pixel63 --label digit",
        "--data bare.csv --no-header --label 33",
        "--data rows.npz",
        "--data named.npz --map images=x --map labels=y",
        "--data images=x.npy --data labels=y.npy",
        "--data rows.csv --data labels=y.npy --map images=pixel*",
    ] {
        let run = sandbox.line(&format!(
            "train {{digits}} {data} --epochs 2 --overwrite --threads 1"
        ));
        run.says(&["epoch    2"]);
        let losses = sandbox.read("run/loss.csv");
        assert_eq!(column(&losses, "loss").len(), 6, "{data}");
        match &first {
            None => first = Some(losses),
            Some(first) => assert!(*first == losses, "{data} trains differently"),
        }
    }
    // Another order of rows is another run: the comparison above can fail.
    sandbox
        .line("train {digits} --data rows.npz --epochs 2 --overwrite --threads 1 --seed 1")
        .says(&[]);
    assert!(first.unwrap() != sandbox.read("run/loss.csv"));
}

#[test]
fn several_inputs_from_one_file() {
    let sandbox = Sandbox::new();
    let mut csv = String::from("x0,x1,x2,x3,z0,z1,z2,target\n");
    for row in 0..64 {
        let x = f64::from(row) / 64.0;
        csv += &format!("{x},{},0.5,1,{},0,-1,{}\n", 1.0 - x, x * x, (3.0 * x).sin());
    }
    sandbox.write("rows.csv", csv);
    // `target` is the name of an input; the other two are told apart.
    let run = sandbox.line(
        "train {regression} --data rows.csv --map x=x0..x3 --map z=z* --epochs 30 --lr 0.02 --batch-size 16",
    );
    run.says(&["64 rows, 4 steps in an epoch"]);
    let losses = column(&sandbox.read("run/loss.csv"), "loss");
    assert!(losses[119] < losses[0] / 5.0, "{losses:?}");
}

#[test]
fn the_linear_schedule_warms_up_and_falls() {
    let sandbox = Sandbox::new();
    sandbox.write("rows.npz", digits(0..80).npz("images", "labels"));
    sandbox
        .line(
            "train {digits} --data rows.npz --epochs 2 --batch-size 16 --schedule linear --warmup-steps 5 --lr 0.01",
        )
        .says(&[]);
    let rates = column(&sandbox.read("run/loss.csv"), "learning_rate");
    let expected = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.8, 0.6, 0.4, 0.2];
    assert_eq!(rates.len(), expected.len());
    for (rate, part) in rates.iter().zip(expected) {
        assert!((rate - 0.01 * part).abs() < 1e-8, "{rates:?}");
    }
}

/// What a run leaves that must not depend on whether it was stopped.
fn result(folder: &Sandbox, run: &str) -> (Vec<u8>, Vec<u8>) {
    (
        folder.read(&format!("{run}/loss.csv")),
        folder.read(&format!("{run}.onnx")),
    )
}

#[test]
fn a_killed_run_goes_on_as_if_nothing_had_been() {
    let sandbox = Sandbox::new();
    sandbox.write("rows.npz", digits(TRAINING).npz("images", "labels"));
    sandbox.write("test.npz", digits(HELD_OUT).npz("images", "labels"));
    let line = |run: &str, more: &str| {
        format!(
            "train {{digits}} --data rows.npz --eval test.npz --epochs 40 --schedule linear --warmup-steps 30 --lr 0.01 \
             --threads 1 --batch-size 8 --output {run} --export {run}.onnx {more}"
        )
    };
    sandbox.line(&line("whole", "")).says(&[]);

    let artifacts = text(&fixture("digits"));
    let words = line("killed", "");
    let words: Vec<&str> = words
        .split_whitespace()
        .map(|word| if word == "{digits}" { &artifacts } else { word })
        .collect();
    let mut child = sandbox
        .command(&words)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&sandbox.path("killed/epoch-0003.ckpt"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !sandbox.path("killed.onnx").exists(),
        "it was over before it was killed: the test shows nothing"
    );

    sandbox
        .line(&line("killed", "--resume"))
        .says(&["of them done", "epoch   40"]);
    assert!(result(&sandbox, "whole") == result(&sandbox, "killed"));
}

fn wait_for(path: &Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{} did not appear",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_run_with_dropout_goes_on_as_if_nothing_had_been() {
    let sandbox = Sandbox::new();
    let x: Vec<f32> = (0..128).map(|at| (at as f32 * 0.37).sin()).collect();
    let y: Vec<f32> = x.chunks(4).map(|row| row.iter().sum()).collect();
    let rows = support::npz(&[("x", floats(&[32, 4], &x)), ("target", floats(&[32], &y))]);
    sandbox.write("rows.npz", rows);
    let line = |run: &str, more: &str| {
        format!(
            "train {{dropout}} --data rows.npz --batch-size 8 --lr 0.01 --threads 1 --keep 0 --output {run} \
             --export {run}.onnx --export-output y {more}"
        )
    };
    sandbox.line(&line("whole", "--epochs 6")).says(&[]);
    sandbox.line(&line("stopped", "--epochs 3")).says(&[]);
    sandbox
        .line(&line("stopped", "--epochs 6 --resume"))
        .says(&["3 of them done"]);
    assert!(result(&sandbox, "whole") == result(&sandbox, "stopped"));
    // An earlier checkpoint, by its name.
    sandbox
        .line(&line(
            "stopped",
            "--epochs 6 --resume stopped/epoch-0002.ckpt",
        ))
        .says(&["2 of them done"]);
    assert!(result(&sandbox, "whole") == result(&sandbox, "stopped"));
    // Dropout does something: another seed drops others, even with the rows in order.
    sandbox
        .line(&line("a", "--epochs 1 --no-shuffle"))
        .says(&[]);
    sandbox
        .line(&line("b", "--epochs 1 --no-shuffle --seed 5"))
        .says(&[]);
    assert!(result(&sandbox, "a") != result(&sandbox, "b"));
}

#[test]
fn another_setting_after_a_resume_is_told() {
    let sandbox = Sandbox::new();
    sandbox.write("rows.npz", digits(0..64).npz("images", "labels"));
    sandbox
        .line("train {digits} --data rows.npz --epochs 1")
        .says(&[]);
    let run =
        sandbox.line("train {digits} --data rows.npz --epochs 2 --resume --batch-size 16 --lr 0.5");
    run.says(&["1 of them done"]);
    for word in [
        "batch size was 32 before and is 16 now",
        "learning rate was 0.001 before and is 0.5 now",
    ] {
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
    // Everything is done: only the export is left.
    sandbox
        .line("train {digits} --data rows.npz --epochs 2 --resume --batch-size 16 --lr 0.5 --export done.onnx --quiet")
        .says(&[]);
    assert!(sandbox.path("done.onnx").exists());
}

#[test]
fn a_fixed_batch() {
    let sandbox = Sandbox::new();
    let rows = support::npz(&[
        ("x", floats(&[3, 4], &[0.5; 12])),
        ("target", floats(&[3, 1], &[1.0; 3])),
    ]);
    sandbox.write("rows.npz", rows);
    sandbox.line("train {linear1} --data rows.npz").refuses(&[
        "--batch-size",
        "expected 1",
        "found 32",
    ]);
    sandbox
        .line("train {linear1} --data rows.npz --batch-size 1 --epochs 1")
        .says(&["3 steps"]);
}

#[test]
fn the_last_batch() {
    let sandbox = Sandbox::new();
    sandbox.write("rows.npz", digits(0..70).npz("images", "labels"));
    for (option, steps) in [("", "3 steps"), ("--drop-last", "2 steps")] {
        sandbox
            .line(&format!(
                "train {{digits}} --data rows.npz --epochs 1 --overwrite {option}"
            ))
            .says(&[steps]);
    }
}
