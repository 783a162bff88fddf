//! Files in and out: bad input, external data, and that a directory is complete or untouched.
#![cfg(feature = "artifacts")]

mod artifacts_support;

use std::fs;
use std::path::{Path, PathBuf};

use artifacts_support::model::{Attr, Model, TOO_LARGE, more_than_protobuf_holds};
use artifacts_support::session::{Session, Tensor};
use artifacts_support::training::Training;
use artifacts_support::{Rng, require_artifacts};
use ort_training::artifacts::onnx::{Bytes, StringStringEntryProto, data_type};
use ort_training::artifacts::{
    AdamW, ArtifactsBuilder, ArtifactsError, BceWithLogits, CrossEntropy, Loss, Optimizer,
};

fn model() -> Model {
    let mut rng = Rng(4);
    Model::new(17)
        .input("x", &[-1, 3])
        .weight("fc1.weight", &[3, 5], &rng.values(15, -1.0, 1.0))
        .weight("fc1.bias", &[5], &rng.values(5, -1.0, 1.0))
        .node("Gemm", &["x", "fc1.weight", "fc1.bias"], &["hidden"])
        .node("Relu", &["hidden"], &["activated"])
        .weight("fc2.weight", &[5, 4], &rng.values(20, -1.0, 1.0))
        .node("MatMul", &["activated", "fc2.weight"], &["logits"])
        .output("logits", &[-1, 4])
}

fn builder() -> ArtifactsBuilder {
    require_artifacts();
    ArtifactsBuilder::from_bytes(model().bytes())
}

/// The error, which has to hold each of `parts`.
#[track_caller]
fn refused(builder: ArtifactsBuilder, parts: &[&str]) -> ArtifactsError {
    let error = match builder.build() {
        Ok(_) => panic!("expected an error that says {parts:?}"),
        Err(error) => error,
    };
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    error
}

#[test]
fn not_a_model() {
    let from = |bytes: &[u8]| ArtifactsBuilder::from_bytes(bytes.to_vec());
    refused(from(b""), &["empty"]);
    refused(
        from(b"this is a text and no model at all"),
        &["not an ONNX model"],
    );
    refused(
        from(
            &Rng(1)
                .values(400, -1.0, 1.0)
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>(),
        ),
        &["not an ONNX model"],
    );
    let bytes = model().bytes();
    for length in [1, 2, 10, bytes.len() / 2, bytes.len() - 1] {
        refused(from(&bytes[..length]), &["not an ONNX model"]);
    }
    let mut no_graph = model();
    no_graph.proto.graph = None;
    refused(from(&no_graph.bytes()), &["no graph"]);
    let mut no_nodes = model();
    no_nodes.graph().node.clear();
    refused(from(&no_nodes.bytes()), &["no nodes"]);
    let mut no_outputs = model();
    no_outputs.graph().output.clear();
    refused(from(&no_outputs.bytes()), &["no outputs"]);

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("missing.onnx");
    let error = refused(ArtifactsBuilder::from_path(&path), &["missing.onnx"]);
    assert!(matches!(error, ArtifactsError::Io { .. }));
}

