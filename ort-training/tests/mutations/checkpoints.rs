//! Mutated checkpoints, nominal ones and ones with external data among them, and all that a session does with them.

use std::fs;

use ort_training::{Checkpoint, CheckpointSummary, OptimizerState, ParameterInfo, TrainingSession};

use crate::checkpoint_writer::{CheckpointSpec, FLOAT16, GroupSpec, STRING, StateSpec, TensorSpec};
use crate::random::Random;
use crate::runner::{Folder, Stages};
use crate::support::{checkpoint, env, fixture, one_thread};
use crate::{bytes, model, training};

const NUMBERS: [i64; 10] = [0, 1, -1, 2, 3, 8, 1 << 31, 1 << 40, i64::MAX, i64::MIN];

pub fn run(index: u64, folder: &Folder) -> Stages {
    let mut random = Random::new("checkpoints", index);
    let path = folder.path().join("checkpoint");
    let data_path = folder.path().join("checkpoint.data");
    let _ = fs::remove_file(&data_path);
    let mut spec = sound(&mut random);
    let mut data = Vec::new();
    if spec.external {
        for tensor in spec.trainable.iter_mut().flatten() {
            tensor.move_out(&mut data);
        }
    }
    let of_bytes = random.one_in(4);
    if !of_bytes {
        for _ in 0..=random.below(2) {
            change(&mut spec, &mut random);
        }
    }
    let mut written = spec.to_bytes();
    if of_bytes {
        bytes::mutate(&mut written, &mut random);
    }
    if spec.external && random.one_in(2) {
        bytes::mutate(&mut data, &mut random);
    }
    folder.keep("checkpoint", &written);
    folder.keep("checkpoint.data", &data);
    fs::write(&path, &written).unwrap();
    if !data.is_empty() {
        fs::write(&data_path, &data).unwrap();
    }
    let loaded = if spec.external || random.one_in(2) {
        Checkpoint::load(&path)
    } else {
        Checkpoint::from_bytes(&written)
    };
    let mut checkpoint = match loaded {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            assert!(error.to_string().contains("checkpoint"), "{error}");
            return vec!["refused"];
        }
    };
    let mut stages = vec!["loaded"];
    look_at(&mut checkpoint, folder);
    let session = TrainingSession::builder(&env())
        .options(one_thread())
        .checkpoint(checkpoint)
        .artifacts(fixture("regression"))
        .unwrap()
        .build();
    if let Ok(session) = session {
        stages.extend(training::everything(session, &mut random, folder.path()));
    }
    stages
}

/// What can be done without a session: what was loaded is what is saved.
fn look_at(checkpoint: &mut Checkpoint, folder: &Folder) {
    let names: Vec<String> = checkpoint
        .properties()
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in &names {
        assert!(checkpoint.property(name).unwrap().is_some());
    }
    for info in checkpoint.parameters() {
        let found = checkpoint.parameter_type_and_shape(info.name());
        if !checkpoint.is_nominal() {
            let (element_type, shape) = found.unwrap();
            assert_eq!(element_type, info.element_type());
            assert_eq!(shape, info.shape());
        }
    }
    checkpoint.set_property("added", 1i64).unwrap();
    if checkpoint.has_external_data() {
        return;
    }
    let saved = folder.path().join("again");
    if checkpoint.save(&saved, OptimizerState::Include).is_ok() {
        let again = CheckpointSummary::read(&saved).unwrap();
        // ONNX Runtime writes them by name.
        let sorted = |infos: &[ParameterInfo]| {
            let mut infos = infos.to_vec();
            infos.sort_by(|one, other| one.name().cmp(other.name()));
            infos
        };
        assert_eq!(sorted(again.parameters()), sorted(checkpoint.parameters()));
        assert_eq!(again.properties().len(), checkpoint.properties().count());
    }
}

