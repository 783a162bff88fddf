//! Safetensors files: named arrays, and text about them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::array::{Array, Elements};

/// The metadata of a file, and its arrays in the order of their names.
pub struct SafetensorsFile {
    pub metadata: BTreeMap<String, String>,
    pub arrays: Vec<(String, Array)>,
}

/// Reads the arrays that `wanted` chooses by name, and all metadata.
pub fn read_safetensors(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<SafetensorsFile> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let expected = || {
        format!(
            "{}: expected a safetensors file, found {} bytes that are none (a truncated or another file?)",
            path.display(),
            bytes.len()
        )
    };
    let (_, header) = SafeTensors::read_metadata(&bytes).with_context(expected)?;
    let file = SafeTensors::deserialize(&bytes).with_context(expected)?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let mut tensors = file.tensors();
    tensors.retain(|(name, _)| wanted(name));
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let arrays = tensors
        .into_iter()
        .map(|(name, tensor)| {
            let array =
                array(&tensor).with_context(|| format!("{}: tensor '{name}'", path.display()))?;
            Ok((name, array))
        })
        .collect::<Result<_>>()?;
    Ok(SafetensorsFile {
        metadata: metadata.into_iter().collect(),
        arrays,
    })
}

/// All arrays of a file, by name. Tensors `batch.0.NAME`, `batch.1.NAME`, … are the rows of one array NAME, in the order of
/// their numbers.
pub fn read_joined(path: &Path) -> Result<Vec<(String, Array)>> {
    let mut whole = Vec::new();
    // By name, and by number in it.
    let mut batches: BTreeMap<String, BTreeMap<usize, Array>> = BTreeMap::new();
    for (name, array) in read_safetensors(path, |_| true)?.arrays {
        match numbered(&name) {
            Some((number, name)) => {
                batches
                    .entry(name.to_owned())
                    .or_default()
                    .insert(number, array);
            }
            None => whole.push((name, array)),
        }
    }
    let count = batches.values().map(BTreeMap::len).max().unwrap_or(0);
    let mut rows: BTreeMap<usize, (usize, String)> = BTreeMap::new();
    for (name, parts) in batches {
        let missing = (0..count).find(|number| !parts.contains_key(number));
        if let Some(number) = missing {
            bail!(
                "{}: expected a tensor batch.{number}.{name}, since there are {count} batches, found none",
                path.display()
            );
        }
        if whole.iter().any(|(known, _)| *known == name) {
            bail!(
                "{}: expected '{name}' as one tensor or in batches, found both",
                path.display()
            );
        }
        let mut joined: Option<Array> = None;
        for (number, part) in parts {
            let what = || format!("{}: tensor batch.{number}.{name}", path.display());
            let found = *part
                .shape
                .first()
                .context("expected an axis that counts the rows, found a single number")
                .with_context(what)?;
            let (expected, first) = rows.entry(number).or_insert((found, name.clone()));
            if *expected != found {
                bail!(
                    "{}: expected {expected} rows, as in '{first}', found {found}",
                    what()
                );
            }
            match &mut joined {
                Some(array) => array.append(part).with_context(what)?,
                None => joined = Some(part),
            }
        }
        whole.extend(joined.map(|array| (name, array)));
    }
    Ok(whole)
}

/// The number and the name in `batch.<number>.<name>`.
fn numbered(name: &str) -> Option<(usize, &str)> {
    let (number, name) = name.strip_prefix("batch.")?.split_once('.')?;
    Some((number.parse().ok()?, name))
}

fn array(tensor: &TensorView<'_>) -> Result<Array> {
    macro_rules! numbers {
        ($variant:ident, $number:ty) => {
            Elements::$variant(
                tensor
                    .data()
                    .chunks_exact(size_of::<$number>())
                    .map(|bytes| <$number>::from_le_bytes(bytes.try_into().expect("of that size")))
                    .collect(),
            )
        };
    }
    let elements = match tensor.dtype() {
        Dtype::F16 => numbers!(F16, f16),
        Dtype::BF16 => numbers!(Bf16, bf16),
        Dtype::F32 => numbers!(F32, f32),
        Dtype::F64 => numbers!(F64, f64),
        Dtype::I8 => numbers!(I8, i8),
        Dtype::I16 => numbers!(I16, i16),
        Dtype::I32 => numbers!(I32, i32),
        Dtype::I64 => numbers!(I64, i64),
        Dtype::U8 => numbers!(U8, u8),
        Dtype::U16 => numbers!(U16, u16),
        Dtype::U32 => numbers!(U32, u32),
        Dtype::U64 => numbers!(U64, u64),
        Dtype::BOOL => Elements::Bool(tensor.data().iter().map(|byte| *byte != 0).collect()),
        other => bail!("expected integers, floats of 16 to 64 bits or truth values, found {other}"),
    };
    Array::new(tensor.shape().to_vec(), elements)
}
