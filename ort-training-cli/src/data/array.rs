//! Arrays whose element type is known at run time only, between files and tensors.

use anyhow::{Result, bail};
use half::{bf16, f16};
use ort_training::{ElementType, StringTensor, Tensor, Value};

/// The elements of an array, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    Bool(Vec<bool>),
    Text(Vec<String>),
}

/// Does the same with the vector of every variant.
macro_rules! each {
    ($elements:expr, $vector:ident => $body:expr) => {
        match $elements {
            Elements::F16($vector) => $body,
            Elements::Bf16($vector) => $body,
            Elements::F32($vector) => $body,
            Elements::F64($vector) => $body,
            Elements::I8($vector) => $body,
            Elements::I16($vector) => $body,
            Elements::I32($vector) => $body,
            Elements::I64($vector) => $body,
            Elements::U8($vector) => $body,
            Elements::U16($vector) => $body,
            Elements::U32($vector) => $body,
            Elements::U64($vector) => $body,
            Elements::Bool($vector) => $body,
            Elements::Text($vector) => $body,
        }
    };
}

/// The same, keeping the variant.
macro_rules! map {
    ($elements:expr, $vector:ident => $body:expr) => {
        match $elements {
            Elements::F16($vector) => Elements::F16($body),
            Elements::Bf16($vector) => Elements::Bf16($body),
            Elements::F32($vector) => Elements::F32($body),
            Elements::F64($vector) => Elements::F64($body),
            Elements::I8($vector) => Elements::I8($body),
            Elements::I16($vector) => Elements::I16($body),
            Elements::I32($vector) => Elements::I32($body),
            Elements::I64($vector) => Elements::I64($body),
            Elements::U8($vector) => Elements::U8($body),
            Elements::U16($vector) => Elements::U16($body),
            Elements::U32($vector) => Elements::U32($body),
            Elements::U64($vector) => Elements::U64($body),
            Elements::Bool($vector) => Elements::Bool($body),
            Elements::Text($vector) => Elements::Text($body),
        }
    };
}

/// One element, in the widest type of its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Int(i128),
    Float(f64),
    Bool(bool),
    Text(String),
}

