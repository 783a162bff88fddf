//! Training sessions: what they do, and what they refuse.

mod support;

use std::fs;

use ort_training::{
    Checkpoint, ElementType, Environment, InferenceSession, OptimizerState, ParameterSet,
    StringTensor, Tensor, TrainingSession, Value,
};
use support::{checkpoint, digits_batch, env, fixture, one_thread, refused, session, try_session};

#[test]
fn steps_lower_the_loss() {
    let mut session = session("digits");
    session.set_learning_rate(0.01).unwrap();
    let (images, labels) = digits_batch(16, 1);
    let mut losses = Vec::new();
    for _ in 0..30 {
        losses.push(
            session
                .train_step(&[&images, &labels])
                .unwrap()
                .loss()
                .unwrap(),
        );
        session.optimizer_step().unwrap();
        session.lazy_reset_grad().unwrap();
    }
    assert!(losses[29] < losses[0] / 2.0, "{losses:?}");
}

#[test]
fn any_batch_size_goes() {
    let mut session = session("digits");
    for rows in [1, 3, 100, 7] {
        let (images, labels) = digits_batch(rows, rows);
        let outputs = session.eval_step(&[&images, &labels]).unwrap();
        assert_eq!(outputs.get("logits").unwrap().shape().unwrap(), [rows, 10]);
        let loss = session
            .train_step(&[&images, &labels])
            .unwrap()
            .loss()
            .unwrap();
        assert!((loss - outputs.loss().unwrap()).abs() < 1e-5);
    }
}

/// A value that was fed once is not checked again, and no other value passes for it.
#[test]
fn inputs_are_checked_whatever_was_fed_before() {
    let mut session = session("digits");
    let (mut images, labels) = digits_batch(4, 1);
    let mut flat = Tensor::from_vec([4 * 64], vec![0f32; 4 * 64]).unwrap();
    let loss = |session: &mut TrainingSession, images: &Tensor<f32>| {
        let loss = session.train_step(&[images, &labels])?.loss()?;
        session.lazy_reset_grad()?;
        Ok::<f32, ort_training::Error>(loss)
    };
    let first = loss(&mut session, &images).unwrap();
    assert_eq!(loss(&mut session, &images).unwrap(), first, "fed again");

    let error = session.train_step(&[&labels, &images]).unwrap_err();
    assert!(error.to_string().contains("float32"), "{error}");
    let error = loss(&mut session, &flat).unwrap_err();
    assert!(error.to_string().contains("rank 2"), "{error}");
    // What a name holds may change: the check goes by the value.
    std::mem::swap(&mut images, &mut flat);
    let error = loss(&mut session, &images).unwrap_err();
    assert!(error.to_string().contains("rank 2"), "{error}");
    assert_eq!(loss(&mut session, &flat).unwrap(), first);

    // Its elements may change too, and are read anew.
    flat.data_mut().fill(0.5);
    assert_ne!(loss(&mut session, &flat).unwrap(), first);

    // A new tensor in the memory of one that is gone.
    for rows in [4, 5, 4, 6] {
        let short = Tensor::from_vec([rows, 64], vec![0f32; rows * 64]).unwrap();
        assert_eq!(loss(&mut session, &short).is_ok(), rows == 4, "{rows} rows");
    }
}

#[test]
fn inputs_are_described() {
    let session = session("digits");
    let names: Vec<&str> = session
        .train_inputs()
        .iter()
        .map(|input| input.name())
        .collect();
    assert_eq!(names, ["images", "labels"]);
    let images = &session.train_inputs()[0];
    assert_eq!(images.element_type(), Some(ElementType::Float32));
    assert!(
        images.to_string().starts_with("float32 [") && images.to_string().ends_with(", 64]"),
        "{images}"
    );
    assert_eq!(session.eval_inputs().unwrap().len(), 2);
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let mut session = session("digits");
    let (images, labels) = digits_batch(4, 1);
    let rank3 = Tensor::filled([4, 64, 1], 0f32).unwrap();
    refused(
        session.train_step(&[&rank3, &labels]),
        &["training step", "images", "rank 2", "rank 3"],
    );
    refused(
        session.eval_step(&[&rank3, &labels]),
        &["evaluation step", "images", "rank 2", "rank 3"],
    );
    let narrow = Tensor::filled([4, 63], 0f32).unwrap();
    refused(
        session.train_step(&[&narrow, &labels]),
        &["images", "64", "63"],
    );
    refused(
        session.train_step(&[&images]),
        &["2 inputs", "images", "labels", "found 1"],
    );
    refused(session.train_step(&[]), &["2 inputs", "found 0"]);
    refused(
        session.train_step(&[&labels, &images]),
        &["images", "float32", "int64"],
    );
    let doubles = Tensor::filled([4, 64], 0f64).unwrap();
    refused(
        session.train_step(&[&doubles, &labels]),
        &["images", "float32", "float64"],
    );
    let strings = StringTensor::new([4], &["a", "b", "c", "d"]).unwrap();
    refused(
        session.train_step(&[&images, &strings]),
        &["labels", "int64", "string"],
    );
    let fewer = Tensor::filled([3], 0i64).unwrap();
    refused(
        session.train_step(&[&images, &fewer]),
        &["labels", "3", "4"],
    );
    let (no_images, no_labels) = digits_batch(0, 1);
    refused(
        session.train_step(&[&no_images, &no_labels]),
        &["images", "empty batch"],
    );
    // And it still works.
    session.train_step(&[&images, &labels]).unwrap();
}

