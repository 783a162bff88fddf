//! Checkpoints that are none: cut, damaged, or well-formed with something missing. Each is refused with words before
//! ONNX Runtime sees it, or is a checkpoint that everything can be done with.

mod checkpoint_writer;
mod support;

use std::fs;

use checkpoint_writer::{CheckpointSpec, FLOAT16, GroupSpec, STRING, StateSpec, TensorSpec};
use ort_training::{
    Checkpoint, CheckpointSummary, OptimizerState, Result, Tensor, TrainingSession,
};
use support::{checkpoint, env, fixture, one_thread, refused, session};

/// A small generator of random numbers: the same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Everything that a session does with a checkpoint.
fn train(checkpoint: Checkpoint) -> Result<()> {
    let x = Tensor::filled([2, 4], 0.5f32)?;
    let z = Tensor::filled([2, 3], -0.5f32)?;
    let target = Tensor::filled([2, 1], 1f32)?;
    let mut session = TrainingSession::builder(&env())
        .options(one_thread())
        .checkpoint(checkpoint)
        .artifacts(fixture("regression"))?
        .build()?;
    session.train_step(&[&x, &z, &target])?;
    session.optimizer_step()?;
    session.lazy_reset_grad()?;
    session.eval_step(&[&x, &z, &target])?;
    let folder = tempfile::tempdir().expect("a folder");
    session.save_checkpoint(folder.path().join("checkpoint"), OptimizerState::Include)
}

/// The bytes of a checkpoint that has one of everything.
fn full() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let mut checkpoint = checkpoint("regression");
    checkpoint.set_property("epoch", 3i64).unwrap();
    checkpoint.set_property("best", 0.5f32).unwrap();
    checkpoint.set_property("note", "half-way").unwrap();
    let mut session = TrainingSession::builder(&env())
        .options(one_thread())
        .checkpoint(checkpoint)
        .artifacts(fixture("regression"))
        .unwrap()
        .build()
        .unwrap();
    let batch = [[2, 4], [2, 3], [2, 1]].map(|shape| Tensor::filled(shape, 0.5f32).unwrap());
    session
        .train_step(&[&batch[0], &batch[1], &batch[2]])
        .unwrap();
    session.optimizer_step().unwrap();
    session
        .save_checkpoint(&path, OptimizerState::Include)
        .unwrap();
    fs::read(path).unwrap()
}

#[test]
fn every_truncation_is_refused() {
    let nominal = fs::read(fixture("regression").join("nominal_checkpoint")).unwrap();
    for whole in [full(), nominal] {
        Checkpoint::from_bytes(&whole).unwrap();
        for len in 0..whole.len() {
            refused(Checkpoint::from_bytes(&whole[..len]), &["checkpoint"]);
        }
    }
}

#[test]
fn truncated_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("digits.ckpt");
    let whole = fs::read(fixture("digits").join("checkpoint")).unwrap();
    for len in (0..whole.len()).step_by(97).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..len]).unwrap();
        refused(
            Checkpoint::load(&path),
            &[
                "digits.ckpt",
                "not a usable ONNX Runtime training checkpoint",
            ],
        );
    }
    fs::write(&path, &whole).unwrap();
    Checkpoint::load(&path).unwrap();
}

#[test]
fn what_is_no_checkpoint_is_named() {
    let folder = tempfile::tempdir().unwrap();
    refused(
        Checkpoint::load(folder.path().join("nowhere")),
        &["nowhere"],
    );
    refused(
        Checkpoint::load(folder.path()),
        &[folder.path().to_str().unwrap()],
    );
    let model = fixture("digits").join("training_model.onnx");
    refused(
        Checkpoint::load(&model),
        &["training_model.onnx", "identifier", "ODTC"],
    );
    refused(
        Checkpoint::from_bytes(b""),
        &["checkpoint", "at least 8 bytes", "found 0"],
    );
    refused(Checkpoint::from_bytes(b"a line of text\n"), &["identifier"]);
    refused(Checkpoint::load("a\0b"), &["a"]);
}