impl Scalar {
    /// The number in a cell of text; text when it is none.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        if let Ok(int) = text.parse() {
            return Self::Int(int);
        }
        text.parse()
            .map_or_else(|_| Self::Text(text.to_owned()), Self::Float)
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(int) => Some(*int as f64),
            Self::Float(float) => Some(*float),
            Self::Bool(bool) => Some(f64::from(u8::from(*bool))),
            Self::Text(_) => None,
        }
    }

    /// The whole number it is, if it is one.
    fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(int) => Some(*int),
            Self::Float(float) if float.fract() == 0.0 && float.abs() < 2f64.powi(63) => {
                Some(*float as i128)
            }
            Self::Bool(bool) => Some(i128::from(*bool)),
            _ => None,
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(int) => int.fmt(f),
            Self::Float(float) => float.fmt(f),
            Self::Bool(bool) => bool.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl Elements {
    /// No elements of this type; none for types that files cannot hold.
    pub fn empty(element_type: ElementType) -> Option<Self> {
        Some(match element_type {
            ElementType::Float16 => Self::F16(Vec::new()),
            ElementType::Bfloat16 => Self::Bf16(Vec::new()),
            ElementType::Float32 => Self::F32(Vec::new()),
            ElementType::Float64 => Self::F64(Vec::new()),
            ElementType::Int8 => Self::I8(Vec::new()),
            ElementType::Int16 => Self::I16(Vec::new()),
            ElementType::Int32 => Self::I32(Vec::new()),
            ElementType::Int64 => Self::I64(Vec::new()),
            ElementType::Uint8 => Self::U8(Vec::new()),
            ElementType::Uint16 => Self::U16(Vec::new()),
            ElementType::Uint32 => Self::U32(Vec::new()),
            ElementType::Uint64 => Self::U64(Vec::new()),
            ElementType::Bool => Self::Bool(Vec::new()),
            ElementType::String => Self::Text(Vec::new()),
            _ => return None,
        })
    }

    pub fn element_type(&self) -> ElementType {
        match self {
            Self::F16(_) => ElementType::Float16,
            Self::Bf16(_) => ElementType::Bfloat16,
            Self::F32(_) => ElementType::Float32,
            Self::F64(_) => ElementType::Float64,
            Self::I8(_) => ElementType::Int8,
            Self::I16(_) => ElementType::Int16,
            Self::I32(_) => ElementType::Int32,
            Self::I64(_) => ElementType::Int64,
            Self::U8(_) => ElementType::Uint8,
            Self::U16(_) => ElementType::Uint16,
            Self::U32(_) => ElementType::Uint32,
            Self::U64(_) => ElementType::Uint64,
            Self::Bool(_) => ElementType::Bool,
            Self::Text(_) => ElementType::String,
        }
    }

    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    pub fn get(&self, index: usize) -> Scalar {
        match self {
            Self::F16(v) => Scalar::Float(v[index].into()),
            Self::Bf16(v) => Scalar::Float(v[index].into()),
            Self::F32(v) => Scalar::Float(v[index].into()),
            Self::F64(v) => Scalar::Float(v[index]),
            Self::I8(v) => Scalar::Int(v[index].into()),
            Self::I16(v) => Scalar::Int(v[index].into()),
            Self::I32(v) => Scalar::Int(v[index].into()),
            Self::I64(v) => Scalar::Int(v[index].into()),
            Self::U8(v) => Scalar::Int(v[index].into()),
            Self::U16(v) => Scalar::Int(v[index].into()),
            Self::U32(v) => Scalar::Int(v[index].into()),
            Self::U64(v) => Scalar::Int(v[index].into()),
            Self::Bool(v) => Scalar::Bool(v[index]),
            Self::Text(v) => Scalar::Text(v[index].clone()),
        }
    }

    /// Appends a value. A float may be rounded to a shorter one; nothing else may change. The error says what was
    /// expected and found.
    pub fn push(&mut self, scalar: &Scalar) -> Result<()> {
        let wanted = self.element_type();
        let wrong = || anyhow::anyhow!("expected a value of type {wanted}, found {scalar}");
        let float = || {
            let float = scalar.as_f64().ok_or_else(wrong)?;
            Ok::<f64, anyhow::Error>(float)
        };
        // A finite number that becomes infinite was changed, not rounded.
        let kept = |before: f64, after: f64| {
            if before.is_finite() && !after.is_finite() {
                Err(wrong())
            } else {
                Ok(())
            }
        };
        let int = || scalar.as_int().ok_or_else(wrong);
        match self {
            Self::F16(v) => {
                let before = float()?;
                let after = f16::from_f64(before);
                kept(before, after.into())?;
                v.push(after);
            }
            Self::Bf16(v) => {
                let before = float()?;
                let after = bf16::from_f64(before);
                kept(before, after.into())?;
                v.push(after);
            }
            Self::F32(v) => {
                let before = float()?;
                kept(before, f64::from(before as f32))?;
                v.push(before as f32);
            }
            Self::F64(v) => v.push(float()?),
            Self::I8(v) => v.push(int()?.try_into().map_err(|_| wrong())?),
            Self::I16(v) => v.push(int()?.try_into().map_err(|_| wrong())?),
            Self::I32(v) => v.push(int()?.try_into().map_err(|_| wrong())?),
            Self::I64(v) => v.push(int()?.try_into().map_err(|_| wrong())?),
            Self::U8(v) => v.push(int()?.try_into().map_err(|_| wrong())?),
            Self::U16(v) => v.push(int()?.try_into().map_err(|_| wrong())?),
            Self::U32(v) => v.push(int()?.try_into().map_err(|_| wrong())?),
            Self::U64(v) => v.push(int()?.try_into().map_err(|_| wrong())?),
            Self::Bool(v) => v.push(match (scalar, scalar.as_int()) {
                (_, Some(0)) => false,
                (_, Some(1)) => true,
                (Scalar::Text(text), _) if text.eq_ignore_ascii_case("false") => false,
                (Scalar::Text(text), _) if text.eq_ignore_ascii_case("true") => true,
                _ => return Err(wrong()),
            }),
            Self::Text(v) => match scalar {
                Scalar::Text(text) => v.push(text.clone()),
                _ => return Err(wrong()),
            },
        }
        Ok(())
    }
}

/// Elements and the shape that they have.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub elements: Elements,
}

