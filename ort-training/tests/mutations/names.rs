//! Names that are none, nearly one, or odd, at every place where the API takes one. Each is taken and given back as it
//! was, or refused with words.

use std::fs;

use ort_training::{
    AsValue, Checkpoint, CheckpointSummary, InferenceSession, OptimizerState, Property, RunOptions,
    SessionOptions, StringTensor, Tensor, TrainingSession,
};

use crate::random::Random;
use crate::runner::{Folder, Stages};
use crate::support::{checkpoint, env, fixture, one_thread, session};

/// A name: often nearly one of the `known`.
fn name(known: &[&str], random: &mut Random) -> String {
    let mut text = (*random.pick(known)).to_owned();
    match random.below(14) {
        0 => text,
        1 => String::new(),
        2 => text.to_uppercase(),
        3 => {
            text.pop();
            text
        }
        4 => text + " ",
        5 => format!("{text}\0"),
        6 => {
            let at = text
                .char_indices()
                .map(|(at, _)| at)
                .next_back()
                .unwrap_or(0);
            text.insert(at, '\0');
            text
        }
        7 => text.repeat(1 << random.below(14)),
        8 => format!("\u{202e}{text}\u{1F98A}\u{0301}"),
        9 => "%s%n%x".to_owned(),
        10 => format!("../{text}/.."),
        11 => "\n\r\t\u{1b}[31m".to_owned(),
        12 => "0".to_owned(),
        _ => (0..random.below(40))
            .filter_map(|_| char::from_u32(random.below(0x11_0000) as u32))
            .collect(),
    }
}

/// The answer for a name that is right, or one that says what was wrong with it.
fn check<T>(result: ort_training::Result<T>, right: bool, name: &str) -> Stages {
    match result {
        Ok(_) => {
            assert!(right, "{name:?} was taken");
            vec!["taken"]
        }
        Err(error) => {
            assert!(!right, "{name:?}: {error}");
            assert!(!error.to_string().is_empty());
            vec!["refused"]
        }
    }
}

pub fn run(index: u64, folder: &Folder) -> Stages {
    let mut random = Random::new("names", index);
    match index % 11 {
        0..=2 => property(&mut random, folder),
        3 => parameter(&mut random),
        4 => step_inputs(&mut random),
        5 => outputs(&mut random),
        6 => inference(&mut random),
        7 => options(&mut random),
        8 => strings(&mut random),
        9 => paths(&mut random, folder),
        _ => export(&mut random, folder),
    }
}

/// A property comes back as it was set, from the state and from the file.
fn property(random: &mut Random, folder: &Folder) -> Stages {
    let mut checkpoint = checkpoint("linear1");
    let known = checkpoint.parameters()[0].name().to_owned();
    let key = name(&["epoch", "best", &known], random);
    let value = match random.below(3) {
        0 => Property::Int(random.next() as i64),
        1 => Property::Float(*random.pick(&[0.0, -0.0, f32::INFINITY, f32::MIN_POSITIVE, 1e-45])),
        _ => Property::String(name(&["a note", ""], random)),
    };
    let right =
        !key.contains('\0') && !matches!(&value, Property::String(text) if text.contains('\0'));
    let stages = check(checkpoint.set_property(&key, value.clone()), right, &key);
    if right {
        assert_eq!(checkpoint.property(&key).unwrap(), Some(value.clone()));
        checkpoint.add_property(&key, 1i64).unwrap_err();
        let path = folder.path().join("named");
        checkpoint.save(&path, OptimizerState::Exclude).unwrap();
        let read = CheckpointSummary::read(&path).unwrap();
        assert_eq!(read.properties().get(&key), Some(&value));
        let again = Checkpoint::load(&path).unwrap();
        assert_eq!(again.property(&key).unwrap(), Some(value));
    } else {
        assert!(
            checkpoint
                .property(&key)
                .map_or(true, |found| found.is_none())
        );
    }
    stages
}

fn parameter(random: &mut Random) -> Stages {
    let mut session = session("linear1");
    let info = session.checkpoint().parameters()[0].clone();
    let tried = name(&[info.name()], random);
    let right = tried == info.name();
    let value = Tensor::filled(info.shape(), 0.5f32).unwrap();
    let stages = check(session.checkpoint().parameter(&tried), right, &tried);
    check(
        session.checkpoint().parameter_type_and_shape(&tried),
        right,
        &tried,
    );
    check(
        session.checkpoint_mut().update_parameter(&tried, &value),
        right,
        &tried,
    );
    stages
}

