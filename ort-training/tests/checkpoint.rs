//! Checkpoints: parameters, properties, and what they keep over a file.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use ort_training::{
    Checkpoint, CheckpointSummary, ElementType, OptimizerState, Property, PropertyKind, Tensor,
    TrainingSession,
};
use support::{checkpoint, digits_batch, env, fixture, one_thread, refused, session};

fn session_on(artifacts: &str, checkpoint: Checkpoint) -> TrainingSession {
    TrainingSession::builder(&env())
        .options(one_thread())
        .checkpoint(checkpoint)
        .artifacts(fixture(artifacts))
        .unwrap()
        .build()
        .unwrap()
}

fn step(session: &mut TrainingSession, seed: usize) -> f32 {
    let (images, labels) = digits_batch(8, seed);
    let loss = session
        .train_step(&[&images, &labels])
        .unwrap()
        .loss()
        .unwrap();
    session.optimizer_step().unwrap();
    session.lazy_reset_grad().unwrap();
    loss
}

#[test]
fn parameters_are_listed() {
    let checkpoint = checkpoint("regression");
    let listed: Vec<(&str, ElementType, &[usize], bool)> = checkpoint
        .parameters()
        .iter()
        .map(|info| {
            (
                info.name(),
                info.element_type(),
                info.shape(),
                info.requires_grad(),
            )
        })
        .collect();
    assert_eq!(listed.len(), 6);
    for (name, element_type, shape, _) in &listed {
        assert_eq!(
            checkpoint.parameter_type_and_shape(name).unwrap(),
            (*element_type, shape.to_vec()),
            "{name}"
        );
    }
    let frozen: Vec<&str> = listed
        .iter()
        .filter(|info| !info.3)
        .map(|info| info.0)
        .collect();
    assert_eq!(frozen, ["scale"]);
    assert!(
        listed.contains(&("x_proj.weight", ElementType::Float32, &[8, 4], true)),
        "{listed:?}"
    );
    assert!(!checkpoint.is_nominal() && !checkpoint.has_external_data());
}

#[test]
fn a_summary_needs_no_runtime() {
    let summary = CheckpointSummary::read(fixture("digits").join("checkpoint")).unwrap();
    let session = session("digits");
    for info in summary.parameters() {
        let parameter = session.checkpoint().parameter(info.name()).unwrap();
        assert_eq!(
            (parameter.shape(), parameter.data().len()),
            (info.shape(), info.element_count())
        );
    }
    assert_eq!(summary.optimizer_step(), None);
    assert!(summary.properties().is_empty());
}

#[test]
fn parameters_are_read_and_written() {
    let mut session = session("regression");
    let before = session.checkpoint().parameter("x_proj.weight").unwrap();
    let doubled: Vec<f32> = before.data().iter().map(|value| value * 2.0).collect();
    let new = Tensor::from_vec([8, 4], doubled.clone()).unwrap();
    session
        .checkpoint_mut()
        .update_parameter("x_proj.weight", &new)
        .unwrap();
    assert_eq!(
        session
            .checkpoint()
            .parameter("x_proj.weight")
            .unwrap()
            .data(),
        doubled
    );
    // What was read is a copy.
    assert_ne!(before.data(), doubled);
    // A frozen one can be written as well.
    let scale = session.checkpoint().parameter("scale").unwrap();
    let other = Tensor::filled(scale.shape(), 7.0f32).unwrap();
    session
        .checkpoint_mut()
        .update_parameter("scale", &other)
        .unwrap();
    assert_eq!(
        session.checkpoint().parameter("scale").unwrap().data(),
        other.data()
    );
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    let mut session = session("regression");
    let short = Tensor::filled([8, 3], 0f32).unwrap();
    let doubles = Tensor::filled([8, 4], 0f64).unwrap();
    let mut checkpoint = session.checkpoint_mut();
    refused(
        checkpoint.update_parameter("x_proj.weight", &short),
        &["x_proj.weight", "[8, 4]", "[8, 3]"],
    );
    refused(
        checkpoint.update_parameter("x_proj.weight", &doubles),
        &["x_proj.weight", "float32", "float64"],
    );
    refused(
        checkpoint.update_parameter("nobody", &short),
        &["nobody", "x_proj.weight"],
    );
    refused(
        checkpoint.update_parameter("x_proj.\0weight", &short),
        &["NUL"],
    );
    refused(checkpoint.parameter("nobody"), &["nobody", "x_proj.weight"]);
    refused(checkpoint.parameter_type_and_shape("nobody"), &["nobody"]);
    refused(checkpoint.parameter_type_and_shape("x\0"), &["NUL"]);
}

