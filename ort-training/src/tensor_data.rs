//! Whether a model's constants have the data that their dimensions ask for.
//!
//! ONNX Runtime compares the two when it makes a tensor of a constant; its shape inference reads numbers out of constants
//! before, and behind the end of those that have too few (onnx's `ParseData`, used in `TopK` and others). The rule is that
//! of tensorprotoutils.cc, `UnpackTensor`.
//!
//! Constants can be large, so that this walks through the bytes where they lie instead of decoding messages.

use crate::shape::element_count;

/// The content of a protobuf field.
enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// The fields of a message, with their numbers. The bytes have been decoded before, so that their form is sound; where it
/// is not, the fields end.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Content<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let length = match key & 7 {
            0 => return Some((key >> 3, Content::Number(self.varint()?))),
            1 => 8,
            2 => usize::try_from(self.varint()?).ok()?,
            // The bounds of a group, which this schema has none of: what is inside is looked at as if it were outside.
            3 | 4 => 0,
            5 => 4,
            _ => return None,
        };
        let (content, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let content = match key & 7 {
            2 => Content::Bytes(content),
            _ => Content::Fixed,
        };
        Some((key >> 3, content))
    }
}

/// The messages of these field numbers in a message.
fn messages<'a>(
    message: &'a [u8],
    numbers: &'static [u64],
) -> impl Iterator<Item = (u64, &'a [u8])> {
    Fields(message).filter_map(move |(number, content)| match content {
        Content::Bytes(bytes) if numbers.contains(&number) => Some((number, bytes)),
        _ => None,
    })
}

/// Checks the constants of a model: `ModelProto` has its graph in field 7 and functions in 25.
pub(crate) fn check(model: &[u8]) -> Result<(), String> {
    for (number, part) in messages(model, &[7, 25]) {
        match number {
            7 => check_graph(part)?,
            _ => messages(part, &[7]).try_for_each(|(_, node)| check_node(node))?,
        }
    }
    Ok(())
}

/// `GraphProto`: nodes in field 1, initializers in 5.
fn check_graph(graph: &[u8]) -> Result<(), String> {
    messages(graph, &[1, 5]).try_for_each(|(number, part)| match number {
        1 => check_node(part),
        _ => check_tensor(part),
    })
}

/// `NodeProto`: attributes in field 5. `AttributeProto`: tensors in fields 5 and 10, graphs in 6 and 11.
fn check_node(node: &[u8]) -> Result<(), String> {
    messages(node, &[5])
        .flat_map(|(_, attribute)| messages(attribute, &[5, 6, 10, 11]))
        .try_for_each(|(number, part)| match number {
            5 | 10 => check_tensor(part),
            _ => check_graph(part),
        })
}

/// What a `TensorProto` says about its data.
#[derive(Default)]
struct Stated<'a> {
    name: &'a [u8],
    dims: Vec<i64>,
    data_type: u64,
    external: bool,
    raw: Option<usize>,
    floats: usize,
    ints: usize,
    strings: usize,
    longs: usize,
    doubles: usize,
    unsigned: usize,
}

impl<'a> Stated<'a> {
    fn read(tensor: &'a [u8]) -> Self {
        let mut stated = Self::default();
        for (number, content) in Fields(tensor) {
            match (number, &content) {
                (1, Content::Number(dim)) => stated.dims.push(*dim as i64),
                (1, Content::Bytes(packed)) => {
                    let mut packed = Fields(packed);
                    while let Some(dim) = packed.varint() {
                        stated.dims.push(dim as i64);
                    }
                }
                (2, Content::Number(data_type)) => stated.data_type = *data_type,
                (4, _) => stated.floats += fixed(&content, 4),
                (5, _) => stated.ints += varints(&content),
                (6, _) => stated.strings += 1,
                (7, _) => stated.longs += varints(&content),
                (8, Content::Bytes(name)) => stated.name = name,
                (9, Content::Bytes(raw)) => stated.raw = Some(raw.len()),
                (10, _) => stated.doubles += fixed(&content, 8),
                (11, _) => stated.unsigned += varints(&content),
                (14, Content::Number(location)) => stated.external = *location == 1,
                _ => {}
            }
        }
        stated
    }
}

/// Elements of a field of numbers of a fixed width, packed or not.
fn fixed(content: &Content<'_>, width: usize) -> usize {
    match content {
        Content::Bytes(packed) => packed.len() / width,
        _ => 1,
    }
}

/// Elements of a field of numbers of any width: each ends with a byte below 128.
fn varints(content: &Content<'_>) -> usize {
    match content {
        Content::Bytes(packed) => packed.iter().filter(|byte| **byte < 0x80).count(),
        _ => 1,
    }
}