/// A checkpoint for the regression model with something of everything, in order.
fn sound(random: &mut Random) -> CheckpointSpec {
    let of_fixture = checkpoint("regression");
    let (mut trainable, mut frozen) = (Vec::new(), Vec::new());
    for info in of_fixture.parameters() {
        let dims: Vec<i64> = info.shape().iter().map(|&dim| dim as i64).collect();
        let values = vec![0.25; info.element_count()];
        let tensor = TensorSpec::floats(info.name(), &dims, &values);
        match info.requires_grad() {
            true => trainable.push(tensor),
            false => frozen.push(tensor),
        }
    }
    let moments = |tensor: &TensorSpec| -> Vec<TensorSpec> {
        let named = |name: &str| TensorSpec {
            name: Some(name.into()),
            ..tensor.clone()
        };
        vec![named("momentum0"), named("momentum1")]
    };
    let states = trainable
        .iter()
        .map(|tensor| StateSpec {
            parameter: tensor.name.clone(),
            moments: Some(moments(tensor)),
        })
        .collect();
    let mut spec = CheckpointSpec::new(trainable, frozen);
    match random.below(6) {
        // The kinds that are written less often: by name only, and with the data in a second file.
        0 => {
            spec.nominal = true;
            for tensor in spec.trainable.iter_mut().chain(&mut spec.frozen).flatten() {
                tensor.dims = Some(Vec::new());
                tensor.inline = Some(Vec::new());
            }
        }
        1 => spec.external = true,
        _ => {}
    }
    if !spec.nominal && random.one_in(2) {
        spec.groups.push(GroupSpec {
            name: Some("group0".into()),
            step: 5,
            states: Some(states),
        });
    }
    spec.ints.push((Some("epoch".into()), 3));
    spec.floats.push((Some("best".into()), 0.5));
    spec.strings
        .push((Some("note".into()), Some("half-way".into())));
    spec
}

fn change(spec: &mut CheckpointSpec, random: &mut Random) {
    let list = match random.one_in(3) {
        true => &mut spec.frozen,
        false => &mut spec.trainable,
    };
    let states = spec
        .groups
        .iter_mut()
        .filter_map(|group| group.states.as_mut())
        .flatten();
    match random.below(16) {
        0..=4 => {
            if let Some(tensor) = random.any(list.as_deref_mut().unwrap_or_default()) {
                change_tensor(tensor, random);
            }
        }
        5 | 6 => {
            let mut moments: Vec<&mut TensorSpec> = states
                .filter_map(|state| state.moments.as_mut())
                .flatten()
                .collect();
            if let Some(tensor) = random.any(&mut moments) {
                change_tensor(tensor, random);
            }
        }
        7 => {
            let mut states: Vec<&mut StateSpec> = states.collect();
            if let Some(state) = random.any(&mut states) {
                match random.below(4) {
                    0 => state.parameter = Some(model::odd_name(random)),
                    1 => state.moments = None,
                    2 => drop(state.moments.as_mut().and_then(Vec::pop)),
                    _ => state.parameter = None,
                }
            }
        }
        8 => {
            for group in &mut spec.groups {
                match random.below(4) {
                    0 => group.step = *random.pick(&NUMBERS),
                    1 => group.name = random.one_in(2).then(|| model::odd_name(random)),
                    2 => drop(group.states.as_mut().and_then(Vec::pop)),
                    _ => group.states = None,
                }
            }
        }
        9 => spec.groups.extend(spec.groups.last().cloned()),
        10 => {
            let tensors = list.get_or_insert_default();
            match random.below(3) {
                0 => drop(tensors.pop()),
                1 => tensors.extend(tensors.last().cloned()),
                _ => tensors.reverse(),
            }
        }
        11 => std::mem::swap(&mut spec.trainable, &mut spec.frozen),
        12 => spec.nominal = !spec.nominal,
        13 => spec.version = *random.pick(&[0, 1, 2, 3, -1]),
        14 => spec.ints.push((
            random.one_in(2).then(|| model::odd_name(random)),
            *random.pick(&NUMBERS),
        )),
        _ => spec.strings.push((
            Some(model::odd_name(random)),
            random.one_in(2).then(|| model::odd_name(random)),
        )),
    }
}

fn change_tensor(tensor: &mut TensorSpec, random: &mut Random) {
    match random.below(8) {
        0 => tensor.name = random.one_in(2).then(|| model::odd_name(random)),
        1 => {
            if let Some(dim) = random.any(tensor.dims.as_deref_mut().unwrap_or_default()) {
                *dim = *random.pick(&NUMBERS);
            }
        }
        // The same number of elements in another shape.
        2 => tensor.dims.as_mut().unwrap().insert(0, 1),
        3 => tensor.dims.as_mut().unwrap().reverse(),
        4 => tensor.data_type = *random.pick(&[0, 2, 6, 7, 9, 11, STRING, FLOAT16, 99, -1]),
        5 => {
            if let Some(data) = &mut tensor.inline {
                match random.one_in(2) {
                    true => drop(data.pop()),
                    false => data.extend([0; 4]),
                }
            }
        }
        6 => tensor.offset = *random.pick(&NUMBERS),
        _ => tensor.inline = None,
    }
}