#[test]
fn parameters_need_a_session() {
    let mut checkpoint = checkpoint("regression");
    let zeros = Tensor::filled([8, 4], 0f32).unwrap();
    refused(
        checkpoint.parameter("x_proj.weight"),
        &["x_proj.weight", "session"],
    );
    refused(
        checkpoint.update_parameter("x_proj.weight", &zeros),
        &["x_proj.weight", "session"],
    );
    // With the session gone, its checkpoint still can.
    let checkpoint = session_on("regression", checkpoint).into_checkpoint();
    assert_eq!(
        checkpoint.parameter("x_proj.weight").unwrap().shape(),
        [8, 4]
    );
}

#[test]
fn nominal_checkpoints_have_names_only() {
    let nominal = Checkpoint::load(fixture("regression").join("nominal_checkpoint")).unwrap();
    assert!(nominal.is_nominal());
    let names = |checkpoint: &Checkpoint| -> Vec<String> {
        checkpoint
            .parameters()
            .iter()
            .map(|info| info.name().to_owned())
            .collect()
    };
    assert_eq!(names(&nominal), names(&checkpoint("regression")));
    refused(
        nominal.parameter("x_proj.weight"),
        &["x_proj.weight", "nominal"],
    );
    assert!(nominal.parameter_type_and_shape("x_proj.weight").is_err());
}

#[test]
fn properties_of_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let values: BTreeMap<&str, Property> = BTreeMap::from([
        ("int", Property::Int(i64::MIN)),
        ("largest int", Property::Int(i64::MAX)),
        ("float", Property::Float(f32::MIN_POSITIVE / 8.0)),
        ("infinite", Property::Float(f32::NEG_INFINITY)),
        ("text", Property::String("größer — 大\n".into())),
        ("empty text", Property::String(String::new())),
        ("", Property::Int(0)),
    ]);
    let mut checkpoint = checkpoint("digits");
    for (name, value) in &values {
        checkpoint.add_property(name, value.clone()).unwrap();
    }
    checkpoint.save(&path, OptimizerState::Exclude).unwrap();
    let loaded = Checkpoint::load(&path).unwrap();
    for checkpoint in [&checkpoint, &loaded] {
        let listed: Vec<(&str, PropertyKind)> = checkpoint.properties().collect();
        let expected: Vec<(&str, PropertyKind)> = values
            .iter()
            .map(|(name, value)| (*name, value.kind()))
            .collect();
        assert_eq!(listed, expected);
        for (name, value) in &values {
            assert_eq!(
                checkpoint.property(name).unwrap().as_ref(),
                Some(value),
                "{name}"
            );
        }
    }
    let summary = CheckpointSummary::read(&path).unwrap();
    assert!(
        summary
            .properties()
            .iter()
            .map(|(name, value)| (name.as_str(), value))
            .eq(values.iter().map(|(n, v)| (*n, v)))
    );
}

#[test]
fn typed_properties() {
    let mut checkpoint = checkpoint("digits");
    checkpoint.set_property("epoch", 3i64).unwrap();
    checkpoint.set_property("best", 0.5f32).unwrap();
    checkpoint.set_property("note", "x").unwrap();
    assert_eq!(checkpoint.int_property("epoch").unwrap(), Some(3));
    assert_eq!(checkpoint.float_property("best").unwrap(), Some(0.5));
    assert_eq!(
        checkpoint.string_property("note").unwrap().as_deref(),
        Some("x")
    );
    assert_eq!(checkpoint.int_property("absent").unwrap(), None);
    assert_eq!(checkpoint.float_property("absent").unwrap(), None);
    assert_eq!(checkpoint.string_property("absent").unwrap(), None);
    refused(
        checkpoint.int_property("best"),
        &["best", "expected kind int", "found float"],
    );
    refused(
        checkpoint.float_property("note"),
        &["note", "expected kind float", "found string"],
    );
    refused(
        checkpoint.string_property("epoch"),
        &["epoch", "expected kind string", "found int"],
    );
}