/// Whatever bytes come, the answer is an error or artifacts, never a crash.
#[test]
fn mutated_models_do_not_crash() {
    require_artifacts();
    let bytes = model().bytes();
    let mut rng = Rng(77);
    let (mut made, mut refused) = (0, 0);
    for _ in 0..400 {
        let mut mutated = bytes.clone();
        for _ in 0..1 + rng.next() % 3 {
            let at = (rng.next() % mutated.len() as u64) as usize;
            mutated[at] = (rng.next() & 0xff) as u8;
        }
        match ArtifactsBuilder::from_bytes(mutated).build() {
            Ok(_) => made += 1,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(refused > 50 && made > 50, "{made} made, {refused} refused");
}

#[test]
fn versions() {
    let with = |change: &dyn Fn(&mut Model)| {
        let mut model = model();
        change(&mut model);
        ArtifactsBuilder::from_bytes(model.bytes())
    };
    refused(
        with(&|m| m.proto.opset_import[0].version = Some(99)),
        &["operator set 99", "11 to 22"],
    );
    refused(
        with(&|m| m.proto.opset_import[0].version = Some(8)),
        &["operator set 8"],
    );
    refused(
        with(&|m| m.proto.opset_import.clear()),
        &["no ONNX operator set"],
    );
    refused(
        with(&|m| m.proto.ir_version = Some(77)),
        &["IR version 77", "3 to 10"],
    );
    refused(with(&|m| m.proto.ir_version = None), &["no IR version"]);
    // An operator that does not exist is ONNX Runtime's to refuse.
    refused(
        with(&|m| m.graph().node[1].op_type = Some("Relux".to_owned())),
        &["Relux"],
    );
    refused(
        with(&|m| m.graph().node[1].input[0] = "nowhere".to_owned()),
        &["nowhere"],
    );
}

#[test]
fn names() {
    let error = refused(
        builder().requires_grad(["fc1.wieght"]),
        &["'fc1.wieght'", "did you mean 'fc1.weight'"],
    );
    assert!(matches!(error, ArtifactsError::Name(_)));
    refused(
        builder().frozen(["fc3.*"]),
        &["'fc3.*'", "matches no parameter", "fc1.weight"],
    );
    refused(builder().requires_grad(["x"]), &["'x'", "not a parameter"]);
    refused(
        builder()
            .requires_grad(["fc1.weight"])
            .frozen(["fc1.weight"]),
        &["both trained and frozen"],
    );
    refused(
        builder().frozen(["*"]),
        &["no parameter to train", "3 frozen by name"],
    );
    refused(
        builder().extra_outputs(["hiden"]),
        &["extra output 'hiden'", "did you mean 'hidden'"],
    );
    refused(
        builder().loss_inputs(["logit"]),
        &["'logit'", "did you mean 'logits'"],
    );
    refused(
        builder()
            .loss(Loss::mse())
            .loss_inputs(["logits", "hidden"]),
        &["one output"],
    );
    refused(builder().prefix("a/b"), &["prefix"]);
    refused(
        builder().prefix("..").requires_grad(["fc1.w\0"]),
        &["fc1.w"],
    );

    let no_weights = Model::new(17)
        .input("x", &[2, 4])
        .node("Relu", &["x"], &["y"])
        .output("y", &[2, 4]);
    refused(
        ArtifactsBuilder::from_bytes(no_weights.bytes()),
        &["no parameter to train", "0 initializers"],
    );
    let unreached = model().weight("stray", &[2], &[1.0, 2.0]);
    refused(
        ArtifactsBuilder::from_bytes(unreached.bytes()).requires_grad(["stray"]),
        &["'stray'", "no gradient"],
    );
    let integers = model().integers("fc9", &[1, 2]);
    refused(
        ArtifactsBuilder::from_bytes(integers.bytes()).requires_grad(["fc9"]),
        &["'fc9'", "int64"],
    );

    // Frozen wins over a pattern.
    let artifacts = builder()
        .requires_grad(["*.weight"])
        .frozen(["fc1.*"])
        .build()
        .expect("artifacts");
    assert_eq!(artifacts.report().trainable, ["fc2.weight"]);
    assert_eq!(artifacts.report().frozen, ["fc1.weight", "fc1.bias"]);
    // What is neither stays a constant.
    let artifacts = builder()
        .requires_grad(["fc2.weight"])
        .build()
        .expect("artifacts");
    assert_eq!(artifacts.report().frozen, [""; 0]);
    assert_eq!(artifacts.report().constants.len(), 2);
    Training::new(artifacts.into_bytes().expect("bytes")).expect("a session");
}

#[test]
fn collisions() {
    for name in [
        "lazy_reset_grad",
        "fc1.bias_grad",
        "fc2.weight_grad.accumulation.buffer",
        "labels",
    ] {
        let mut colliding = model();
        for node in &mut colliding.graph().node {
            for value in node
                .input
                .iter_mut()
                .chain(&mut node.output)
                .filter(|v| *v == "hidden")
            {
                name.clone_into(value);
            }
        }
        refused(ArtifactsBuilder::from_bytes(colliding.bytes()), &[name]);
        if name == "labels" {
            ArtifactsBuilder::from_bytes(colliding.bytes())
                .target_name("class")
                .build()
                .expect("another name");
        }
    }
    // An input of that name and type is the target.
    let own = model().input_of("labels", data_type::INT64, &[-1]);
    let artifacts = ArtifactsBuilder::from_bytes(own.bytes())
        .build()
        .expect("artifacts");
    assert_eq!(artifacts.report().inputs, ["x", "labels"]);
    refused(
        ArtifactsBuilder::from_bytes(model().input("labels", &[-1]).bytes()),
        &["'labels'", "float", "int64"],
    );
}

#[test]
fn losses_that_do_not_fit() {
    let flat = |dims: &[i64], elem_type: i32| {
        let mut model = Model::new(17)
            .input("x", dims)
            .weight("w", &[1], &[1.0])
            .node("Mul", &["x", "w"], &["h"])
            .node_with(
                "Cast",
                &["h"],
                &["y"],
                &[("to", Attr::Int(elem_type.into()))],
            )
            .output("y", dims);
        let output = artifacts_support::model::info("y", elem_type, dims);
        model.graph().output[0] = output;
        ArtifactsBuilder::from_bytes(model.bytes())
    };
    let error = refused(flat(&[6], data_type::FLOAT), &["'y'", "[6]"]);
    assert!(matches!(error, ArtifactsError::Loss(_)));
    refused(
        flat(&[6], data_type::INT64).loss(Loss::mse()),
        &["'y'", "int64"],
    );
    let axis = |class_axis| {
        Loss::CrossEntropy(CrossEntropy {
            class_axis,
            ..CrossEntropy::default()
        })
    };
    refused(builder().loss(axis(2)), &["class axis 2", "logits"]);
    refused(builder().loss(axis(0)), &["class axis 0"]);
    let weights = |n: usize| CrossEntropy {
        class_weights: Some(vec![1.0; n]),
        ..CrossEntropy::default()
    };
    refused(
        builder().loss(Loss::CrossEntropy(weights(3))),
        &["3 class weights", "4 classes"],
    );
    let smoothed = CrossEntropy {
        label_smoothing: 1.5,
        ..CrossEntropy::default()
    };
    refused(
        builder().loss(Loss::CrossEntropy(smoothed)),
        &["label smoothing", "1.5"],
    );
    let positive = |p: Vec<f32>| {
        Loss::BceWithLogits(BceWithLogits {
            pos_weight: Some(p),
            ..BceWithLogits::default()
        })
    };
    refused(
        builder().loss(positive(vec![1.0, 2.0])),
        &["pos_weight has 2", "4"],
    );
    refused(builder().loss(positive(vec![-1.0])), &["not negative"]);
    refused(builder().loss(Loss::InModel), &["'logits'", "one element"]);

    let custom = |model: Model| Loss::custom(model.bytes()).expect("a model");
    let other = Model::new(17)
        .input("scores", &[-1, 4])
        .node("Abs", &["scores"], &["l"])
        .output("l", &[]);
    refused(
        builder().loss(custom(other)),
        &["no input of the loss model", "scores"],
    );
    let older = Model::new(13)
        .input("logits", &[-1, 4])
        .node("Abs", &["logits"], &["l"])
        .output("l", &[]);
    refused(builder().loss(custom(older)), &["operator set 13", "17"]);
    let wide = Model::new(17)
        .input("logits", &[-1, 4])
        .node("Abs", &["logits"], &["l"])
        .output("l", &[-1, 4]);
    refused(builder().loss(custom(wide)), &["one element"]);
    let lying = Model::new(17)
        .input("logits", &[-1, 4])
        .node("Abs", &["logits"], &["l"])
        .output("l", &[]);
    let text = refused(builder().loss(custom(lying)), &[]).to_string();
    assert!(
        text.contains("one element") || text.contains("shape"),
        "{text}"
    );
    assert!(Loss::custom(b"nonsense".to_vec()).is_err());
}

#[test]
fn optimizer_settings() {
    let adamw = |change: &dyn Fn(&mut AdamW)| {
        let mut settings = AdamW::default();
        change(&mut settings);
        builder().optimizer(Optimizer::AdamW(settings))
    };
    refused(adamw(&|a| a.betas.0 = 1.0), &["beta1", "[0, 1)"]);
    refused(adamw(&|a| a.betas.1 = f32::NAN), &["beta2"]);
    refused(adamw(&|a| a.eps = -1.0), &["eps"]);
    refused(
        adamw(&|a| a.weight_decay = f32::INFINITY),
        &["weight_decay"],
    );
    refused(builder().clip_grad_norm(0.0), &["norm", "positive"]);
}

/// The model with one parameter's data in a file beside it.
fn external(folder: &Path, change: impl FnOnce(&mut Vec<(&'static str, String)>)) -> PathBuf {
    let mut model = model();
    let tensor = &mut model.graph().initializer[0];
    let raw = tensor.raw_data.take().expect("raw data");
    let mut file = vec![0xab; 16];
    file.extend_from_slice(&raw);
    fs::write(folder.join("weights.bin"), &file).expect("written");
    let mut entries = vec![
        ("location", "weights.bin".to_owned()),
        ("offset", "16".to_owned()),
        ("length", raw.len().to_string()),
    ];
    change(&mut entries);
    tensor.external_data = entries
        .into_iter()
        .map(|(k, v)| StringStringEntryProto {
            key: Some(k.to_owned()),
            value: Some(v),
        })
        .collect();
    tensor.data_location = Some(1);
    let path = folder.join("model.onnx");
    fs::write(&path, model.bytes()).expect("written");
    path
}

#[test]
fn external_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let reference = builder()
        .build()
        .expect("artifacts")
        .into_bytes()
        .expect("bytes");
    let path = external(folder.path(), |_| {});
    let made = ArtifactsBuilder::from_path(&path)
        .build()
        .expect("artifacts")
        .into_bytes()
        .expect("bytes");
    assert!(
        made.training_model == reference.training_model && made.checkpoint == reference.checkpoint
    );

    // From bytes, the folder has to be said.
    let bytes = fs::read(&path).expect("read");
    refused(
        ArtifactsBuilder::from_bytes(bytes.clone()),
        &["fc1.weight", "weights.bin", "external_data_dir"],
    );
    let made = ArtifactsBuilder::from_bytes(bytes)
        .external_data_dir(folder.path())
        .build()
        .expect("artifacts");
    assert!(made.into_bytes().expect("bytes").checkpoint == reference.checkpoint);

    type Change = fn(&mut Vec<(&'static str, String)>);
    let cases: [(Change, &str); 6] = [
        (|e| e[0].1 = "gone.bin".to_owned(), "gone.bin"),
        (|e| e[1].1 = "999".to_owned(), "which has only"),
        (|e| e[1].1 = "x".to_owned(), "not a number"),
        (|e| e[2].1 = "8".to_owned(), "need 60 bytes"),
        (|e| e[0].1 = "../weights.bin".to_owned(), "outside"),
        (|e| e.clear(), "no file is named"),
    ];
    for (change, text) in cases {
        let path = external(folder.path(), change);
        let error = refused(ArtifactsBuilder::from_path(&path), &["'fc1.weight'", text]);
        assert!(matches!(error, ArtifactsError::ExternalData(_)));
    }
}

/// Old exporters keep data in typed fields, and list initializers among the inputs.
#[test]
fn old_forms_of_models() {
    let mut old = model();
    let tensor = &mut old.graph().initializer[0];
    let raw = tensor.raw_data.take().expect("raw data");
    tensor.float_data = raw
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().expect("4")))
        .collect();
    let listed = artifacts_support::model::info("fc1.weight", data_type::FLOAT, &[3, 5]);
    old.graph().input.insert(0, listed);
    old.proto.ir_version = Some(3);
    let made = ArtifactsBuilder::from_bytes(old.bytes())
        .build()
        .expect("artifacts");
    assert_eq!(made.report().inputs, ["x", "labels"]);
    let reference = builder()
        .build()
        .expect("artifacts")
        .into_bytes()
        .expect("bytes");
    let made = made.into_bytes().expect("bytes");
    assert!(made.checkpoint == reference.checkpoint);
    Training::new(made).expect("a session");

    let mut short = model();
    short.graph().initializer[1].raw_data = Some(Bytes::from(vec![0; 7]));
    refused(ArtifactsBuilder::from_bytes(short.bytes()), &["fc1.bias"]);
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    names.sort();
    names
}

const FOUR: [&str; 4] = [
    "checkpoint",
    "eval_model.onnx",
    "optimizer_model.onnx",
    "training_model.onnx",
];

#[test]
fn writing() {
    let folder = tempfile::tempdir().expect("a folder");
    let artifacts = builder().build().expect("artifacts");
    let target = folder.path().join("deep/er/artifacts");
    let paths = artifacts.write_to(&target).expect("written");
    assert_eq!(names_in(&target), FOUR);
    assert_eq!(names_in(target.parent().expect("a parent")), ["artifacts"]);
    let bytes = artifacts.to_bytes().expect("bytes");
    assert!(fs::read(&paths.training_model).expect("read") == bytes.training_model);
    assert!(fs::read(&paths.eval_model).expect("read") == bytes.eval_model);
    assert!(fs::read(&paths.checkpoint).expect("read") == bytes.checkpoint);
    assert!(
        fs::read(paths.optimizer_model.expect("made")).expect("read")
            == bytes.optimizer_model.expect("made")
    );

    // Again over it, beside a file of somebody else's.
    fs::write(target.join("notes.txt"), "mine").expect("written");
    fs::write(target.join("checkpoint"), "old").expect("written");
    let paths = artifacts.write_to(&target).expect("written");
    assert!(fs::read(&paths.checkpoint).expect("read") == bytes.checkpoint);
    assert_eq!(
        fs::read_to_string(target.join("notes.txt")).expect("read"),
        "mine"
    );
    assert_eq!(names_in(&target).len(), 5);

    let with_all = builder()
        .prefix("tiny_")
        .nominal_checkpoint(true)
        .without_optimizer()
        .build()
        .expect("artifacts");
    let other = folder.path().join("prefixed");
    let paths = with_all.write_to(&other).expect("written");
    assert_eq!(
        names_in(&other),
        [
            "tiny_checkpoint",
            "tiny_eval_model.onnx",
            "tiny_nominal_checkpoint",
            "tiny_training_model.onnx"
        ]
    );
    let nominal = fs::metadata(paths.nominal_checkpoint.expect("made"))
        .expect("there")
        .len();
    assert!(nominal < fs::metadata(&paths.checkpoint).expect("there").len());
}

#[test]
fn a_failed_write_leaves_nothing_new() {
    let folder = tempfile::tempdir().expect("a folder");
    let artifacts = builder().build().expect("artifacts");
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").expect("written");
    assert!(artifacts.write_to(&file).is_err());
    assert!(artifacts.write_to(file.join("below")).is_err());
    assert_eq!(fs::read_to_string(&file).expect("read"), "not a folder");
    assert_eq!(names_in(folder.path()), ["file"]);

    // A file that cannot be replaced, because a folder stands there that is not empty.
    let target = folder.path().join("artifacts");
    let old = artifacts.write_to(&target).expect("written");
    fs::remove_file(&old.eval_model).expect("removed");
    fs::create_dir(&old.eval_model).expect("made");
    fs::write(old.eval_model.join("inside"), "x").expect("written");
    fs::write(&old.checkpoint, "the old one").expect("written");
    let before = names_in(&target);
    let error = artifacts
        .write_to(&target)
        .expect_err("a folder is in the way")
        .to_string();
    assert!(error.contains("eval_model.onnx"), "{error}");
    assert_eq!(names_in(&target), before);
    assert_eq!(
        fs::read_to_string(&old.checkpoint).expect("read"),
        "the old one"
    );
    assert_eq!(names_in(folder.path()), ["artifacts", "file"]);
}

/// Killed at any moment, a write leaves the directory as it was or complete.
#[test]
fn a_killed_write_leaves_old_or_new() {
    const CHILD: &str = "ARTIFACTS_WRITE_CHILD";
    if let Some(target) = std::env::var_os(CHILD) {
        let artifacts = builder()
            .optimizer(Optimizer::Sgd)
            .build()
            .expect("artifacts");
        loop {
            artifacts.write_to(&target).expect("written");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("artifacts");
    let sgd = builder()
        .optimizer(Optimizer::Sgd)
        .build()
        .expect("artifacts")
        .into_bytes()
        .expect("bytes");
    let old = builder().build().expect("artifacts");
    let adamw = old.to_bytes().expect("bytes");
    let (mut kept, mut replaced) = (0, 0);
    for round in 0..12 {
        let _ = fs::remove_dir_all(&target);
        old.write_to(&target).expect("written");
        let mut child = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "a_killed_write_leaves_old_or_new"])
            .env(CHILD, &target)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a child");
        std::thread::sleep(std::time::Duration::from_millis(20 + 17 * round));
        child.kill().expect("killed");
        child.wait().expect("gone");
        let found: Vec<Vec<u8>> = FOUR
            .map(|name| fs::read(target.join(name)).unwrap_or_else(|e| panic!("{name}: {e}")))
            .to_vec();
        let of = |a: &ort_training::artifacts::ArtifactBytes| {
            vec![
                a.checkpoint.clone(),
                a.eval_model.clone(),
                a.optimizer_model.clone().expect("made"),
                a.training_model.clone(),
            ]
        };
        if found == of(&adamw) {
            kept += 1;
        } else {
            assert!(found == of(&sgd), "a mixture after {round} rounds");
            replaced += 1;
        }
    }
    println!("{kept} kept, {replaced} replaced");
    assert!(replaced > 0);
}

/// 100 MB and more of parameters: `cargo test --release … -- --ignored` prints seconds and the memory factor.
#[test]
#[ignore = "needs a gigabyte of memory and measures: run it alone, in release"]
fn large_model() {
    require_artifacts();
    let (rows, columns, layers) = (2048, 2048, 8);
    let mut model = Model::new(17).input("x", &[-1, 2048]);
    let mut value = "x".to_owned();
    for layer in 0..layers {
        let (weight, output) = (format!("layer{layer}.weight"), format!("h{layer}"));
        let raw: Vec<u8> = (0..rows * columns)
            .flat_map(|i: u32| (i as f32 * 1e-9).to_le_bytes())
            .collect();
        model = model.weight(&weight, &[rows.into(), columns.into()], &[]);
        let tensor = model.graph().initializer.last_mut().expect("pushed");
        tensor.raw_data = Some(Bytes::from(raw));
        model = model.node("MatMul", &[&value, &weight], &[&output]).node(
            "Tanh",
            &[&output],
            &[&format!("t{layer}")],
        );
        value = format!("t{layer}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.onnx");
    let bytes = model.output(&value, &[-1, 2048]).bytes();
    let size = bytes.len() as f64;
    fs::write(&path, bytes).expect("written");
    let before = peak_memory(true);
    let start = std::time::Instant::now();
    let artifacts = ArtifactsBuilder::from_path(&path)
        .loss(Loss::mse())
        .build()
        .expect("artifacts");
    let built = start.elapsed();
    let built_peak = peak_memory(false) - before;
    artifacts
        .write_to(folder.path().join("artifacts"))
        .expect("written");
    let written = start.elapsed();
    let written_peak = peak_memory(false) - before;
    let bytes = artifacts.into_bytes().expect("bytes");
    let bytes_peak = peak_memory(false) - before;
    println!(
        "{:.0} MB: built in {built:.1?} at {:.2} times the size, written after {written:.1?} at {:.2}, as bytes at {:.2}",
        size / 1e6,
        built_peak / size,
        written_peak / size,
        bytes_peak / size
    );
    assert!(
        bytes_peak / size < 4.0,
        "{bytes_peak} bytes for a model of {size}"
    );
    assert!(
        bytes.training_model.len() < 100_000,
        "the models hold no parameters"
    );
}

/// The most memory that was resident, in bytes; `reset` starts anew from what is resident now.
fn peak_memory(reset: bool) -> f64 {
    if reset {
        fs::write("/proc/self/clear_refs", "5").expect("Linux");
    }
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find(|l| l.starts_with("VmHWM:"))
        .expect("a line");
    line.split_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<f64>().ok())
        .expect("a number")
        * 1024.0
}

/// More than protobuf holds, in an external file: written with the checkpoint's data beside it, refused as bytes.
#[test]
#[ignore = "needs 8 GB of memory and 6 GB of disk: run it alone, in release"]
fn more_than_two_gigabytes() {
    require_artifacts();
    let folder = tempfile::tempdir().expect("a folder");
    let path = more_than_protobuf_holds(folder.path());
    let artifacts = ArtifactsBuilder::from_path(&path)
        .loss(Loss::mse())
        .build()
        .expect("artifacts");
    let error = artifacts.to_bytes().expect_err("too large for one piece");
    assert!(matches!(error, ArtifactsError::TooLarge(_)), "{error}");
    let target = folder.path().join("artifacts");
    artifacts.write_to(&target).expect("written");
    assert!(
        fs::metadata(target.join("checkpoint.data"))
            .expect("there")
            .len()
            >= TOO_LARGE
    );
    assert!(
        fs::metadata(target.join("training_model.onnx"))
            .expect("there")
            .len()
            < 100_000
    );

    // As constants they have no place.
    let error = ArtifactsBuilder::from_path(&path)
        .loss(Loss::mse())
        .requires_grad(["b"])
        .build()
        .unwrap_err();
    assert!(matches!(error, ArtifactsError::TooLarge(_)), "{error}");
    let frozen = ArtifactsBuilder::from_path(&path)
        .loss(Loss::mse())
        .requires_grad(["b"])
        .frozen(["w"])
        .build();
    frozen
        .expect("frozen, they go into the checkpoint")
        .write_to(&target)
        .expect("written");
}

/// Several threads at once, with and without sessions beside them.
#[test]
fn from_several_threads() {
    require_artifacts();
    let reference = builder()
        .build()
        .expect("artifacts")
        .into_bytes()
        .expect("bytes");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let made = builder()
                        .build()
                        .expect("artifacts")
                        .into_bytes()
                        .expect("bytes");
                    assert!(made.training_model == reference.training_model);
                    let session = Session::new(&made.eval_model).expect("a session");
                    assert!(session.inputs().contains(&"labels".to_owned()));
                }
            });
        }
    });
    let mut inputs = [Tensor::f32(&[2, 3], &[0.5; 6]), Tensor::i64(&[2], &[1, 3])];
    Training::new(reference)
        .expect("a session")
        .train(&mut inputs)
        .expect("a step");
}
