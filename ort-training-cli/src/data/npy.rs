//! NumPy's array files: one array (`.npy`), or a zip archive of them (`.npz`).
//!
//! The format is that of NumPy's documentation (`numpy.lib.format`), versions 1 to 3: a magic number, a header that is
//! a Python dictionary of three entries, and the elements.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use half::f16;

use super::array::{Array, Elements};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads a `.npy` file.
pub fn read_npy(path: &Path) -> Result<Array> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    parse(&bytes).with_context(|| path.display().to_string())
}

/// Reads the arrays of a `.npz` file that `wanted` chooses by name.
pub fn read_npz(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, Array)>> {
    let mut archive = open_npz(path)?;
    let mut arrays = Vec::new();
    for index in 0..archive.len() {
        let what = || path.display().to_string();
        let mut entry = archive.by_index(index).with_context(what)?;
        let Some(name) = entry.name().strip_suffix(".npy").map(str::to_owned) else {
            continue;
        };
        if wanted(&name) {
            let mut bytes = Vec::new();
            entry
                .read_to_end(&mut bytes)
                .with_context(|| format!("{}: array '{name}'", path.display()))?;
            let array =
                parse(&bytes).with_context(|| format!("{}: array '{name}'", path.display()))?;
            arrays.push((name, array));
        }
    }
    Ok(arrays)
}

/// The names of the arrays in a `.npz` file, in its order.
pub fn npz_names(path: &Path) -> Result<Vec<String>> {
    let archive = open_npz(path)?;
    Ok(archive
        .file_names()
        .filter_map(|name| name.strip_suffix(".npy"))
        .map(str::to_owned)
        .collect())
}

fn open_npz(path: &Path) -> Result<zip::ZipArchive<File>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    zip::ZipArchive::new(file).with_context(|| {
        format!(
            "{}: expected a .npz file (a zip archive of arrays), found something else or a truncated one",
            path.display()
        )
    })
}

fn parse(bytes: &[u8]) -> Result<Array> {
    let (header, data) = split(bytes)?;
    let descr = header_text(header, "descr")?;
    let fortran = match header_value(header, "fortran_order")? {
        value if value.starts_with("True") => true,
        value if value.starts_with("False") => false,
        _ => bail!("expected True or False as fortran_order in the header {header:?}"),
    };
    let shape = header_shape(header)?;
    let elements = decode(descr, data)?;
    let array = Array::new(shape, elements)
        .with_context(|| format!("elements of type '{descr}'; a truncated file?"))?;
    Ok(if fortran { to_row_major(array) } else { array })
}

/// Header and elements.
fn split(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| anyhow!("expected a NumPy array (.npy), found other bytes"))?;
    let truncated = || anyhow!("a truncated NumPy array: {} bytes", bytes.len());
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(truncated)?;
    let (len, rest) = match version[0] {
        1 => {
            let (len, rest) = rest.split_first_chunk::<2>().ok_or_else(truncated)?;
            (usize::from(u16::from_le_bytes(*len)), rest)
        }
        2 | 3 => {
            let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(truncated)?;
            (u32::from_le_bytes(*len) as usize, rest)
        }
        other => bail!("expected version 1, 2 or 3 of NumPy's format, found {other}"),
    };
    let (header, data) = rest.split_at_checked(len).ok_or_else(truncated)?;
    let header = std::str::from_utf8(header).context("the header is not text")?;
    Ok((header, data))
}

/// What stands after `'key':`.
fn header_value<'a>(header: &'a str, key: &str) -> Result<&'a str> {
    [format!("'{key}':"), format!("\"{key}\":")]
        .iter()
        .find_map(|key| header.split_once(key.as_str()))
        .map(|(_, value)| value.trim_start())
        .ok_or_else(|| anyhow!("expected the entry '{key}' in the header, found {header:?}"))
}

fn header_text<'a>(header: &'a str, key: &str) -> Result<&'a str> {
    let value = header_value(header, key)?;
    let quoted = value
        .strip_prefix(['\'', '"'])
        .and_then(|rest| rest.split_once(['\'', '"']))
        .map(|(text, _)| text);
    quoted.ok_or_else(|| {
        anyhow!("expected an array of one element type, found {value:?} (a structured array?)")
    })
}

