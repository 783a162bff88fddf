//! Shapes and element types at every place where the API takes a tensor: what fits is taken, everything else is refused
//! with words before ONNX Runtime sees it.

use ort_training::{
    AsValue, ElementType, InferenceSession, ParameterSet, StringTensor, Tensor, TensorRef, Value,
};

use crate::feed;
use crate::random::Random;
use crate::runner::{Folder, Stages};
use crate::support::{env, fixture, one_thread, session};

const TYPES: [ElementType; 14] = [
    ElementType::Float32,
    ElementType::Float64,
    ElementType::Float16,
    ElementType::Bfloat16,
    ElementType::Int64,
    ElementType::Int32,
    ElementType::Int16,
    ElementType::Int8,
    ElementType::Uint64,
    ElementType::Uint32,
    ElementType::Uint16,
    ElementType::Uint8,
    ElementType::Bool,
    ElementType::String,
];

const LENGTHS: [usize; 14] = [
    0,
    1,
    2,
    3,
    4,
    8,
    64,
    1 << 20,
    1 << 31,
    1 << 32,
    1 << 62,
    1 << 63,
    usize::MAX - 1,
    usize::MAX,
];

/// A shape: often nearly the one that is wanted.
fn shape(wanted: &[usize], random: &mut Random) -> Vec<usize> {
    let mut shape = wanted.to_vec();
    for _ in 0..random.below(3) {
        match random.below(4) {
            0 => drop(shape.pop()),
            1 => {
                let at = random.place(shape.len());
                shape.insert(at, *random.pick(&LENGTHS[..7]));
            }
            2 => shape.reverse(),
            _ => {
                let length = *random.pick(&LENGTHS);
                if let Some(place) = random.any(&mut shape) {
                    *place = length;
                }
            }
        }
    }
    shape
}

fn product(shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(1usize, |count, length| count.checked_mul(*length))
}

pub fn run(index: u64, _: &Folder) -> Stages {
    let mut random = Random::new("shapes", index);
    match index % 6 {
        0 | 1 => made(&mut random),
        2 => fed(&mut random),
        3 => inferred(&mut random),
        4 => updated(&mut random),
        _ => buffered(&mut random),
    }
}

/// A tensor is made when, and only when, there are as many elements as the shape says.
fn made(random: &mut Random) -> Stages {
    let shape: Vec<usize> = (0..random.below(5))
        .map(|_| *random.pick(&LENGTHS))
        .collect();
    let len = match product(&shape) {
        Some(count) if count <= 4096 && !random.one_in(4) => count,
        _ => random.below(70),
    };
    let right = product(&shape) == Some(len);
    let data = vec![0.5f32; len];
    let shapes = [
        Tensor::from_vec(&shape, data.clone()).map(|tensor| tensor.shape().to_vec()),
        Tensor::from_slice(&shape, &data).map(|tensor| tensor.shape().to_vec()),
        TensorRef::new(&shape, &data).map(|tensor| tensor.shape().to_vec()),
        StringTensor::new(&shape, &vec!["a"; len]).map(|tensor| tensor.shape().to_vec()),
    ];
    for made in shapes {
        // Lengths whose product no i64 holds are refused even where another is 0.
        match made {
            Ok(made) => assert!(right && made == shape, "{shape:?} of {len}"),
            Err(error) => {
                let lengths = shape.iter().filter(|length| **length != 0);
                let representable = lengths
                    .map(|&length| i64::try_from(length).ok())
                    .try_fold(1i64, |count, length| count.checked_mul(length?));
                assert!(
                    !right || representable.is_none(),
                    "{shape:?} of {len}: {error}"
                );
            }
        }
    }
    vec![if right { "taken" } else { "refused" }]
}

/// A value near what is wanted, and whether it is just that.
fn near(
    wanted_type: ElementType,
    wanted: &[usize],
    free: usize,
    random: &mut Random,
) -> Option<(Value, bool)> {
    let element_type = match random.one_in(4) {
        true => *random.pick(&TYPES),
        false => wanted_type,
    };
    let shape = shape(wanted, random);
    let value = feed::of_type(element_type, &shape, random)?;
    let fits = element_type == wanted_type
        && shape.len() == wanted.len()
        && shape[free.min(shape.len())..] == wanted[free.min(wanted.len())..];
    Some((value, fits))
}

