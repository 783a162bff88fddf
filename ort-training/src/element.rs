//! Element types of tensors.

use std::fmt;

use half::{bf16, f16};
use ort_training_sys as sys;

/// The type of a tensor's elements (wraps `ONNXTensorElementDataType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// 32-bit float.
    Float32,
    /// Unsigned 8-bit integer.
    Uint8,
    /// Signed 8-bit integer.
    Int8,
    /// Unsigned 16-bit integer.
    Uint16,
    /// Signed 16-bit integer.
    Int16,
    /// Signed 32-bit integer.
    Int32,
    /// Signed 64-bit integer.
    Int64,
    /// UTF-8 string; its length varies, so it is no [`TensorElement`]: see [`StringTensor`](crate::StringTensor).
    String,
    /// Truth value, one byte.
    Bool,
    /// IEEE 16-bit float ([`half::f16`]).
    Float16,
    /// 64-bit float.
    Float64,
    /// Unsigned 32-bit integer.
    Uint32,
    /// Unsigned 64-bit integer.
    Uint64,
    /// 16-bit float with the exponent of a 32-bit one ([`half::bf16`]).
    Bfloat16,
    /// 8-bit float, 4 exponent bits, finite ([`F8E4M3FN`]).
    Float8E4M3FN,
    /// 8-bit float, 4 exponent bits, finite, no negative zero ([`F8E4M3FNUZ`]).
    Float8E4M3FNUZ,
    /// 8-bit float, 5 exponent bits ([`F8E5M2`]).
    Float8E5M2,
    /// 8-bit float, 5 exponent bits, finite, no negative zero ([`F8E5M2FNUZ`]).
    Float8E5M2FNUZ,
    /// Unsigned 4-bit integer, two to a byte ([`Uint4x2`]).
    Uint4,
    /// Signed 4-bit integer, two to a byte ([`Int4x2`]).
    Int4,
    /// A type that this crate has no elements for (complex numbers, which ONNX Runtime has none for either, and whatever
    /// comes later): the value of `ONNXTensorElementDataType`.
    Other(u32),
}

/// Name in messages, number in C (and in ONNX's `TensorProto.DataType`: the two lists agree where both have an entry).
const NAMES: [(ElementType, &str, u32); 20] = [
    (ElementType::Float32, "float32", 1),
    (ElementType::Uint8, "uint8", 2),
    (ElementType::Int8, "int8", 3),
    (ElementType::Uint16, "uint16", 4),
    (ElementType::Int16, "int16", 5),
    (ElementType::Int32, "int32", 6),
    (ElementType::Int64, "int64", 7),
    (ElementType::String, "string", 8),
    (ElementType::Bool, "bool", 9),
    (ElementType::Float16, "float16", 10),
    (ElementType::Float64, "float64", 11),
    (ElementType::Uint32, "uint32", 12),
    (ElementType::Uint64, "uint64", 13),
    (ElementType::Bfloat16, "bfloat16", 16),
    (ElementType::Float8E4M3FN, "float8e4m3fn", 17),
    (ElementType::Float8E4M3FNUZ, "float8e4m3fnuz", 18),
    (ElementType::Float8E5M2, "float8e5m2", 19),
    (ElementType::Float8E5M2FNUZ, "float8e5m2fnuz", 20),
    (ElementType::Uint4, "uint4", 21),
    (ElementType::Int4, "int4", 22),
];

impl ElementType {
    /// The type of an `ONNXTensorElementDataType` value.
    #[must_use]
    pub fn from_raw(raw: u32) -> Self {
        NAMES
            .iter()
            .find(|(_, _, number)| *number == raw)
            .map_or(Self::Other(raw), |(element, _, _)| *element)
    }

    /// The `ONNXTensorElementDataType` value of this type.
    #[must_use]
    pub fn as_raw(self) -> u32 {
        match self {
            Self::Other(raw) => raw,
            _ => NAMES
                .iter()
                .find(|(element, _, _)| *element == self)
                .map_or(0, |(_, _, number)| *number),
        }
    }

    pub(crate) fn raw_enum(self) -> sys::ONNXTensorElementDataType {
        sys::ONNXTensorElementDataType(self.as_raw())
    }

    /// Bytes that `count` elements take; none for strings and types that this crate does not know, or on overflow.
    #[must_use]
    pub fn byte_count(self, count: usize) -> Option<usize> {
        let size = match self {
            Self::String | Self::Other(_) => return None,
            Self::Uint4 | Self::Int4 => return Some(count.div_ceil(2)),
            Self::Float64 | Self::Int64 | Self::Uint64 => 8,
            Self::Float32 | Self::Int32 | Self::Uint32 => 4,
            Self::Float16 | Self::Bfloat16 | Self::Int16 | Self::Uint16 => 2,
            _ => 1,
        };
        count.checked_mul(size)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(raw) => write!(f, "element type {raw}"),
            _ => f.write_str(
                NAMES
                    .iter()
                    .find(|(element, _, _)| element == self)
                    .map_or("undefined", |(_, name, _)| name),
            ),
        }
    }
}