#[test]
fn mutations_are_refused_or_usable() {
    let whole = full();
    let mut random = Random(20_211_203);
    let (mut refusals, mut loads, mut trained) = (0, 0, 0);
    for round in 0..2000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            let word = at / 4 * 4;
            match random.below(6) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next() as u8,
                2 => {
                    let small = [
                        0,
                        1,
                        2,
                        4,
                        8,
                        0x7fff_ffff,
                        0x8000_0000,
                        0xffff_ffff,
                        bytes.len() as u32,
                    ];
                    bytes[word..word + 4]
                        .copy_from_slice(&small[random.below(small.len())].to_le_bytes());
                }
                3 => {
                    let from = random.below(bytes.len() / 4) * 4;
                    bytes.copy_within(from..from + 4, word);
                }
                4 => drop(bytes.drain(word..word + 4)),
                _ => drop(bytes.splice(word..word, [0u8; 4])),
            }
        }
        match Checkpoint::from_bytes(&bytes) {
            Err(error) => {
                assert!(error.to_string().contains("checkpoint"), "{error}");
                refusals += 1;
            }
            Ok(checkpoint) => {
                loads += 1;
                let names: Vec<String> = checkpoint
                    .properties()
                    .map(|(name, _)| name.to_owned())
                    .collect();
                for name in names {
                    assert!(
                        checkpoint.property(&name).unwrap().is_some(),
                        "round {round}: {name}"
                    );
                }
                // A session takes longer than everything else here. Whether it accepts the parameters is its affair.
                if loads % 4 == 0 && train(checkpoint).is_ok() {
                    trained += 1;
                }
            }
        }
    }
    assert_eq!(refusals + loads, 2000);
    assert!(
        refusals > 400 && loads > 200 && trained > 20,
        "{refusals} refused, {loads} loaded, {trained} trained"
    );
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random(7);
    for _ in 0..2000 {
        let len = 8 + 4 * random.below(100);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8 & 0x1f).collect();
        bytes[4..8].copy_from_slice(b"ODTC");
        bytes[0..4].copy_from_slice(&(8u32 + 4 * random.below(8) as u32).to_le_bytes());
        refused(
            Checkpoint::from_bytes(&bytes),
            &["not a usable ONNX Runtime training checkpoint"],
        );
    }
}

fn moment(name: &str) -> TensorSpec {
    TensorSpec::floats(name, &[2, 3], &[0.0; 6])
}

