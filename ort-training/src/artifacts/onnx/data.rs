//! Reading tensor data.

use std::borrow::Cow;

use super::messages::*;

/// Bytes of one element; `None` for types that have no whole number of them, or none at all.
pub(crate) fn element_size(elem_type: i32) -> Option<usize> {
    Some(match elem_type {
        data_type::UINT8 | data_type::INT8 | data_type::BOOL => 1,
        data_type::UINT16 | data_type::INT16 | data_type::FLOAT16 | data_type::BFLOAT16 => 2,
        data_type::FLOAT | data_type::INT32 | data_type::UINT32 => 4,
        data_type::DOUBLE | data_type::INT64 | data_type::UINT64 | data_type::COMPLEX64 => 8,
        data_type::COMPLEX128 => 16,
        _ => return None,
    })
}

/// ONNX's name of an element type.
pub(crate) fn type_name(elem_type: i32) -> &'static str {
    match elem_type {
        data_type::FLOAT => "float",
        data_type::UINT8 => "uint8",
        data_type::INT8 => "int8",
        data_type::UINT16 => "uint16",
        data_type::INT16 => "int16",
        data_type::INT32 => "int32",
        data_type::INT64 => "int64",
        data_type::STRING => "string",
        data_type::BOOL => "bool",
        data_type::FLOAT16 => "float16",
        data_type::DOUBLE => "double",
        data_type::UINT32 => "uint32",
        data_type::UINT64 => "uint64",
        data_type::COMPLEX64 => "complex64",
        data_type::COMPLEX128 => "complex128",
        data_type::BFLOAT16 => "bfloat16",
        data_type::UNDEFINED => "undefined",
        _ => "another type",
    }
}

/// A small constant's values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TensorValues {
    Float(Vec<f64>),
    Int(Vec<i64>),
}

impl TensorProto {
    /// Elements; `None` when a dimension is negative or the product overflows.
    pub(crate) fn element_count(&self) -> Option<usize> {
        self.dims
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))
    }

    pub(crate) fn is_external(&self) -> bool {
        self.data_location == Some(DATA_LOCATION_EXTERNAL)
    }

    /// The data as little-endian bytes in row-major order, whichever field holds it; `None` when it is not in this
    /// message, has another length than the shape says, or is of a type without fixed element size.
    pub(crate) fn dense(&self) -> Option<Cow<'_, [u8]>> {
        let size = element_size(self.elem_type())?;
        let bytes: Cow<'_, [u8]> = match &self.raw_data {
            Some(raw) => Cow::Borrowed(raw.as_ref()),
            None => Cow::Owned(match self.elem_type() {
                data_type::FLOAT | data_type::COMPLEX64 => self
                    .float_data
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect(),
                data_type::DOUBLE | data_type::COMPLEX128 => self
                    .double_data
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect(),
                data_type::INT64 => self
                    .int64_data
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect(),
                data_type::UINT64 => self
                    .uint64_data
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect(),
                data_type::UINT32 => self
                    .uint64_data
                    .iter()
                    .flat_map(|&v| (v as u32).to_le_bytes())
                    .collect(),
                // int32_data carries every type of 32 bits or fewer, in its low bytes.
                _ => self
                    .int32_data
                    .iter()
                    .flat_map(|v| v.to_le_bytes()[..size].to_vec())
                    .collect(),
            }),
        };
        (bytes.len() == self.element_count()?.checked_mul(size)?).then_some(bytes)
    }

    /// The values of a float, double, int32, int64, uint8 or bool constant.
    pub(crate) fn values(&self) -> Option<TensorValues> {
        let bytes = self.dense()?;
        Some(match self.elem_type() {
            data_type::FLOAT => TensorValues::Float(
                bytes
                    .chunks_exact(4)
                    .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")).into())
                    .collect(),
            ),
            data_type::DOUBLE => TensorValues::Float(
                bytes
                    .chunks_exact(8)
                    .map(|b| f64::from_le_bytes(b.try_into().expect("8 bytes")))
                    .collect(),
            ),
            data_type::INT64 => TensorValues::Int(
                bytes
                    .chunks_exact(8)
                    .map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")))
                    .collect(),
            ),
            data_type::INT32 => TensorValues::Int(
                bytes
                    .chunks_exact(4)
                    .map(|b| i32::from_le_bytes(b.try_into().expect("4 bytes")).into())
                    .collect(),
            ),
            data_type::UINT8 | data_type::BOOL => {
                TensorValues::Int(bytes.iter().map(|&b| b.into()).collect())
            }
            _ => return None,
        })
    }
}

impl TensorValues {
    pub(crate) fn floats(&self) -> Vec<f64> {
        match self {
            Self::Float(values) => values.clone(),
            Self::Int(values) => values.iter().map(|&v| v as f64).collect(),
        }
    }

    pub(crate) fn ints(&self) -> Option<&[i64]> {
        match self {
            Self::Int(values) => Some(values),
            Self::Float(_) => None,
        }
    }
}