fn check_tensor(tensor: &[u8]) -> Result<(), String> {
    let stated = Stated::read(tensor);
    if stated.external {
        return Ok(());
    }
    let name = String::from_utf8_lossy(stated.name);
    let impossible = || format!("constant {name:?}: impossible dimensions {:?}", stated.dims);
    let shape: Vec<usize> = stated
        .dims
        .iter()
        .map(|&dim| usize::try_from(dim).map_err(|_| impossible()))
        .collect::<Result<_, _>>()?;
    let count = element_count(&shape).map_err(|_| impossible())?;
    // TensorProto.DataType: the width of an element in raw data, and where its numbers lie otherwise.
    let (width, found, per_element) = match stated.data_type {
        1 => (4, stated.floats, 1),
        2 | 3 | 9 | 17..=20 => (1, stated.ints, 1),
        4 | 5 | 10 | 16 => (2, stated.ints, 1),
        6 => (4, stated.ints, 1),
        7 => (8, stated.longs, 1),
        8 if stated.raw.is_none() => (0, stated.strings, 1),
        11 => (8, stated.doubles, 1),
        12 => (4, stated.unsigned, 1),
        13 => (8, stated.unsigned, 1),
        14 => (8, stated.floats, 2),
        15 => (16, stated.doubles, 2),
        // Types of half a byte, unknown ones, and what ONNX Runtime refuses by itself.
        _ => return Ok(()),
    };
    let (what, wanted, found) = match stated.raw {
        Some(raw) => ("bytes", count.checked_mul(width), raw),
        None => ("numbers", count.checked_mul(per_element), found),
    };
    if wanted != Some(found) {
        return Err(format!(
            "constant {name:?}: expected data for dimensions {:?}, found {found} {what}",
            stated.dims
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    /// The fields of a `TensorProto` that are looked at, as the schema has them.
    #[derive(Clone, PartialEq, Message)]
    struct TensorProto {
        #[prost(int64, repeated, packed = "false", tag = "1")]
        dims: Vec<i64>,
        #[prost(int32, tag = "2")]
        data_type: i32,
        #[prost(float, repeated, tag = "4")]
        float_data: Vec<f32>,
        #[prost(int32, repeated, tag = "5")]
        int32_data: Vec<i32>,
        #[prost(string, repeated, tag = "6")]
        string_data: Vec<String>,
        #[prost(int64, repeated, packed = "false", tag = "7")]
        int64_data: Vec<i64>,
        #[prost(bytes = "vec", optional, tag = "9")]
        raw_data: Option<Vec<u8>>,
        #[prost(double, repeated, packed = "false", tag = "10")]
        double_data: Vec<f64>,
        #[prost(uint64, repeated, tag = "11")]
        uint64_data: Vec<u64>,
        #[prost(int32, tag = "14")]
        data_location: i32,
    }

    fn tensor(data_type: i32, dims: &[i64]) -> TensorProto {
        TensorProto {
            dims: dims.to_vec(),
            data_type,
            ..TensorProto::default()
        }
    }

    /// The answer for the tensor at each place where a model can have one.
    fn check_everywhere(tensor: &TensorProto) -> Result<(), String> {
        let field = |number: u8, content: &[u8]| {
            let mut bytes = vec![number << 3 | 2];
            prost::encode_length_delimiter(content.len(), &mut bytes).unwrap();
            bytes.extend(content);
            bytes
        };
        let tensor = tensor.encode_to_vec();
        let constant = field(1, &field(5, &field(5, &tensor)));
        let branch = field(1, &field(5, &field(6, &field(5, &tensor))));
        let initializer = field(5, &tensor);
        let answers = [initializer, constant, branch].map(|graph| check(&field(7, &graph)));
        assert!(answers.iter().all(|answer| *answer == answers[0]));
        answers[0].clone()
    }

    #[test]
    fn data_of_the_right_size_passes() {
        for sound in [
            TensorProto {
                float_data: vec![1.0; 6],
                ..tensor(1, &[2, 3])
            },
            TensorProto {
                raw_data: Some(vec![0; 24]),
                ..tensor(1, &[2, 3])
            },
            TensorProto {
                raw_data: Some(vec![0; 12]),
                ..tensor(10, &[6])
            },
            TensorProto {
                int32_data: vec![-1, 300],
                ..tensor(6, &[2])
            },
            TensorProto {
                int32_data: vec![1],
                ..tensor(9, &[])
            },
            TensorProto {
                int64_data: vec![i64::MIN, -1, 1 << 40],
                ..tensor(7, &[3])
            },
            TensorProto {
                uint64_data: vec![u64::MAX],
                ..tensor(12, &[1])
            },
            TensorProto {
                double_data: vec![0.5; 4],
                ..tensor(15, &[2])
            },
            TensorProto {
                string_data: vec!["a".into(); 2],
                ..tensor(8, &[2])
            },
            TensorProto {
                data_location: 1,
                ..tensor(1, &[1 << 30])
            },
            TensorProto {
                raw_data: Some(vec![0; 2]),
                ..tensor(22, &[3])
            },
            tensor(7, &[0, 4]),
        ] {
            check_everywhere(&sound).unwrap();
        }
    }

    #[test]
    fn data_of_another_size_is_named() {
        for wrong in [
            TensorProto {
                raw_data: Some(Vec::new()),
                int64_data: vec![1],
                ..tensor(7, &[1])
            },
            TensorProto {
                raw_data: Some(vec![0; 7]),
                ..tensor(7, &[1])
            },
            TensorProto {
                int64_data: vec![1, 2],
                ..tensor(7, &[3])
            },
            TensorProto {
                float_data: vec![1.0],
                ..tensor(7, &[1])
            },
            TensorProto {
                float_data: vec![1.0; 6],
                ..tensor(1, &[2, 2])
            },
            TensorProto {
                string_data: vec!["a".into()],
                ..tensor(8, &[2])
            },
            tensor(1, &[]),
        ] {
            let error = check_everywhere(&wrong).unwrap_err();
            assert!(error.contains("expected data for dimensions"), "{error}");
        }
        for wrong in [tensor(1, &[-1]), tensor(1, &[i64::MAX, 4])] {
            let error = check_everywhere(&wrong).unwrap_err();
            assert!(error.contains("impossible"), "{error}");
        }
    }
}