#[test]
fn outputs_outlive_later_steps() {
    let mut session = session("digits");
    session.set_learning_rate(0.1).unwrap();
    let (images, labels) = digits_batch(8, 2);
    let first = session.train_step(&[&images, &labels]).unwrap();
    let before: Vec<f32> = first.get("logits").unwrap().data::<f32>().unwrap().to_vec();
    for _ in 0..5 {
        session.optimizer_step().unwrap();
        session.lazy_reset_grad().unwrap();
        session.train_step(&[&images, &labels]).unwrap();
    }
    assert_eq!(first.get("logits").unwrap().data::<f32>().unwrap(), before);
    drop(session);
    assert_eq!(first.get("logits").unwrap().data::<f32>().unwrap(), before);
}

#[test]
fn an_output_that_is_not_there_says_which_are() {
    let mut session = session("digits");
    let (images, labels) = digits_batch(1, 1);
    let outputs = session.train_step(&[&images, &labels]).unwrap();
    refused(
        outputs.get("probabilities").map(Value::element_count),
        &["probabilities", "logits"],
    );
    refused(
        outputs.get("logits").unwrap().scalar::<f32>(),
        &["one element", "[1, 10]"],
    );
    refused(
        outputs.get("logits").unwrap().data::<f64>(),
        &["float64", "float32"],
    );
}

#[test]
fn a_missing_or_broken_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    refused(
        try_session(folder.path()),
        &["training_model.onnx", "no such file"],
    );
    refused(try_session(&folder.path().join("nowhere")), &["nowhere"]);
    for file in [
        "training_model.onnx",
        "eval_model.onnx",
        "optimizer_model.onnx",
        "checkpoint",
    ] {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(fixture("digits")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let whole = fs::read(copy.path().join(file)).unwrap();
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            fs::write(copy.path().join(file), &whole[..length]).unwrap();
            let text = refused(try_session(copy.path()), &[file]);
            assert!(!text.is_empty(), "{file} cut to {length}");
        }
        fs::write(
            copy.path().join(file),
            b"this is no model, but a line of text\n",
        )
        .unwrap();
        refused(try_session(copy.path()), &[file]);
        fs::remove_file(copy.path().join(file)).unwrap();
        match file {
            "eval_model.onnx" | "optimizer_model.onnx" => drop(try_session(copy.path()).unwrap()),
            _ => drop(refused(try_session(copy.path()), &[file])),
        }
    }
}

#[test]
fn models_in_the_wrong_place_are_refused() {
    let model = |name: &str| fixture("digits").join(name);
    let build = |training: &str, optimizer: &str| {
        TrainingSession::builder(&env())
            .options(one_thread())
            .checkpoint(checkpoint("digits"))
            .training_model(model(training))
            .optimizer_model(model(optimizer))
            .build()
    };
    refused(
        build("forward.onnx", "optimizer_model.onnx"),
        &["forward.onnx", "gradient", "lazy_reset_grad"],
    );
    refused(
        build("training_model.onnx", "eval_model.onnx"),
        &["eval_model.onnx", "optimizer model", "AdamWOptimizer"],
    );
    let other = TrainingSession::builder(&env())
        .checkpoint(checkpoint("regression"))
        .training_model(model("training_model.onnx"))
        .build();
    refused(other, &["training_model.onnx", "belong together"]);
    refused(
        TrainingSession::builder(&env())
            .checkpoint(checkpoint("digits"))
            .build(),
        &["training model"],
    );
    refused(
        TrainingSession::builder(&env())
            .training_model(model("training_model.onnx"))
            .build(),
        &["checkpoint", "artifacts"],
    );
}

#[test]
fn what_was_left_out_is_said() {
    let mut session = session("train_only");
    refused(session.eval_inputs().map(<[_]>::len), &["evaluation model"]);
    refused(session.eval_step(&[]), &["evaluation model"]);
    refused(session.optimizer_step(), &["optimizer model"]);
    refused(
        session.export_for_inference("never.onnx", &["x"]),
        &["evaluation model"],
    );
    session.lazy_reset_grad().unwrap();
}

#[test]
fn names_and_paths_with_nul_are_refused() {
    let mut session = session("digits");
    refused(session.checkpoint().parameter("fc1\0weight"), &["NUL"]);
    refused(
        session.checkpoint_mut().set_property("a\0b", 1i64),
        &["NUL"],
    );
    refused(
        session.save_checkpoint("check\0point", OptimizerState::Include),
        &["check"],
    );
    refused(
        session.export_for_inference("model.onnx", &["log\0its"]),
        &["output"],
    );
    refused(Environment::builder("a\0b").build(), &["NUL"]);
}

