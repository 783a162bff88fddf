//! Parameters from and to safetensors files: the form in which PyTorch's `state_dict` and pretrained weights travel.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use safetensors::tensor::{SafeTensors, TensorView, View};
use safetensors::{Dtype, serialize_to_file};

use crate::atomic_file::Sibling;
use crate::checkpoint::{Checkpoint, CheckpointMut};
use crate::checkpoint_format::ParameterInfo;
use crate::element::ElementType;
use crate::error::{Context, Error, Result};
use crate::shape::Dimensions;
use crate::tensor::Tensor;

/// Whether a file must hold the very parameters of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Every parameter is in the file, and nothing else is: as PyTorch's `load_state_dict(strict=True)`.
    Strict,
    /// What both have is taken, and the [`WeightsReport`] tells the rest: as `strict=False`. Types and shapes of what both
    /// have must still be the same.
    Partial,
}

/// What was taken from a file of weights, and what was not. Names are sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WeightsReport {
    /// Parameters that now have the file's elements.
    pub loaded: Vec<String>,
    /// Parameters that the file does not have, which keep their elements.
    pub missing: Vec<String>,
    /// Tensors of the file that the checkpoint has no parameter for.
    pub unexpected: Vec<String>,
}

impl Checkpoint {
    /// Writes all parameters, trained and frozen, to a safetensors file under their names, atomically: the old file or the
    /// new one is there, whole (reads with `OrtTrainingApi::GetParameter`, one parameter in memory at a time).
    ///
    /// `metadata` goes into the file's header; PyTorch's own files have `format` = `pt` there, which is added unless it is
    /// given.
    ///
    /// # Errors
    /// No session has taken the checkpoint; a nominal checkpoint; a parameter of another type than float32, the only one
    /// that ONNX Runtime hands out; the file cannot be written.
    pub fn save_safetensors(
        &self,
        path: impl AsRef<Path>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<()> {
        let path = path.as_ref();
        self.write_safetensors(path, metadata)
            .with_context(|| format!("writing weights to {}", path.display()))
    }

    fn write_safetensors(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()> {
        for info in self.parameters() {
            ensure_f32(info)?;
        }
        let failed = RefCell::new(None);
        let views = self.parameters().iter().map(|info| {
            let view = ParameterView {
                checkpoint: self,
                info,
                failed: &failed,
            };
            (info.name(), view)
        });
        let mut header: HashMap<String, String> = metadata.clone().into_iter().collect();
        header
            .entry("format".to_owned())
            .or_insert_with(|| "pt".to_owned());
        let sibling = Sibling::new(path)?;
        let written = serialize_to_file(views, Some(header), &sibling.path);
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        written.map_err(|error| Error::invalid_argument(error.to_string()))?;
        sibling.commit()
    }

    /// Replaces parameters by those of the same names in a safetensors file (wraps `OrtTrainingApi::UpdateParameter`).
    /// Nothing is changed unless everything fits.
    ///
    /// # Errors
    /// No such file, or no safetensors in it; names that are missing or unexpected, when `strictness` forbids it; another
    /// element type or shape than the parameter's, each with tensor, expected and found; no session has taken the
    /// checkpoint; a nominal checkpoint.
    pub fn load_safetensors(
        &mut self,
        path: impl AsRef<Path>,
        strictness: Strictness,
    ) -> Result<WeightsReport> {
        let path = path.as_ref();
        let mut read = || {
            let bytes = fs::read(path).map_err(|error| Error::io(path.display(), &error))?;
            let file = SafeTensors::deserialize(&bytes).map_err(|error| {
                Error::invalid_argument(format!("expected a safetensors file, found {error}"))
            })?;
            self.take_safetensors(&file, strictness)
        };
        read().with_context(|| format!("reading weights from {}", path.display()))
    }

    fn take_safetensors(
        &mut self,
        file: &SafeTensors<'_>,
        strictness: Strictness,
    ) -> Result<WeightsReport> {
        let mut in_file: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
        let mut report = WeightsReport::default();
        let mut taken = Vec::new();
        let mut unfit = Vec::new();
        for info in self.parameters() {
            match in_file.remove(info.name()) {
                Some(view) => {
                    unfit.extend(misfit(info, &view));
                    report.loaded.push(info.name().to_owned());
                    taken.push(view);
                }
                None => report.missing.push(info.name().to_owned()),
            }
        }
        report.unexpected = in_file.into_keys().collect();
        if strictness == Strictness::Strict {
            let named = |what: &str, names: &[String]| {
                (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
            };
            unfit.extend(named("missing in the file:", &report.missing));
            unfit.extend(named("no such parameters:", &report.unexpected));
        }
        if !unfit.is_empty() {
            return Err(Error::invalid_argument(unfit.join("; ")));
        }
        let tensors = report
            .loaded
            .iter()
            .zip(&taken)
            .map(|(name, view)| Ok((name, f32_tensor(view)?)))
            .collect::<Result<Vec<_>>>()?;
        for (name, tensor) in tensors {
            self.update_parameter(name, &tensor)?;
        }
        report.loaded.sort();
        report.missing.sort();
        Ok(report)
    }
}

impl CheckpointMut<'_> {
    /// See [`Checkpoint::load_safetensors`].
    ///
    /// # Errors
    /// As there.
    pub fn load_safetensors(
        &mut self,
        path: impl AsRef<Path>,
        strictness: Strictness,
    ) -> Result<WeightsReport> {
        self.0.load_safetensors(path, strictness)
    }
}

fn ensure_f32(info: &ParameterInfo) -> Result<()> {
    match info.element_type() {
        ElementType::Float32 => Ok(()),
        found => Err(Error::invalid_argument(format!(
            "parameter {:?}: expected float32, the only type that ONNX Runtime returns, found {found}",
            info.name()
        ))),
    }
}

/// What keeps a tensor from being a parameter's elements.
fn misfit(info: &ParameterInfo, view: &TensorView<'_>) -> Option<String> {
    let fits = info.element_type() == ElementType::Float32 && view.dtype() == Dtype::F32;
    (!fits || info.shape() != view.shape()).then(|| {
        format!(
            "{:?}: expected {} {}, found {} {}",
            info.name(),
            info.element_type(),
            Dimensions(info.shape()),
            view.dtype(),
            Dimensions(view.shape())
        )
    })
}

fn f32_tensor(view: &TensorView<'_>) -> Result<Tensor<f32>> {
    let chunks = view.data().chunks_exact(4);
    let elements = chunks.map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
    Tensor::from_vec(view.shape(), elements.collect::<Vec<f32>>())
}

/// A parameter that is copied out of the session when its turn to be written comes.
struct ParameterView<'a> {
    checkpoint: &'a Checkpoint,
    info: &'a ParameterInfo,
    /// The first failure; the file is not kept then.
    failed: &'a RefCell<Option<Error>>,
}

impl View for ParameterView<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        self.info.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.checkpoint.parameter(self.info.name()) {
            Ok(tensor) => tensor
                .data()
                .iter()
                .flat_map(|element| element.to_le_bytes())
                .collect::<Vec<u8>>()
                .into(),
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
                vec![0; self.data_len()].into()
            }
        }
    }

    fn data_len(&self) -> usize {
        self.info.element_count() * size_of::<f32>()
    }
}