fn header_shape(header: &str) -> Result<Vec<usize>> {
    let value = header_value(header, "shape")?;
    let inside = value
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .map(|(inside, _)| inside)
        .ok_or_else(|| anyhow!("expected a tuple as shape, found {value:?}"))?;
    inside
        .split(',')
        .map(|size| size.trim().trim_end_matches('L'))
        .filter(|size| !size.is_empty())
        .map(|size| {
            size.parse()
                .with_context(|| format!("expected sizes as shape, found ({inside})"))
        })
        .collect()
}

fn decode(descr: &str, data: &[u8]) -> Result<Elements> {
    let (order, kind) = descr.split_at_checked(1).unwrap_or(("", descr));
    let big = order == ">";
    macro_rules! numbers {
        ($variant:ident, $type:ty) => {
            Elements::$variant(
                data.chunks_exact(size_of::<$type>())
                    .map(|chunk| {
                        let chunk = chunk.try_into().expect("a chunk of that size");
                        if big {
                            <$type>::from_be_bytes(chunk)
                        } else {
                            <$type>::from_le_bytes(chunk)
                        }
                    })
                    .collect(),
            )
        };
    }
    Ok(match kind {
        "f2" => numbers!(F16, f16),
        "f4" => numbers!(F32, f32),
        "f8" => numbers!(F64, f64),
        "i1" => numbers!(I8, i8),
        "i2" => numbers!(I16, i16),
        "i4" => numbers!(I32, i32),
        "i8" => numbers!(I64, i64),
        "u1" => numbers!(U8, u8),
        "u2" => numbers!(U16, u16),
        "u4" => numbers!(U32, u32),
        "u8" => numbers!(U64, u64),
        "b1" => Elements::Bool(data.iter().map(|&byte| byte != 0).collect()),
        text if text.starts_with('U') => Elements::Text(decode_text(&text[1..], data, big)?),
        _ => bail!(
            "expected elements of type float (f2, f4, f8), integer (i1 to u8), bool (b1) or text (U), found '{descr}'"
        ),
    })
}

/// Text of a fixed number of 32-bit characters, padded with NUL.
fn decode_text(characters: &str, data: &[u8], big: bool) -> Result<Vec<String>> {
    let characters: usize = characters
        .parse()
        .with_context(|| format!("expected a length after U, found {characters:?}"))?;
    let size = characters.saturating_mul(4);
    if size == 0 {
        bail!("text of length 0 says not how many elements there are");
    }
    data.chunks_exact(size)
        .map(|chunk| {
            chunk
                .chunks_exact(4)
                .map(|c| {
                    let c = c.try_into().expect("4 bytes");
                    if big {
                        u32::from_be_bytes(c)
                    } else {
                        u32::from_le_bytes(c)
                    }
                })
                .take_while(|&c| c != 0)
                .map(|c| char::from_u32(c).ok_or_else(|| anyhow!("{c:#x} is not a character")))
                .collect()
        })
        .collect()
}

/// From NumPy's Fortran order, in which the first index runs fastest.
fn to_row_major(array: Array) -> Array {
    let shape = &array.shape;
    let mut strides = vec![1; shape.len()];
    for axis in 1..shape.len() {
        strides[axis] = strides[axis - 1] * shape[axis - 1];
    }
    // Elements are picked as rows of one.
    let flat = Array {
        shape: vec![array.elements.len()],
        elements: array.elements,
    };
    let order: Vec<usize> = (0..flat.shape[0])
        .map(|at| {
            super::array::unravel(at, shape)
                .iter()
                .zip(&strides)
                .map(|(index, stride)| index * stride)
                .sum()
        })
        .collect();
    Array {
        elements: flat.take_rows(&order).elements,
        shape: array.shape,
    }
}

/// Writes a `.npz` file with these arrays.
pub fn write_npz<'a>(
    file: impl Write + Seek,
    arrays: impl IntoIterator<Item = (&'a str, &'a Array)>,
) -> Result<()> {
    let mut archive = zip::ZipWriter::new(file);
    for (name, array) in arrays {
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored)
            .large_file(true);
        archive.start_file(format!("{name}.npy"), options)?;
        archive.write_all(&encode(array).with_context(|| format!("array '{name}'"))?)?;
    }
    archive.finish()?;
    Ok(())
}

