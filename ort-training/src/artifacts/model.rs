//! Reading a forward model: from a file or bytes, with its external data.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use prost::Message;
use prost::bytes::Bytes;

use super::error::{ArtifactsError, Result};
use super::onnx::{GraphProto, ModelProto, TensorProto, element_size, unknown_fields};

/// The newest versions that ONNX Runtime 1.21 reads.
const NEWEST_IR: i64 = 10;
const NEWEST_OPSET: i64 = 22;
/// The oldest operator set whose operators the gradient builder and the losses cover.
const OLDEST_OPSET: i64 = 11;

/// A forward model whose data is all in memory.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    pub(crate) model: ModelProto,
    pub(crate) opset: i64,
    /// Fields of a newer schema, which are left out.
    pub(crate) unknown: Vec<String>,
}

impl Forward {
    pub(crate) fn from_path(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| ArtifactsError::reading(path, e))?;
        let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
        Self::from_bytes(
            Bytes::from(bytes),
            Some(&directory),
            &path.display().to_string(),
        )
    }

    /// `what` names the model in messages.
    pub(crate) fn from_bytes(bytes: Bytes, directory: Option<&Path>, what: &str) -> Result<Self> {
        let size = bytes.len();
        if size == 0 {
            return Err(ArtifactsError::InvalidModel(format!(
                "{what} is empty; expected an ONNX model"
            )));
        }
        let model = ModelProto::decode(bytes.clone()).map_err(|e| {
            ArtifactsError::InvalidModel(format!(
                "{what} ({size} bytes) is not an ONNX model, or a truncated one: {e}"
            ))
        })?;
        crate::model_trust::check(&bytes)
            .map_err(|error| ArtifactsError::InvalidModel(format!("{what}: {error}")))?;
        let forward = Self::from_proto(model, directory, what)?;
        Ok(Self {
            unknown: unknown_fields(&bytes),
            ..forward
        })
    }

    pub(crate) fn from_proto(
        mut model: ModelProto,
        directory: Option<&Path>,
        what: &str,
    ) -> Result<Self> {
        let opset = check_versions(&model, what)?;
        let Some(graph) = model.graph.as_mut() else {
            return Err(ArtifactsError::InvalidModel(format!(
                "{what} has no graph: it is not an ONNX model, or a truncated one"
            )));
        };
        if graph.node.is_empty() {
            return Err(ArtifactsError::InvalidModel(format!("{what} has no nodes")));
        }
        if graph.output.is_empty() {
            return Err(ArtifactsError::InvalidModel(format!(
                "{what} has no outputs"
            )));
        }
        let mut files = ExternalFiles {
            directory,
            open: HashMap::new(),
        };
        load_external(graph, &mut files)?;
        for function in &mut model.functions {
            for node in &mut function.node {
                load_attributes(node, &mut files)?;
            }
        }
        // Before IR version 4 every initializer was an input, too. Those that stay initializers are constants here.
        let names: std::collections::HashSet<String> = graph
            .initializer
            .iter()
            .map(|t| t.label().to_owned())
            .collect();
        graph.input.retain(|input| !names.contains(input.label()));
        Ok(Self {
            model,
            opset,
            unknown: Vec::new(),
        })
    }

    pub(crate) fn graph(&self) -> &GraphProto {
        self.model.graph.as_ref().expect("checked when it was read")
    }

    pub(crate) fn graph_mut(&mut self) -> &mut GraphProto {
        self.model.graph.as_mut().expect("checked when it was read")
    }
}

fn check_versions(model: &ModelProto, what: &str) -> Result<i64> {
    let invalid = |text: String| Err(ArtifactsError::InvalidModel(text));
    match model.ir_version {
        None => return invalid(format!("{what} has no IR version: it is not an ONNX model")),
        Some(ir @ 3..=NEWEST_IR) => ir,
        Some(ir) => {
            return invalid(format!(
                "{what} has IR version {ir}; ONNX Runtime 1.21 reads 3 to {NEWEST_IR}"
            ));
        }
    };
    let default =
        |domain: &Option<String>| matches!(domain.as_deref(), None | Some("" | "ai.onnx"));
    match model
        .opset_import
        .iter()
        .find(|o| default(&o.domain))
        .and_then(|o| o.version)
    {
        None => invalid(format!(
            "{what} imports no ONNX operator set: it is not an ONNX model, or a truncated one"
        )),
        Some(opset @ OLDEST_OPSET..=NEWEST_OPSET) => Ok(opset),
        Some(opset) => invalid(format!(
            "{what} uses ONNX operator set {opset}; training needs {OLDEST_OPSET} to {NEWEST_OPSET}"
        )),
    }
}