/// A Rust type with the memory layout of an ONNX Runtime element type.
///
/// # Safety
/// `ELEMENT_TYPE` must have exactly the layout of the type, and where not every bit pattern is a value of the type,
/// `is_valid` must say which are.
pub unsafe trait TensorElement: Copy + Send + Sync + fmt::Debug + 'static {
    /// The element type in ONNX Runtime.
    const ELEMENT_TYPE: ElementType;

    /// How many items of the Rust type hold `count` elements: as many, except for the packed 4-bit types.
    #[must_use]
    fn storage_len(count: usize) -> usize {
        count
    }

    /// Whether `len` items at `data`, written by ONNX Runtime, are values of this type.
    ///
    /// # Safety
    /// `data` must point to `len` items' worth of initialised bytes, aligned for the type.
    #[doc(hidden)]
    unsafe fn is_valid(_data: *const Self, _len: usize) -> bool {
        true
    }
}

macro_rules! element {
    ($($rust:ty => $element:ident),* $(,)?) => {$(
        // SAFETY: the layouts agree, and every bit pattern is a value.
        unsafe impl TensorElement for $rust {
            const ELEMENT_TYPE: ElementType = ElementType::$element;
        }
    )*};
}

element! {
    f32 => Float32, f64 => Float64, f16 => Float16, bf16 => Bfloat16,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    F8E4M3FN => Float8E4M3FN, F8E4M3FNUZ => Float8E4M3FNUZ, F8E5M2 => Float8E5M2, F8E5M2FNUZ => Float8E5M2FNUZ,
}

// SAFETY: a bool is one byte in Rust and in ONNX Runtime; other bytes than 0 and 1 are refused by `is_valid`.
unsafe impl TensorElement for bool {
    const ELEMENT_TYPE: ElementType = ElementType::Bool;

    unsafe fn is_valid(data: *const Self, len: usize) -> bool {
        // SAFETY: by the contract of the trait's function; bytes have no invalid pattern.
        let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
        bytes.iter().all(|byte| *byte <= 1)
    }
}

macro_rules! packed {
    ($($rust:ident => $element:ident),*) => {$(
        // SAFETY: one byte holds two elements, the first in the low half; every bit pattern is a value.
        unsafe impl TensorElement for $rust {
            const ELEMENT_TYPE: ElementType = ElementType::$element;

            fn storage_len(count: usize) -> usize {
                count.div_ceil(2)
            }
        }
    )*};
}

packed! { Uint4x2 => Uint4, Int4x2 => Int4 }

macro_rules! byte_type {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(
            /// The bits.
            pub u8,
        );
    )*};
}

byte_type! {
    /// The bits of an 8-bit float with 4 exponent bits, finite values only.
    F8E4M3FN,
    /// The bits of an 8-bit float with 4 exponent bits, finite values only, no negative zero.
    F8E4M3FNUZ,
    /// The bits of an 8-bit float with 5 exponent bits.
    F8E5M2,
    /// The bits of an 8-bit float with 5 exponent bits, finite values only, no negative zero.
    F8E5M2FNUZ,
    /// Two unsigned 4-bit integers, the first in the low half.
    Uint4x2,
    /// Two signed 4-bit integers in two's complement, the first in the low half.
    Int4x2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        for raw in 0..40 {
            assert_eq!(ElementType::from_raw(raw).as_raw(), raw);
        }
        assert_eq!(ElementType::from_raw(14), ElementType::Other(14));
        assert_eq!(ElementType::Bfloat16.to_string(), "bfloat16");
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        use sys::ONNXTensorElementDataType as Raw;
        assert_eq!(
            f32::ELEMENT_TYPE.raw_enum(),
            Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
        );
        assert_eq!(
            f64::ELEMENT_TYPE.raw_enum(),
            Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE
        );
        assert_eq!(
            f16::ELEMENT_TYPE.raw_enum(),
            Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16
        );
        assert_eq!(
            bf16::ELEMENT_TYPE.raw_enum(),
            Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16
        );
        assert_eq!(
            i64::ELEMENT_TYPE.raw_enum(),
            Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64
        );
        assert_eq!(
            bool::ELEMENT_TYPE.raw_enum(),
            Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL
        );
        assert_eq!(
            ElementType::String.raw_enum(),
            Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING
        );
        assert_eq!(
            Int4x2::ELEMENT_TYPE.raw_enum(),
            Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4
        );
    }

    #[test]
    fn sizes() {
        assert_eq!(ElementType::Int4.byte_count(3), Some(2));
        assert_eq!(ElementType::Float64.byte_count(3), Some(24));
        assert_eq!(ElementType::Float64.byte_count(usize::MAX), None);
        assert_eq!(ElementType::String.byte_count(3), None);
    }
}
