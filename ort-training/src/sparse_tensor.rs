//! Sparse tensors of a model, checked before ONNX Runtime writes their values to where their indices say: it does not
//! look at the bounds (tensorprotoutils.cc, `CopySparseData`).

use prost::Message;

use crate::shape::element_count;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SparseTensorProto {
    #[prost(message, optional, tag = "1")]
    values: Option<ValuesProto>,
    #[prost(message, optional, tag = "2")]
    indices: Option<IndicesProto>,
    #[prost(int64, repeated, packed = "false", tag = "3")]
    dims: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValuesProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    dims: Vec<i64>,
    #[prost(string, tag = "8")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct IndicesProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(int32, repeated, tag = "5")]
    int32_data: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    int64_data: Vec<i64>,
    #[prost(bytes = "vec", optional, tag = "9")]
    raw_data: Option<Vec<u8>>,
}

/// A shape of numbers that may be anything, and the number of its elements.
fn sized(what: &str, dims: &[i64]) -> Result<(Vec<usize>, usize), String> {
    let refuse = || format!("impossible dimensions {dims:?} of {what}");
    let shape: Vec<usize> = dims
        .iter()
        .map(|&dim| usize::try_from(dim).map_err(|_| refuse()))
        .collect::<Result<_, _>>()?;
    let count = element_count(&shape).map_err(|_| refuse())?;
    Ok((shape, count))
}

impl SparseTensorProto {
    /// The name of what it is the initializer of.
    pub(crate) fn name(&self) -> &str {
        self.values.as_ref().map_or("", |values| &values.name)
    }
}

/// Says what is wrong.
pub(crate) fn check(tensor: &SparseTensorProto) -> Result<(), String> {
    let empty = ValuesProto::default();
    let (shape, dense) = sized("the tensor", &tensor.dims)?;
    let (_, count) = sized("its values", &tensor.values.as_ref().unwrap_or(&empty).dims)?;
    // Without values ONNX Runtime looks at no index. A tensor without dimensions has one element.
    if count == 0 {
        return Ok(());
    }
    let indices = tensor.indices.clone().unwrap_or_default();
    let (indices_shape, indices_count) = sized("its indices", &indices.dims)?;
    let places = indices.values()?;
    let per_value = match indices_shape.as_slice() {
        [_] => 1,
        [_, rank] if *rank == shape.len() => *rank,
        _ => {
            return Err(format!(
                "expected indices of shape [{count}] or [{count}, {}], found {indices_shape:?}",
                shape.len()
            ));
        }
    };
    if indices_count != places.len() || count.checked_mul(per_value) != Some(indices_count) {
        return Err(format!(
            "expected indices for {count} values, found {} numbers in shape {indices_shape:?}",
            places.len()
        ));
    }
    let limits = if indices_shape.len() == 1 {
        &[dense]
    } else {
        shape.as_slice()
    };
    for place in places.chunks(per_value.max(1)) {
        for (&index, &limit) in place.iter().zip(limits) {
            if usize::try_from(index).map_or(true, |index| index >= limit) {
                return Err(format!("expected indices below {limit}, found {index}"));
            }
        }
    }
    Ok(())
}

impl IndicesProto {
    fn values(&self) -> Result<Vec<i64>, String> {
        // TensorProto.DataType: INT8, INT16, INT32, INT64.
        fn read<const N: usize>(raw: &[u8], number: fn([u8; N]) -> i64) -> Vec<i64> {
            let chunks = raw.chunks_exact(N);
            chunks
                .map(|bytes| number(bytes.try_into().expect("chunks of N bytes")))
                .collect()
        }
        match (self.data_type, &self.raw_data) {
            (3, Some(raw)) => Ok(read(raw, |bytes| i8::from_le_bytes(bytes).into())),
            (5, Some(raw)) => Ok(read(raw, |bytes| i16::from_le_bytes(bytes).into())),
            (6, Some(raw)) => Ok(read(raw, |bytes| i32::from_le_bytes(bytes).into())),
            (7, Some(raw)) => Ok(read(raw, i64::from_le_bytes)),
            (6, None) => Ok(self.int32_data.iter().map(|&index| index.into()).collect()),
            (7, None) => Ok(self.int64_data.clone()),
            (other, _) => Err(format!(
                "expected indices of type int8, int16, int32 or int64 inside the model, found type {other}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse(dims: &[i64], count: i64, indices: &[i64], shape: &[i64]) -> SparseTensorProto {
        SparseTensorProto {
            values: Some(ValuesProto {
                dims: vec![count],
                name: "w".into(),
            }),
            indices: Some(IndicesProto {
                dims: shape.to_vec(),
                data_type: 7,
                int64_data: indices.to_vec(),
                ..IndicesProto::default()
            }),
            dims: dims.to_vec(),
        }
    }

    #[test]
    fn sparse_tensors_in_order_pass() {
        for tensor in [
            sparse(&[2, 3], 2, &[0, 5], &[2]),
            sparse(&[2, 3], 2, &[0, 0, 1, 2], &[2, 2]),
            sparse(&[0], 0, &[], &[0]),
            sparse(&[], 1, &[0], &[1]),
        ] {
            check(&tensor).unwrap();
        }
        let mut small = sparse(&[300], 2, &[], &[2]);
        small.indices = Some(IndicesProto {
            dims: vec![2],
            data_type: 5,
            raw_data: Some(vec![1, 0, 43, 1]),
            ..IndicesProto::default()
        });
        check(&small).unwrap();
        small.dims = vec![299];
        let error = check(&small).unwrap_err();
        assert!(error.contains("below 299, found 299"), "{error}");
    }

    #[test]
    fn indices_out_of_range_are_named() {
        for (tensor, words) in [
            (sparse(&[2, 3], 1, &[6], &[1]), "below 6, found 6"),
            (sparse(&[2, 3], 1, &[-1], &[1]), "below 6, found -1"),
            (sparse(&[2, 3], 1, &[1, 3], &[1, 2]), "below 3, found 3"),
            (sparse(&[2, 3], 1, &[0], &[1, 1]), "[1, 1]"),
            (sparse(&[2, 3], 2, &[0], &[1]), "2 values"),
            (sparse(&[2, 3], 2, &[0], &[2]), "found 1 numbers"),
            (sparse(&[2, 3], i64::MAX, &[0], &[1]), "found 1 numbers"),
            (sparse(&[2, -3], 1, &[0], &[1]), "impossible"),
            (sparse(&[i64::MAX, 3], 1, &[0], &[1]), "impossible"),
        ] {
            let error = check(&tensor).unwrap_err();
            assert!(error.contains(words), "{words:?} is not in {error}");
        }
    }
}
