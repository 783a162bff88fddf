//! Tensors for whatever inputs a model says it has.

use ort_training::{Dimension, ElementType, IoInfo, StringTensor, Tensor, Value, half};

use crate::random::Random;

/// More elements than this are not fed: the model is then built only.
const MOST_ELEMENTS: usize = 1 << 16;

/// A tensor for each input; none where the model asks for something that cannot be made.
pub fn inputs(infos: &[IoInfo], random: &mut Random) -> Option<Vec<Value>> {
    infos.iter().map(|info| input(info, random)).collect()
}

fn input(info: &IoInfo, random: &mut Random) -> Option<Value> {
    let shape: Vec<usize> = info
        .dimensions()
        .unwrap_or_default()
        .iter()
        .map(|dimension| match dimension {
            Dimension::Fixed(length) => *length,
            Dimension::Symbolic(_) => 2,
        })
        .collect();
    of_type(info.element_type()?, &shape, random)
}

pub fn of_type(element_type: ElementType, shape: &[usize], random: &mut Random) -> Option<Value> {
    let count = shape
        .iter()
        .try_fold(1usize, |count, length| count.checked_mul(*length))
        .filter(|count| *count <= MOST_ELEMENTS)?;
    macro_rules! filled {
        ($from:expr) => {{
            let data = (0..count).map(|_| $from(random.below(2) as u8)).collect();
            Tensor::from_vec(shape, data).ok()?.into_value()
        }};
    }
    Some(match element_type {
        ElementType::Float32 => filled!(|n| f32::from(n) - 0.25),
        ElementType::Float64 => filled!(|n| f64::from(n) - 0.25),
        ElementType::Float16 => filled!(|n| half::f16::from_f32(f32::from(n) - 0.25)),
        ElementType::Bfloat16 => filled!(|n| half::bf16::from_f32(f32::from(n) - 0.25)),
        ElementType::Int64 => filled!(i64::from),
        ElementType::Int32 => filled!(i32::from),
        ElementType::Int16 => filled!(i16::from),
        ElementType::Int8 => filled!(|n| n as i8),
        ElementType::Uint64 => filled!(u64::from),
        ElementType::Uint32 => filled!(u32::from),
        ElementType::Uint16 => filled!(u16::from),
        ElementType::Uint8 => filled!(|n| n),
        ElementType::Bool => filled!(|n| n == 1),
        ElementType::String => StringTensor::new(shape, &vec!["a word"; count])
            .ok()?
            .into_value(),
        _ => return None,
    })
}