#[test]
fn properties_are_replaced_only_when_asked() {
    let mut checkpoint = checkpoint("digits");
    checkpoint.add_property("epoch", 1i64).unwrap();
    refused(
        checkpoint.add_property("epoch", 2i64),
        &["epoch", "new name", "int property"],
    );
    assert_eq!(checkpoint.int_property("epoch").unwrap(), Some(1));
    checkpoint.set_property("epoch", "now a string").unwrap();
    assert_eq!(
        checkpoint.properties().collect::<Vec<_>>(),
        [("epoch", PropertyKind::String)]
    );
    assert_eq!(
        checkpoint.property("epoch").unwrap(),
        Some("now a string".into())
    );
}

#[test]
fn nul_in_properties_is_refused() {
    let mut checkpoint = checkpoint("digits");
    refused(
        checkpoint.add_property("a\0b", 1i64),
        &["property name", "NUL"],
    );
    refused(
        checkpoint.set_property("a\0b", 1i64),
        &["property name", "NUL"],
    );
    refused(
        checkpoint.set_property("name", "a\0b"),
        &["property value", "NUL"],
    );
    refused(checkpoint.property("a\0b"), &["property name", "NUL"]);
    assert_eq!(checkpoint.properties().count(), 0);
}

#[test]
fn training_continues_with_the_optimizer_state_only() {
    let folder = tempfile::tempdir().unwrap();
    let (with, without) = (folder.path().join("with"), folder.path().join("without"));
    let mut first = session("digits");
    first.set_learning_rate(0.01).unwrap();
    for seed in 0..4 {
        step(&mut first, seed);
    }
    first
        .save_checkpoint(&with, OptimizerState::Include)
        .unwrap();
    first
        .save_checkpoint(&without, OptimizerState::Exclude)
        .unwrap();
    assert_eq!(
        CheckpointSummary::read(&with).unwrap().optimizer_step(),
        Some(4)
    );
    assert_eq!(
        CheckpointSummary::read(&without).unwrap().optimizer_step(),
        None
    );
    let straight: Vec<u32> = (4..9)
        .map(|seed| step(&mut first, seed).to_bits())
        .collect();
    let resumed = |path: &Path| -> Vec<u32> {
        let mut session = session_on("digits", Checkpoint::load(path).unwrap());
        session.set_learning_rate(0.01).unwrap();
        (4..9)
            .map(|seed| step(&mut session, seed).to_bits())
            .collect()
    };
    assert_eq!(resumed(&with), straight);
    let restarted = resumed(&without);
    assert_eq!(restarted[0], straight[0], "the parameters are the same");
    assert_ne!(restarted, straight, "the moments are not");
}

#[test]
fn what_is_saved_is_current() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let mut first = session("digits");
    first.set_learning_rate(0.1).unwrap();
    let initial = first.checkpoint().parameter("fc1.weight").unwrap();
    step(&mut first, 1);
    let trained = first.checkpoint().parameter("fc1.weight").unwrap();
    assert_ne!(initial.data(), trained.data());
    first
        .save_checkpoint(&path, OptimizerState::Include)
        .unwrap();
    let second = session_on("digits", Checkpoint::load(&path).unwrap());
    assert_eq!(
        second.checkpoint().parameter("fc1.weight").unwrap().data(),
        trained.data()
    );
    // From the checkpoint that comes back, too.
    first
        .into_checkpoint()
        .save(&path, OptimizerState::Exclude)
        .unwrap();
    let third = session_on("digits", Checkpoint::load(&path).unwrap());
    assert_eq!(
        third.checkpoint().parameter("fc1.weight").unwrap().data(),
        trained.data()
    );
}

#[test]
fn bytes_may_lie_anywhere_and_go() {
    let whole = std::fs::read(fixture("digits").join("checkpoint")).unwrap();
    for offset in 0..9 {
        let mut shifted = vec![0xffu8; offset];
        shifted.extend(&whole);
        let checkpoint = Checkpoint::from_bytes(&shifted[offset..]).unwrap();
        drop(shifted);
        let session = session_on("digits", checkpoint);
        let (images, labels) = digits_batch(2, 0);
        assert!(
            session
                .eval_step(&[&images, &labels])
                .unwrap()
                .loss()
                .unwrap()
                .is_finite()
        );
    }
}

#[test]
fn checkpoints_move_between_threads() {
    let mut checkpoint = checkpoint("digits");
    let checkpoint = std::thread::spawn(move || {
        checkpoint.set_property("thread", "other").unwrap();
        checkpoint
    })
    .join()
    .unwrap();
    assert_eq!(
        checkpoint.string_property("thread").unwrap().as_deref(),
        Some("other")
    );
}