/// A checkpoint in order, of one trainable and one frozen parameter.
fn sound() -> CheckpointSpec {
    let weight = TensorSpec::floats("weight", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let mut spec =
        CheckpointSpec::new(vec![weight], vec![TensorSpec::floats("scale", &[], &[2.0])]);
    spec.groups.push(GroupSpec {
        name: Some("group0".into()),
        step: 5,
        states: Some(vec![StateSpec {
            parameter: Some("weight".into()),
            moments: Some(vec![moment("momentum0"), moment("momentum1")]),
        }]),
    });
    spec.ints.push((Some("epoch".into()), 3));
    spec.floats.push((Some("best".into()), 0.5));
    spec.strings.push((Some("note".into()), Some("x".into())));
    spec
}

fn weight(spec: &mut CheckpointSpec) -> &mut TensorSpec {
    &mut spec.trainable.as_mut().unwrap()[0]
}

fn state(spec: &mut CheckpointSpec) -> &mut StateSpec {
    &mut spec.groups[0].states.as_mut().unwrap()[0]
}

fn first_moment(spec: &mut CheckpointSpec) -> &mut TensorSpec {
    &mut state(spec).moments.as_mut().unwrap()[0]
}

#[test]
fn the_sound_one_loads() {
    let bytes = sound().to_bytes();
    let summary = CheckpointSummary::parse(&bytes).unwrap();
    assert_eq!(summary.optimizer_step(), Some(5));
    let checkpoint = Checkpoint::from_bytes(&bytes).unwrap();
    assert_eq!(
        checkpoint.parameter_type_and_shape("weight").unwrap().1,
        [2, 3]
    );
    assert_eq!(checkpoint.parameters()[1].shape(), [0usize; 0]);
    assert_eq!(checkpoint.int_property("epoch").unwrap(), Some(3));
    assert_eq!(checkpoint.float_property("best").unwrap(), Some(0.5));
    assert_eq!(
        checkpoint.string_property("note").unwrap().as_deref(),
        Some("x")
    );
}

/// Each has one thing wrong with it that ONNX Runtime's own check of the format lets through, or says less about.
#[test]
fn single_defects_are_named() {
    type Defect = (fn(&mut CheckpointSpec), &'static [&'static str]);
    let defects: &[Defect] = &[
        (|spec| spec.identifier = "ORTM", &["ODTC", "ORTM"]),
        (|spec| spec.version = 1, &["version 2", "found 1"]),
        (|spec| spec.version = 3, &["version 2", "found 3"]),
        (
            |spec| spec.trainable = None,
            &["trainable parameters", "none"],
        ),
        (|spec| spec.frozen = None, &["frozen parameters", "none"]),
        (|spec| weight(spec).name = None, &["name", "none"]),
        (
            |spec| weight(spec).name = Some("a\0b".into()),
            &["a\\0b", "NUL"],
        ),
        (
            |spec| weight(spec).name = Some("scale".into()),
            &["scale", "twice"],
        ),
        (|spec| weight(spec).dims = None, &["weight", "dimensions"]),
        (
            |spec| weight(spec).dims = Some(vec![2, 4]),
            &["weight", "expected 32 bytes", "[2, 4]", "found 24"],
        ),
        (
            |spec| weight(spec).dims = Some(vec![-2, -3]),
            &["weight", "[-2, -3]"],
        ),
        (
            |spec| weight(spec).dims = Some(vec![i64::MAX, 2]),
            &["weight", "9223372036854775807"],
        ),
        (
            |spec| weight(spec).data_type = 11,
            &["weight", "expected 48 bytes", "found 24"],
        ),
        (
            |spec| weight(spec).data_type = STRING,
            &["weight", "element type", "string"],
        ),
        (
            |spec| weight(spec).data_type = FLOAT16,
            &["weight", "element type", "float16"],
        ),
        (
            |spec| weight(spec).data_type = 99,
            &["weight", "element type", "99"],
        ),
        (|spec| weight(spec).inline = None, &["weight", "no data"]),
        (
            |spec| weight(spec).inline = Some(Vec::new()),
            &["weight", "found 0"],
        ),
        (|spec| weight(spec).offset = 0, &["weight", "both"]),
        (
            |spec| {
                weight(spec).inline = None;
                weight(spec).offset = 0;
            },
            &["weight", "external data"],
        ),
        (|spec| spec.external = true, &["external data file", "path"]),
        (
            |spec| spec.groups[0].name = None,
            &["optimizer group's name"],
        ),
        (
            |spec| spec.groups.push(spec.groups[0].clone()),
            &["group0", "twice"],
        ),
        (|spec| spec.groups[0].step = -1, &["step", "-1"]),
        (
            |spec| spec.groups[0].states = None,
            &["optimizer states", "none"],
        ),
        (
            |spec| state(spec).parameter = None,
            &["parameter name", "none"],
        ),
        (
            |spec| state(spec).parameter = Some("scale".into()),
            &["scale", "no trainable parameter"],
        ),
        (
            |spec| state(spec).parameter = Some("nobody".into()),
            &["nobody", "no trainable parameter"],
        ),
        (|spec| state(spec).moments = None, &["moments", "none"]),
        (
            |spec| first_moment(spec).name = Some("momentum1".into()),
            &["momentum1", "weight", "twice"],
        ),
        (
            |spec| *first_moment(spec) = TensorSpec::floats("momentum0", &[1], &[0.0]),
            &["momentum0", "[2, 3]", "[1]"],
        ),
        (
            |spec| {
                let again = state(spec).clone();
                spec.groups[0].states.as_mut().unwrap().push(again);
            },
            &["weight", "twice"],
        ),
        (
            |spec| spec.nominal = true,
            &["nominal", "optimizer state", "weight"],
        ),
        (
            |spec| {
                spec.groups.clear();
                spec.nominal = true;
                weight(spec).dims = Some(vec![1 << 30, 3]);
                weight(spec).inline = Some(Vec::new());
            },
            &["weight", "found 0"],
        ),
        (|spec| spec.ints[0].0 = None, &["property's name"]),
        (|spec| spec.floats[0].0 = None, &["property's name"]),
        (|spec| spec.strings[0].0 = None, &["property's name"]),
        (|spec| spec.strings[0].1 = None, &["note", "none"]),
        (
            |spec| spec.strings[0].1 = Some("a\0b".into()),
            &["note", "NUL"],
        ),
        (
            |spec| spec.floats[0].0 = Some("epoch".into()),
            &["epoch", "twice"],
        ),
    ];
    for (defect, words) in defects {
        let mut spec = sound();
        defect(&mut spec);
        refused(Checkpoint::from_bytes(&spec.to_bytes()), words);
    }
}