#[test]
fn export_and_inference_agree_with_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("digits.onnx");
    let mut session = session("digits");
    session.set_learning_rate(0.01).unwrap();
    let (images, labels) = digits_batch(10, 3);
    for _ in 0..5 {
        session.train_step(&[&images, &labels]).unwrap();
        session.optimizer_step().unwrap();
        session.lazy_reset_grad().unwrap();
    }
    let evaluated = session.eval_step(&[&images, &labels]).unwrap();
    session.export_for_inference(&path, &["logits"]).unwrap();
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "only the model is left"
    );
    let inference = InferenceSession::builder(&env())
        .options(one_thread())
        .model(&path)
        .build()
        .unwrap();
    let inferred = inference.run(&[&images]).unwrap();
    let (evaluated, inferred) = (
        evaluated.get("logits").unwrap(),
        inferred.get("logits").unwrap(),
    );
    assert_eq!(
        evaluated.data::<f32>().unwrap(),
        inferred.data::<f32>().unwrap()
    );

    refused(
        session.export_for_inference(&path, &["probabilities"]),
        &["probabilities", "logits"],
    );
    refused(
        session.export_for_inference(&path, &[]),
        &["at least one", "logits"],
    );
    assert!(path.exists(), "a refused export keeps the old file");
}

#[test]
fn parameters_go_round_through_a_buffer() {
    let mut session = session("regression");
    let all = session.parameter_count(ParameterSet::All).unwrap();
    let trainable = session.parameter_count(ParameterSet::Trainable).unwrap();
    assert!(trainable < all, "one is frozen");
    let mut buffer = vec![0f32; all];
    session
        .copy_parameters_to_buffer(&mut buffer, ParameterSet::All)
        .unwrap();
    assert!(buffer.iter().any(|&value| value != 0.0));
    let halved: Vec<f32> = buffer.iter().map(|value| value / 2.0).collect();
    session
        .copy_buffer_to_parameters(&halved, ParameterSet::All)
        .unwrap();
    let mut back = vec![0f32; all];
    session
        .copy_parameters_to_buffer(&mut back, ParameterSet::All)
        .unwrap();
    assert_eq!(back, halved);
    let short = session.copy_buffer_to_parameters(&halved, ParameterSet::Trainable);
    refused(short, &[&trainable.to_string(), &all.to_string()]);
    refused(
        session.copy_parameters_to_buffer(&mut back[1..], ParameterSet::All),
        &["buffer"],
    );
}

#[test]
fn a_nominal_checkpoint_needs_an_optimizer_for_its_values() {
    let nominal = || Checkpoint::load(fixture("regression").join("nominal_checkpoint")).unwrap();
    assert!(nominal().is_nominal());
    let mut session = TrainingSession::builder(&env())
        .options(one_thread())
        .checkpoint(nominal())
        .training_model(fixture("regression").join("training_model.onnx"))
        .build()
        .unwrap();
    let buffer = vec![0.25f32; session.parameter_count(ParameterSet::All).unwrap()];
    // The C API dereferences the missing optimizer here and ends the process.
    refused(
        session.copy_buffer_to_parameters(&buffer, ParameterSet::All),
        &["nominal", "optimizer model"],
    );
}

#[test]
fn the_checkpoint_comes_back_and_goes_on() {
    let (images, labels) = digits_batch(8, 5);
    let step = |session: &mut TrainingSession| {
        let loss = session
            .train_step(&[&images, &labels])
            .unwrap()
            .loss()
            .unwrap();
        session.optimizer_step().unwrap();
        session.lazy_reset_grad().unwrap();
        loss.to_bits()
    };
    let mut straight = session("digits");
    let straight: Vec<u32> = (0..6).map(|_| step(&mut straight)).collect();
    let mut first = session("digits");
    let mut parted: Vec<u32> = (0..3).map(|_| step(&mut first)).collect();
    let checkpoint = first.into_checkpoint();
    let models = fixture("digits");
    let mut second = TrainingSession::builder(&env())
        .options(one_thread())
        .checkpoint(checkpoint)
        .artifacts(models)
        .unwrap()
        .build()
        .unwrap();
    parted.extend((0..3).map(|_| step(&mut second)));
    assert_eq!(straight, parted);
}

#[test]
fn schedules_are_checked() {
    let mut session = session("digits");
    refused(
        session.register_linear_lr_scheduler(1 << 63, 10, 0.1),
        &["9223372036854775807", "9223372036854775808"],
    );
    assert!(session.scheduler_step().is_err(), "none is registered");
    session.register_linear_lr_scheduler(0, 10, 0.1).unwrap();
    session.scheduler_step().unwrap();
    assert_eq!(session.learning_rate().unwrap(), 0.1);
}

#[test]
fn a_session_moves_to_another_thread() {
    let mut session = session("digits");
    let loss = std::thread::spawn(move || {
        let (images, labels) = digits_batch(4, 1);
        session
            .train_step(&[&images, &labels])
            .unwrap()
            .loss()
            .unwrap()
    })
    .join()
    .unwrap();
    assert!(loss.is_finite());
}