impl Array {
    /// `shape`'s product has to be the number of elements.
    pub fn new(shape: Vec<usize>, elements: Elements) -> Result<Self> {
        let count = shape
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(size));
        if count != Some(elements.len()) {
            bail!(
                "expected {} elements for the shape {shape:?}, found {}",
                count.map_or_else(|| "more than fit into memory".to_owned(), |c| c.to_string()),
                elements.len()
            );
        }
        Ok(Self { shape, elements })
    }

    /// Elements of one row along the first axis.
    pub fn row_len(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// The same values in another type; see [`Elements::push`] for what is kept.
    pub fn cast(self, wanted: ElementType) -> Result<Self> {
        let found = self.elements.element_type();
        if wanted == found {
            return Ok(self);
        }
        let Some(mut elements) = Elements::empty(wanted) else {
            bail!("expected elements of type {wanted}, which no file here can give");
        };
        for at in 0..self.elements.len() {
            elements.push(&self.elements.get(at)).map_err(|error| {
                error.context(format!(
                    "element {:?} of {found} {:?}",
                    unravel(at, &self.shape),
                    self.shape
                ))
            })?;
        }
        Self::new(self.shape, elements)
    }

    /// The rows with these numbers, in this order.
    pub fn take_rows(&self, rows: &[usize]) -> Self {
        let len = self.row_len();
        let mut shape = self.shape.clone();
        if let Some(first) = shape.first_mut() {
            *first = rows.len();
        }
        let elements = map!(&self.elements, v => rows
            .iter()
            .flat_map(|row| v[row * len..(row + 1) * len].iter().cloned())
            .collect());
        Self { shape, elements }
    }

    /// Appends the rows of another array of the same type, whose rows have the same shape.
    pub fn append(&mut self, mut other: Self) -> Result<()> {
        let (wanted, found) = (self.elements.element_type(), other.elements.element_type());
        let row = |array: &Self| array.shape.get(1..).map(<[usize]>::to_vec);
        if wanted != found || row(self).is_none() || row(self) != row(&other) {
            bail!(
                "expected {wanted} {:?} in all but the first axis, found {found} {:?}",
                self.shape,
                other.shape
            );
        }
        macro_rules! appended {
            ($($variant:ident)*) => {
                match (&mut self.elements, &mut other.elements) {
                    $((Elements::$variant(rows), Elements::$variant(more)) => rows.append(more),)*
                    _ => unreachable!("of one type"),
                }
            };
        }
        appended!(F16 Bf16 F32 F64 I8 I16 I32 I64 U8 U16 U32 U64 Bool Text);
        self.shape[0] += other.shape[0];
        Ok(())
    }

    /// A tensor with these elements.
    pub fn into_value(self) -> ort_training::Result<Value> {
        macro_rules! tensors {
            ($($variant:ident)*) => {
                match self.elements {
                    $(Elements::$variant(v) => Tensor::from_vec(&self.shape, v)?.into_value(),)*
                    Elements::Text(v) => StringTensor::new(&self.shape, &v)?.into_value(),
                }
            };
        }
        Ok(tensors!(F16 Bf16 F32 F64 I8 I16 I32 I64 U8 U16 U32 U64 Bool))
    }

    /// A copy of what a run returned.
    pub fn from_value(value: &Value) -> Result<Self> {
        let element_type = value.element_type()?;
        let Some(elements) = Elements::empty(element_type) else {
            bail!("expected elements of a number type, bool or string, found {element_type}");
        };
        macro_rules! copies {
            ($($variant:ident)*) => {
                match elements {
                    $(Elements::$variant(_) => Elements::$variant(value.data()?.to_vec()),)*
                    Elements::Text(_) => Elements::Text(value.strings()?),
                }
            };
        }
        let elements = copies!(F16 Bf16 F32 F64 I8 I16 I32 I64 U8 U16 U32 U64 Bool);
        Self::new(value.shape()?.to_vec(), elements)
    }
}

/// The index along each axis of the element at `at` in row-major order.
pub fn unravel(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (place, &size) in index.iter_mut().zip(shape).rev() {
        *place = at % size.max(1);
        at /= size.max(1);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(shape: &[usize], values: &[f64]) -> Array {
        Array::new(shape.to_vec(), Elements::F64(values.to_vec())).unwrap()
    }

    #[test]
    fn whole_numbers_become_integers_and_others_do_not() {
        let whole = floats(&[2], &[3.0, -1.0]).cast(ElementType::Int64).unwrap();
        assert_eq!(whole.elements, Elements::I64(vec![3, -1]));
        let error = floats(&[2, 1], &[3.0, 0.5])
            .cast(ElementType::Int64)
            .unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("[1, 0]") && error.contains("int64") && error.contains("0.5"),
            "{error}"
        );
    }

    #[test]
    fn ranges_are_kept() {
        assert!(floats(&[1], &[300.0]).cast(ElementType::Uint8).is_err());
        assert!(floats(&[1], &[-1.0]).cast(ElementType::Uint64).is_err());
        assert!(floats(&[1], &[1e39]).cast(ElementType::Float32).is_err());
        assert!(floats(&[1], &[2.0]).cast(ElementType::Bool).is_err());
        let infinite = floats(&[1], &[f64::INFINITY])
            .cast(ElementType::Float32)
            .unwrap();
        assert_eq!(infinite.elements, Elements::F32(vec![f32::INFINITY]));
    }

    #[test]
    fn rows_and_indices() {
        let array = floats(&[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let taken = array.take_rows(&[2, 0]);
        assert_eq!(taken, floats(&[2, 2], &[4.0, 5.0, 0.0, 1.0]));
        assert_eq!(unravel(5, &[3, 2]), [2, 1]);
        assert_eq!(unravel(0, &[]), [0usize; 0]);
    }

    #[test]
    fn text() {
        assert_eq!(Scalar::parse(" 7 "), Scalar::Int(7));
        assert_eq!(Scalar::parse("1e-3"), Scalar::Float(1e-3));
        assert_eq!(Scalar::parse("seven"), Scalar::Text("seven".into()));
    }
}