/// Steps of the model with fixed features and a free batch, plain and bound.
fn fed(random: &mut Random) -> Stages {
    let mut session = session("regression");
    let x = near(ElementType::Float32, &[2, 4], 1, random);
    let z = near(ElementType::Float32, &[2, 3], 1, random);
    let target = near(ElementType::Float32, &[2, 1], 1, random);
    let (Some((x, x_fits)), Some((z, z_fits)), Some((target, target_fits))) = (x, z, target) else {
        return vec!["unmade"];
    };
    let batches = [&x, &z, &target].map(|value| value.shape().unwrap().first().copied());
    let one_batch = batches.iter().all(|batch| *batch == batches[0]) && batches[0] != Some(0);
    let right = x_fits && z_fits && target_fits && one_batch;
    let inputs: [&dyn AsValue; 3] = [&x, &z, &target];
    let trained = session.train_step(&inputs).map(drop);
    let evaluated = session.eval_step(&inputs).map(drop);
    let number = random.below(3);
    session.train_step(&inputs[..number]).unwrap_err();
    let bound = session
        .bind_train_step(vec![x.into(), z.into(), target.into()])
        .and_then(|mut bound| session.train_step_bound(&mut bound));
    for result in [trained, evaluated, bound] {
        match result {
            Ok(()) => assert!(right, "{batches:?}"),
            Err(error) => assert!(!right, "{error}"),
        }
    }
    vec![if right { "taken" } else { "refused" }]
}

fn inferred(random: &mut Random) -> Stages {
    let session = InferenceSession::builder(&env())
        .options(one_thread())
        .model(fixture("digits_sgd").join("forward.onnx"))
        .build()
        .unwrap();
    let Some((value, right)) = near(ElementType::Float32, &[2, 64], 1, random) else {
        return vec!["unmade"];
    };
    match session.run(&[&value]) {
        Ok(outputs) => {
            assert!(right);
            let batch = value.shape().unwrap()[0];
            let shape = outputs.only().unwrap().shape().unwrap().to_vec();
            assert_eq!(shape, [batch, 10]);
            vec!["taken"]
        }
        Err(error) => {
            assert!(!right, "{error}");
            vec!["refused"]
        }
    }
}

fn updated(random: &mut Random) -> Stages {
    let mut session = session("regression");
    let infos = session.checkpoint().parameters().to_vec();
    let info = random.pick(&infos);
    let Some((value, right)) = near(info.element_type(), info.shape(), 0, random) else {
        return vec!["unmade"];
    };
    let before = session.checkpoint().parameter(info.name()).unwrap();
    match session
        .checkpoint_mut()
        .update_parameter(info.name(), &value)
    {
        Ok(()) => {
            assert!(right);
            let after = session.checkpoint().parameter(info.name()).unwrap();
            assert_eq!(after.data(), value.data::<f32>().unwrap());
            vec!["taken"]
        }
        Err(error) => {
            assert!(!right, "{error}");
            let after = session.checkpoint().parameter(info.name()).unwrap();
            assert_eq!(after.data(), before.data());
            vec!["refused"]
        }
    }
}

/// Buffers of parameters have their very length.
fn buffered(random: &mut Random) -> Stages {
    let mut session = session("regression");
    let set = *random.pick(&[ParameterSet::All, ParameterSet::Trainable]);
    let count = session.parameter_count(set).unwrap();
    let len = match random.below(4) {
        0 => count,
        1 => count + 1 + random.below(9),
        2 => random.below(count),
        _ => *random.pick(&LENGTHS[..8]),
    };
    let mut buffer = vec![0.5f32; len];
    let read = session.copy_parameters_to_buffer(&mut buffer, set);
    let written = session.copy_buffer_to_parameters(&buffer, set);
    assert_eq!(read.is_ok(), len == count);
    assert_eq!(written.is_ok(), len == count);
    vec![if len == count { "taken" } else { "refused" }]
}
