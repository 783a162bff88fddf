//! Exported models whose weights lie in a second file, in any folder.
//!
//! ONNX Runtime names the second file as the caller named the model (module.cc, `ExportModelForInferencing`), looks for it
//! in the model's folder (graph.cc, `ToGraphProtoWithExternalInitializers`), refuses an absolute path, and writes that name
//! into the model. So an export of a large model works for a bare file name in the working directory, and no other one.

use std::path::{Component, Path, PathBuf};

use prost::bytes::Buf;
use prost::encoding::{decode_varint, encode_varint};

use crate::error::{Error, ErrorCode, Result};

/// Deeper than folders lie.
const UP: usize = 128;

/// `ModelProto.graph`, `GraphProto.initializer`, `TensorProto.external_data`, `StringStringEntryProto.value`.
const LOCATION: &[u64] = &[7, 5, 13, 2];

/// A relative path to the same file from whatever folder. The parent of the root is the root, so that going up often
/// enough and then down leads there from the working directory, and from the file's own folder as well: the two places
/// that ONNX Runtime starts from.
pub(crate) fn from_anywhere(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|error| Error::io(path.display(), &error))?;
    let mut relative: PathBuf = std::iter::repeat_n(Component::ParentDir, UP).collect();
    relative.extend(
        absolute
            .components()
            .filter(|part| !matches!(part, Component::RootDir | Component::CurDir)),
    );
    Ok(relative)
}

/// The serialized model, with `to` as the file of external data wherever it was `from`. Everything else stays as it is.
pub(crate) fn with_location(model: &[u8], from: &str, to: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(model.len());
    rewrite(model, LOCATION, from.as_bytes(), to.as_bytes(), &mut out).ok_or_else(|| {
        Error::new(
            ErrorCode::InvalidProtobuf,
            format!(
                "expected an ONNX model, found {} bytes that are none",
                model.len()
            ),
        )
    })?;
    Ok(out)
}

/// Copies a message, field by field; none if it is not one.
fn rewrite(
    mut message: &[u8],
    path: &[u64],
    from: &[u8],
    to: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    let (&number, rest) = path.split_first()?;
    while message.has_remaining() {
        let key = decode_varint(&mut message).ok()?;
        encode_varint(key, out);
        let len = match key & 7 {
            0 => {
                encode_varint(decode_varint(&mut message).ok()?, out);
                continue;
            }
            1 => 8,
            5 => 4,
            2 => usize::try_from(decode_varint(&mut message).ok()?).ok()?,
            _ => return None,
        };
        let field;
        (field, message) = message.split_at_checked(len)?;
        if key & 7 != 2 {
            out.extend(field);
            continue;
        }
        let mut changed = Vec::new();
        let field = match (key >> 3 == number, rest) {
            (false, _) => field,
            (true, []) if field == from => to,
            (true, []) => field,
            (true, rest) => {
                rewrite(field, rest, from, to, &mut changed)?;
                &changed
            }
        };
        encode_varint(field.len() as u64, out);
        out.extend(field);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u64, contents: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_varint(number << 3 | 2, &mut bytes);
        encode_varint(contents.len() as u64, &mut bytes);
        bytes.extend(contents);
        bytes
    }

    fn model(location: &str) -> Vec<u8> {
        let entry = |key: &str, value: &str| {
            field(
                13,
                &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat(),
            )
        };
        let tensor = [
            field(8, b"weight"),
            entry("location", location),
            entry("offset", "64"),
        ]
        .concat();
        // A node that has the same text where it is no location, numbers of every width, an unknown field.
        let graph = [
            field(1, b"../a.data"),
            field(5, &tensor),
            field(2, b"../a.data"),
        ]
        .concat();
        [
            &[0x08, 0x96, 0x01][..],
            &field(7, &graph),
            &[0x7d, 1, 2, 3, 4, 0x79, 1, 2, 3, 4, 5, 6, 7, 8],
            &field(99, b"../a.data"),
        ]
        .concat()
    }

    #[test]
    fn locations_are_replaced_and_nothing_else() {
        let found = with_location(&model("../a.data"), "../a.data", "model.onnx.data").unwrap();
        assert_eq!(found, model("model.onnx.data"));
        assert_eq!(
            with_location(&model("other"), "../a.data", "x").unwrap(),
            model("other")
        );
        let whole = model("../a.data");
        // Cut within the graph.
        assert!(with_location(&whole[..20], "../a.data", "x").is_err());
    }

    #[test]
    fn a_path_leads_to_the_file_from_every_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        std::fs::write(folder.path().join("file"), "here").unwrap();
        let path = from_anywhere(&folder.path().join("file")).unwrap();
        assert!(path.is_relative());
        for start in [Path::new(""), folder.path(), &folder.path().join("inner")] {
            assert_eq!(std::fs::read(start.join(&path)).unwrap(), b"here");
        }
    }
}