#[test]
fn tensors_that_share_their_bytes_are_refused() {
    let tensors = (0..64)
        .map(|index| TensorSpec::floats(&format!("t{index}"), &[1024], &[0.0; 1024]))
        .collect();
    let mut spec = CheckpointSpec::new(tensors, Vec::new());
    Checkpoint::from_bytes(&spec.to_bytes()).unwrap();
    // A file of 20 kB, now, that asks for 256 kB of memory; one of 2 GB could ask for any amount.
    spec.share = true;
    let bytes = spec.to_bytes();
    assert!(bytes.len() < 20_000);
    refused(
        Checkpoint::from_bytes(&bytes),
        &["claim more bytes than there are"],
    );
}

#[test]
fn external_data_is_checked_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let data_path = folder.path().join("checkpoint.data");
    let mut spec = sound();
    let mut data = Vec::new();
    spec.external = true;
    weight(&mut spec).move_out(&mut data);
    fs::write(&path, spec.to_bytes()).unwrap();
    refused(Checkpoint::load(&path), &["checkpoint.data"]);
    fs::write(&data_path, &data).unwrap();
    assert!(Checkpoint::load(&path).unwrap().has_external_data());
    for len in 0..data.len() {
        fs::write(&data_path, &data[..len]).unwrap();
        refused(
            Checkpoint::load(&path),
            &[
                "weight",
                "expected 24 bytes at 0",
                &format!("found {len} bytes"),
            ],
        );
    }
    fs::write(&data_path, &data).unwrap();
    for offset in [1, 24, i64::MAX] {
        weight(&mut spec).offset = offset;
        fs::write(&path, spec.to_bytes()).unwrap();
        refused(
            Checkpoint::load(&path),
            &["weight", &format!("at {offset} of its external data")],
        );
    }
    weight(&mut spec).offset = i64::MIN;
    fs::write(&path, spec.to_bytes()).unwrap();
    refused(Checkpoint::load(&path), &["weight", "no data"]);
}

/// Half of an optimizer's state is no state: the session, which knows the optimizer, refuses it.
#[test]
fn missing_moments_are_refused_by_the_session() {
    let parameters = session("regression");
    let mut trainable = Vec::new();
    let mut frozen = Vec::new();
    for info in parameters.checkpoint().parameters() {
        let dims: Vec<i64> = info
            .shape()
            .iter()
            .map(|&dimension| dimension as i64)
            .collect();
        let data = parameters.checkpoint().parameter(info.name()).unwrap();
        let tensor = TensorSpec::floats(info.name(), &dims, data.data());
        if info.requires_grad() {
            trainable.push(tensor)
        } else {
            frozen.push(tensor)
        }
    }
    let moments = |tensor: &TensorSpec, names: &[&str]| -> Vec<TensorSpec> {
        names
            .iter()
            .map(|name| TensorSpec {
                name: Some((*name).into()),
                ..tensor.clone()
            })
            .collect()
    };
    let states = |names: &[&str], count: usize| -> Vec<StateSpec> {
        trainable
            .iter()
            .take(count)
            .map(|tensor| StateSpec {
                parameter: tensor.name.clone(),
                moments: Some(moments(tensor, names)),
            })
            .collect()
    };
    let with = |states: Vec<StateSpec>| {
        let mut spec = CheckpointSpec::new(trainable.clone(), frozen.clone());
        spec.groups.push(GroupSpec {
            name: Some("group0".into()),
            step: 1,
            states: Some(states),
        });
        train(Checkpoint::from_bytes(&spec.to_bytes()).unwrap())
    };
    with(states(&["momentum0", "momentum1"], trainable.len())).unwrap();
    assert!(
        with(states(&["momentum0"], trainable.len())).is_err(),
        "a moment is missing"
    );
    assert!(
        with(states(&["momentum0", "other"], trainable.len())).is_err(),
        "a moment has another name"
    );
    assert!(
        with(states(&["momentum0", "momentum1"], trainable.len() - 1)).is_err(),
        "a parameter has no state"
    );
}