/// The files of a model's external data, opened once.
struct ExternalFiles<'a> {
    directory: Option<&'a Path>,
    open: HashMap<PathBuf, (File, u64)>,
}

fn load_external(graph: &mut GraphProto, files: &mut ExternalFiles<'_>) -> Result<()> {
    for tensor in &mut graph.initializer {
        load_tensor(tensor, files)?;
    }
    for node in &mut graph.node {
        load_attributes(node, files)?;
    }
    Ok(())
}

fn load_attributes(node: &mut super::onnx::NodeProto, files: &mut ExternalFiles<'_>) -> Result<()> {
    for attribute in &mut node.attribute {
        for tensor in attribute.t.iter_mut().chain(&mut attribute.tensors) {
            load_tensor(tensor, files)?;
        }
        for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
            load_external(graph, files)?;
        }
    }
    Ok(())
}

fn load_tensor(tensor: &mut TensorProto, files: &mut ExternalFiles<'_>) -> Result<()> {
    if !tensor.is_external() {
        return Ok(());
    }
    let name = tensor.label().to_owned();
    let fail = |text: String| {
        Err(ArtifactsError::ExternalData(format!(
            "tensor '{name}': {text}"
        )))
    };
    let entry = |key: &str| {
        tensor
            .external_data
            .iter()
            .find(|e| e.key.as_deref() == Some(key))
            .and_then(|e| e.value.clone())
    };
    let Some(location) = entry("location") else {
        return fail("its data is external, but no file is named".to_owned());
    };
    let number = |key: &str| match entry(key) {
        None => Ok(None),
        Some(text) => text.trim().parse::<u64>().map(Some).map_err(|_| {
            ArtifactsError::ExternalData(format!("tensor '{name}': {key} '{text}' is not a number"))
        }),
    };
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
    let Some(needed) = element_size(tensor.elem_type())
        .zip(tensor.element_count())
        .and_then(|(size, count)| size.checked_mul(count))
    else {
        return fail("its element type or shape cannot have external data".to_owned());
    };
    let relative = Path::new(&location);
    if !relative
        .components()
        .all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return fail(format!(
            "its file '{location}' lies outside the model's folder"
        ));
    }
    let Some(directory) = files.directory else {
        return fail(format!(
            "its data lies in the file '{location}', but the model came as bytes; say where with external_data_dir"
        ));
    };
    if length.is_some_and(|length| length != needed as u64) {
        return fail(format!(
            "its shape and type need {needed} bytes, but its external data has {}",
            length.unwrap_or(0)
        ));
    }
    let path = directory.join(relative);
    if !files.open.contains_key(&path) {
        let opened = File::open(&path).and_then(|file| file.metadata().map(|m| (file, m.len())));
        match opened {
            Ok(opened) => files.open.insert(path.clone(), opened),
            Err(e) => {
                return fail(format!(
                    "its data file {} cannot be read: {e}",
                    path.display()
                ));
            }
        };
    }
    let (file, size) = files.open.get_mut(&path).expect("opened above");
    if offset
        .checked_add(needed as u64)
        .is_none_or(|end| end > *size)
    {
        return fail(format!(
            "its data is {needed} bytes at offset {offset} of {}, which has only {size}",
            path.display()
        ));
    }
    let mut data = vec![0; needed];
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.read_exact(&mut data))
        .map_err(|e| ArtifactsError::reading(&path, e))?;
    tensor.raw_data = Some(Bytes::from(data));
    tensor.external_data.clear();
    tensor.data_location = None;
    Ok(())
}