fn encode(array: &Array) -> Result<Vec<u8>> {
    macro_rules! numbers {
        ($descr:literal, $values:ident) => {
            (
                $descr,
                $values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            )
        };
    }
    let (descr, data): (&str, Vec<u8>) = match &array.elements {
        Elements::F16(v) => numbers!("<f2", v),
        Elements::F32(v) => numbers!("<f4", v),
        Elements::F64(v) => numbers!("<f8", v),
        Elements::I8(v) => numbers!("|i1", v),
        Elements::I16(v) => numbers!("<i2", v),
        Elements::I32(v) => numbers!("<i4", v),
        Elements::I64(v) => numbers!("<i8", v),
        Elements::U8(v) => numbers!("|u1", v),
        Elements::U16(v) => numbers!("<u2", v),
        Elements::U32(v) => numbers!("<u4", v),
        Elements::U64(v) => numbers!("<u8", v),
        Elements::Bool(v) => ("|b1", v.iter().map(|&b| u8::from(b)).collect()),
        Elements::Bf16(_) | Elements::Text(_) => bail!(
            "elements of type {} cannot be written to a NumPy file here",
            array.elements.element_type()
        ),
    };
    let sizes: String = array.shape.iter().map(|size| format!("{size}, ")).collect();
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    // The elements are to begin at a multiple of 64, and the header ends with a newline.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend(u16::try_from(header.len())?.to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header =
            format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn refused(bytes: &[u8], words: &str) {
        let error = format!("{:#}", parse(bytes).unwrap_err());
        assert!(error.contains(words), "{words:?} is not in {error:?}");
    }

    #[test]
    fn orders_of_bytes_and_axes() {
        let array = parse(&npy("'>i2'", "True", "(2, 2)", &[0, 1, 0, 2, 0, 3, 0, 4])).unwrap();
        assert_eq!(array.shape, [2, 2]);
        assert_eq!(array.elements, Elements::I16(vec![1, 3, 2, 4]));
        let scalar = parse(&npy("'<f8'", "False", "()", &1.5f64.to_le_bytes())).unwrap();
        assert_eq!((scalar.shape.len(), scalar.elements.len()), (0, 1));
        let vector = parse(&npy("'|b1'", "False", "(3,)", &[1, 0, 1])).unwrap();
        assert_eq!(vector.elements, Elements::Bool(vec![true, false, true]));
    }

    #[test]
    fn what_was_written_is_read() {
        let arrays = [
            (
                "a",
                Array::new(vec![2, 1], Elements::F32(vec![0.1, -7.0])).unwrap(),
            ),
            ("b", Array::new(vec![], Elements::I64(vec![-3])).unwrap()),
            (
                "c",
                Array::new(vec![0, 4], Elements::F16(Vec::new())).unwrap(),
            ),
        ];
        let file = tempfile::NamedTempFile::new().unwrap();
        write_npz(
            file.reopen().unwrap(),
            arrays.iter().map(|(name, array)| (*name, array)),
        )
        .unwrap();
        let read = read_npz(file.path(), |name| name != "b").unwrap();
        assert_eq!(npz_names(file.path()).unwrap().len(), 3);
        assert_eq!(read[0], ("a".to_owned(), arrays[0].1.clone()));
        assert_eq!(read[1], ("c".to_owned(), arrays[2].1.clone()));
    }

    #[test]
    fn bad_files_are_refused() {
        refused(b"hello", "found other bytes");
        refused(b"\x93NUMPY\x01", "truncated");
        refused(b"\x93NUMPY\x09\x00aaaaaa", "found 9");
        refused(
            &npy("'<f4'", "False", "(3,)", &[0; 8]),
            "expected 3 elements",
        );
        refused(&npy("'<c8'", "False", "(1,)", &[0; 8]), "found '<c8'");
        refused(
            &npy("[('a', '<f4')]", "False", "(1,)", &[0; 4]),
            "structured",
        );
        refused(
            &npy("'<f4'", "False", "(99999999999, 99999999999)", &[]),
            "more than fit into memory",
        );
    }
}