fn step_inputs(random: &mut Random) -> Stages {
    let mut session = session("linear1");
    let names: Vec<String> = session
        .train_inputs()
        .iter()
        .map(|info| info.name().to_owned())
        .collect();
    let tried = name(&[&names[0], &names[1]], random);
    let (x, y) = (
        Tensor::filled([1, 4], 0.5f32).unwrap(),
        Tensor::filled([1, 1], 0.5f32).unwrap(),
    );
    let right = tried == names[0];
    let named: [(&str, &dyn AsValue); 2] = [(&tried, &x), (&names[1], &y)];
    let stages = check(session.train_step_named(&named), right, &tried);
    check(session.eval_step_named(&named), right, &tried);
    stages
}

fn outputs(random: &mut Random) -> Stages {
    let mut session = session("linear1");
    let (x, y) = (
        Tensor::filled([1, 4], 0.5f32).unwrap(),
        Tensor::filled([1, 1], 0.5f32).unwrap(),
    );
    let outputs = session.train_step(&[&x, &y]).unwrap();
    let known: Vec<&str> = outputs.names().iter().map(String::as_str).collect();
    let tried = name(&known, random);
    let right = known.contains(&tried.as_str());
    let stages = check(outputs.get(&tried), right, &tried);
    check(outputs.take(&tried), right, &tried);
    stages
}

fn inference(random: &mut Random) -> Stages {
    let session = InferenceSession::builder(&env())
        .options(one_thread())
        .model(fixture("linear1").join("forward.onnx"))
        .build()
        .unwrap();
    let known = session.inputs()[0].name().to_owned();
    let tried = name(&[&known], random);
    let x = Tensor::filled([1, 4], 0.5f32).unwrap();
    check(session.run_named(&[(&tried, &x)]), tried == known, &tried)
}

fn options(random: &mut Random) -> Stages {
    let known = ["session.set_denormal_as_zero", "batch", "tag"];
    let key = name(&known, random);
    let value = name(&["1", "0"], random);
    let right = !key.contains('\0');
    let mut run = RunOptions::new().unwrap();
    let stages = check(run.set_tag(&key), right, &key);
    if right {
        assert_eq!(run.tag().unwrap(), key);
    }
    let fresh = || SessionOptions::new().unwrap();
    check(fresh().with_free_dimension(&key, 2), right, &key);
    check(fresh().with_log_id(&key), right, &key);
    // ONNX Runtime bounds the length of both.
    match fresh().with_config_entry(&key, &value) {
        Ok(options) => {
            assert_eq!(options.config_entry(&key).unwrap(), Some(value));
        }
        Err(error) => assert!(
            key.is_empty()
                || key.contains('\0')
                || value.contains('\0')
                || key.len() > 128
                || value.len() > 128,
            "{key:?} {value:?}: {error}"
        ),
    }
    assert_eq!(fresh().config_entry("nobody's").unwrap(), None);
    stages
}

/// Elements of a string tensor may hold anything but a NUL, where C ends.
fn strings(random: &mut Random) -> Stages {
    let texts: Vec<String> = (0..random.below(4))
        .map(|_| name(&["word"], random))
        .collect();
    let right = !texts.iter().any(|text| text.contains('\0'));
    let made = StringTensor::new([texts.len()], &texts);
    if let Ok(made) = &made {
        assert_eq!(made.strings().unwrap(), texts);
    }
    check(made, right, &texts.concat())
}

fn paths(random: &mut Random, folder: &Folder) -> Stages {
    let place = folder.path().join("names");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    let tried = name(&["checkpoint", "a folder/checkpoint"], random);
    // A relative name that leaves the folder is not for a test to write to.
    if tried.contains("..") || tried.starts_with('/') {
        return vec!["refused"];
    }
    let path = place.join(&tried);
    match checkpoint("linear1").save(&path, OptimizerState::Include) {
        Ok(()) => {
            let written = fs::read_dir(&place).unwrap().count();
            assert_eq!(written, 1, "{tried:?}: nothing but the file");
            Checkpoint::load(&path).unwrap();
            vec!["taken"]
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let left = fs::read_dir(&place).unwrap().count();
            assert_eq!(left, 0, "{tried:?}: {error}");
            Checkpoint::load(&path).unwrap_err();
            let built = TrainingSession::builder(&env())
                .checkpoint(checkpoint("linear1"))
                .training_model(&path)
                .build();
            built.unwrap_err();
            vec!["refused"]
        }
    }
}

fn export(random: &mut Random, folder: &Folder) -> Stages {
    let session = session("linear1");
    let known: Vec<String> = session
        .eval_outputs()
        .unwrap()
        .iter()
        .map(|info| info.name().to_owned())
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let tried = name(&known, random);
    let right = known.contains(&tried.as_str());
    let path = folder.path().join("exported.onnx");
    let _ = fs::remove_file(&path);
    let stages = check(
        session.export_for_inference(&path, &[&tried]),
        right,
        &tried,
    );
    assert_eq!(path.exists(), right);
    stages
}
