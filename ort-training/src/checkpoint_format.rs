//! What a checkpoint's bytes hold, read without ONNX Runtime.
//!
//! The C API lists neither parameters nor properties, and ONNX Runtime trusts parts of a checkpoint that its verifier
//! does not cover (a missing group name is a null pointer, an empty tensor stays uninitialised, a momentum of the wrong
//! size is read beyond its end). So every checkpoint is read here first, and refused with words when it does not hold.
//!
//! The field numbers are those of ONNX Runtime's `ort_training_checkpoint.fbs` and `ort.fbs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::element::ElementType;
use crate::error::{Error, ErrorCode, Result};
use crate::flat::{Buffer, Malformed, Read, Table};
use crate::property::{Property, PropertyKind};

/// `kCheckpointVersion` of ONNX Runtime 1.17 to 1.21.
const VERSION: i32 = 2;

/// The element types that ONNX Runtime's checkpoint reader unpacks (`LoadOrtTensorOrtFormat`).
const LOADABLE: [ElementType; 11] = [
    ElementType::Float32,
    ElementType::Bool,
    ElementType::Float64,
    ElementType::Int8,
    ElementType::Uint8,
    ElementType::Int16,
    ElementType::Uint16,
    ElementType::Int32,
    ElementType::Uint32,
    ElementType::Int64,
    ElementType::Uint64,
];

/// A parameter of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterInfo {
    pub(crate) name: String,
    pub(crate) element_type: ElementType,
    pub(crate) shape: Vec<usize>,
    pub(crate) requires_grad: bool,
}

impl ParameterInfo {
    /// Its name, which is that of the model's input it is fed to.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its elements.
    #[must_use]
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Its dimensions; those of the model where the checkpoint is nominal and a session knows them, else empty there.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Whether it is trained; the others are frozen.
    #[must_use]
    pub fn requires_grad(&self) -> bool {
        self.requires_grad
    }

    /// The number of its elements.
    #[must_use]
    pub fn element_count(&self) -> usize {
        self.shape.iter().product()
    }
}

/// What a checkpoint holds, read from its bytes without loading it.
#[derive(Debug, Clone)]
pub struct CheckpointSummary {
    pub(crate) parameters: Vec<ParameterInfo>,
    pub(crate) nominal: bool,
    pub(crate) external_data: bool,
    pub(crate) optimizer_step: Option<i64>,
    pub(crate) moments: usize,
    pub(crate) properties: BTreeMap<String, Property>,
}

impl CheckpointSummary {
    /// Reads and verifies the file at `path` and, if it has one, its external data file `<path>.data`.
    ///
    /// # Errors
    /// No such file; not a checkpoint, a truncated or a damaged one; a version or element type that ONNX Runtime does not
    /// load.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = fs::read(path)
            .map_err(|error| Error::io(format_args!("checkpoint {}", path.display()), &error))?;
        let subject = format!("checkpoint {}", path.display());
        let summary = Self::parse_named(&bytes, &subject, Some(&external_data_path(path)))?;
        Ok(summary)
    }

    /// Reads and verifies the bytes of a checkpoint.
    ///
    /// # Errors
    /// As [`read`](Self::read); a checkpoint with external data, which needs its file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        Self::parse_named(bytes, "checkpoint", None)
    }

    pub(crate) fn parse_named(bytes: &[u8], subject: &str, data: Option<&Path>) -> Result<Self> {
        let refuse = |Malformed(what): Malformed| {
            Error::new(
                ErrorCode::InvalidArgument,
                format!("{subject}: not a usable ONNX Runtime training checkpoint: {what}"),
            )
        };
        let mut reader = Reader {
            budget: bytes.len() as u64,
            external: None,
        };
        let root = Buffer::root(bytes, b"ODTC").map_err(refuse)?;
        let version = root.i32(0).map_err(refuse)?;
        if version != VERSION {
            return Err(refuse(Malformed(format!(
                "expected format version {VERSION}, found {version}"
            ))));
        }
        let module = root.table(1).map_err(refuse)?;
        let external_data = match &module {
            Some(module) => module.bool(3).map_err(refuse)?,
            None => false,
        };
        if external_data {
            let Some(data) = data else {
                return Err(refuse(Malformed(
                    "its parameters lie in an external data file, so it can be loaded from its path only".into(),
                )));
            };
            let length = fs::metadata(data)
                .map_err(|error| {
                    Error::io(
                        format_args!("{subject}: external data {}", data.display()),
                        &error,
                    )
                })?
                .len();
            reader.external = Some(length);
            reader.budget = reader.budget.saturating_add(length);
        }
        reader
            .checkpoint(&root, module.as_ref(), external_data)
            .map_err(refuse)
    }

    /// The parameters, in the order of the file: the trainable ones, then the frozen ones.
    #[must_use]
    pub fn parameters(&self) -> &[ParameterInfo] {
        &self.parameters
    }

    /// Whether it is nominal: names without data, to be filled from a parameter buffer.
    #[must_use]
    pub fn is_nominal(&self) -> bool {
        self.nominal
    }

    /// Whether large parameters lie in a second file, `<path>.data`.
    #[must_use]
    pub fn has_external_data(&self) -> bool {
        self.external_data
    }

    /// The number of optimizer steps behind it, if it holds the optimizer's state.
    #[must_use]
    pub fn optimizer_step(&self) -> Option<i64> {
        self.optimizer_step
    }

    /// The properties by name.
    #[must_use]
    pub fn properties(&self) -> &BTreeMap<String, Property> {
        &self.properties
    }
}

pub(crate) fn external_data_path(checkpoint: &Path) -> PathBuf {
    let mut path = checkpoint.as_os_str().to_owned();
    path.push(".data");
    path.into()
}

struct Reader {
    /// Bytes of tensor data that may still be claimed. A writer stores each tensor once; a file whose tensors share their
    /// bytes could ask for any amount of memory.
    budget: u64,
    /// The length of the external data file, where the checkpoint has one.
    external: Option<u64>,
}

fn required<T>(what: &str, found: Option<T>) -> Read<T> {
    found.ok_or_else(|| Malformed(format!("expected {what}, found none")))
}

/// A string that the C API can carry.
fn name<'a>(what: &str, table: &Table<'a>, index: usize) -> Read<&'a str> {
    let name = required(what, table.string(index)?)?;
    if name.contains('\0') {
        return Err(Malformed(format!(
            "{what} {name:?}: expected a string without NUL"
        )));
    }
    Ok(name)
}

impl Reader {
    fn checkpoint(
        mut self,
        root: &Table<'_>,
        module: Option<&Table<'_>>,
        external_data: bool,
    ) -> Read<CheckpointSummary> {
        let mut parameters = Vec::new();
        let mut nominal = false;
        if let Some(module) = module {
            nominal = module.bool(2)?;
            let mut names = BTreeSet::new();
            for (field, requires_grad) in [(0, true), (1, false)] {
                let what = if requires_grad {
                    "trainable parameters"
                } else {
                    "frozen parameters"
                };
                for tensor in required(what, module.tables(field)?)? {
                    let mut info = self.tensor(&tensor?, nominal)?;
                    info.requires_grad = requires_grad;
                    if !names.insert(info.name.clone()) {
                        return Err(Malformed(format!("parameter {:?} occurs twice", info.name)));
                    }
                    parameters.push(info);
                }
            }
        }
        let mut summary = CheckpointSummary {
            parameters,
            nominal,
            external_data,
            optimizer_step: None,
            moments: 0,
            properties: BTreeMap::new(),
        };
        let trainable: BTreeMap<String, usize> = summary
            .parameters
            .iter()
            .enumerate()
            .filter(|(_, parameter)| parameter.requires_grad)
            .map(|(index, parameter)| (parameter.name.clone(), index))
            .collect();
        let mut groups = BTreeSet::new();
        for group in root.tables(2)?.into_iter().flatten() {
            let group = group?;
            let group_name = name("an optimizer group's name", &group, 0)?;
            if !groups.insert(group_name) {
                return Err(Malformed(format!(
                    "optimizer group {group_name:?} occurs twice"
                )));
            }
            self.optimizer_group(&group, &trainable, &mut summary)?;
        }
        if let Some(bag) = root.table(3)? {
            properties(&bag, &mut summary.properties)?;
        }
        Ok(summary)
    }

    fn optimizer_group(
        &mut self,
        group: &Table<'_>,
        trainable: &BTreeMap<String, usize>,
        summary: &mut CheckpointSummary,
    ) -> Read<()> {
        let step = group.i64(1, 0)?;
        if step < 0 {
            return Err(Malformed(format!(
                "optimizer step: expected 0 or more, found {step}"
            )));
        }
        summary.optimizer_step = Some(step);
        group.f32(2)?;
        let mut seen = BTreeSet::new();
        for state in required("optimizer states", group.tables(3)?)? {
            let state = state?;
            let parameter_name = name("an optimizer state's parameter name", &state, 0)?;
            if summary.nominal {
                return Err(Malformed(format!(
                    "nominal, but holds optimizer state of parameter {parameter_name:?}"
                )));
            }
            if !seen.insert(parameter_name) {
                return Err(Malformed(format!(
                    "optimizer state of parameter {parameter_name:?} occurs twice"
                )));
            }
            let parameter = trainable
                .get(parameter_name)
                .map(|&index| &summary.parameters[index])
                .ok_or_else(|| {
                    Malformed(format!(
                        "optimizer state of {parameter_name:?}, which is no trainable parameter"
                    ))
                })?;
            let mut moments = BTreeSet::new();
            for moment in required("an optimizer state's moments", state.tables(1)?)? {
                let moment = self.tensor(&moment?, false)?;
                if moment.shape != parameter.shape || moment.element_type != parameter.element_type
                {
                    return Err(Malformed(format!(
                        "optimizer state {:?} of parameter {parameter_name:?}: expected {} {:?}, found {} {:?}",
                        moment.name,
                        parameter.element_type,
                        parameter.shape,
                        moment.element_type,
                        moment.shape
                    )));
                }
                if !moments.insert(moment.name.clone()) {
                    return Err(Malformed(format!(
                        "optimizer state {:?} of parameter {parameter_name:?} occurs twice",
                        moment.name
                    )));
                }
            }
            summary.moments = summary.moments.max(moments.len());
        }
        Ok(())
    }

    fn tensor(&mut self, tensor: &Table<'_>, nominal: bool) -> Read<ParameterInfo> {
        let name = name("a tensor's name", tensor, 0)?;
        let dims = required(&format!("dimensions of tensor {name:?}"), tensor.i64s(2)?)?;
        let raw_type = tensor.i32(3)?;
        let element_type = ElementType::from_raw(u32::try_from(raw_type).unwrap_or(u32::MAX));
        if !LOADABLE.contains(&element_type) {
            return Err(Malformed(format!(
                "tensor {name:?}: expected an element type that checkpoints can hold, found {element_type}"
            )));
        }
        let oversized = || Malformed(format!("tensor {name:?}: impossible dimensions {dims:?}"));
        let shape: Vec<usize> = dims
            .iter()
            .map(|&dimension| usize::try_from(dimension).map_err(|_| oversized()))
            .collect::<Read<_>>()?;
        let count = crate::shape::element_count(&shape).map_err(|_| oversized())?;
        let wanted = element_type.byte_count(count).ok_or_else(oversized)? as u64;
        let offset = tensor.i64(6, -1)?;
        let found = match (tensor.bytes(4)?, u64::try_from(offset).ok()) {
            (None, Some(offset)) => {
                let length = self.external.ok_or_else(|| {
                    Malformed(format!(
                        "tensor {name:?} lies in external data, which the checkpoint has not"
                    ))
                })?;
                if offset.checked_add(wanted).is_none_or(|end| end > length) {
                    return Err(Malformed(format!(
                        "tensor {name:?}: expected {wanted} bytes at {offset} of its external data, found {length} bytes"
                    )));
                }
                wanted
            }
            (Some(bytes), None) => bytes.len() as u64,
            (Some(_), Some(_)) => {
                return Err(Malformed(format!(
                    "tensor {name:?} has both inline and external data"
                )));
            }
            (None, None) => return Err(Malformed(format!("tensor {name:?} has no data"))),
        };
        // A nominal checkpoint is written with names only; ONNX Runtime reads them as scalars and writes those again.
        if found != wanted && !(nominal && found == 0 && shape.is_empty()) {
            return Err(Malformed(format!(
                "tensor {name:?}: expected {wanted} bytes of {element_type} {shape:?}, found {found}"
            )));
        }
        self.budget = self.budget.checked_sub(found).ok_or_else(|| {
            Malformed(format!(
                "tensor {name:?}: the tensors claim more bytes than there are"
            ))
        })?;
        let shape = if nominal { Vec::new() } else { shape };
        Ok(ParameterInfo {
            name: name.to_owned(),
            element_type,
            shape,
            requires_grad: false,
        })
    }
}

fn properties(bag: &Table<'_>, found: &mut BTreeMap<String, Property>) -> Read<()> {
    for (field, kind) in [
        (0, PropertyKind::Int),
        (1, PropertyKind::Float),
        (2, PropertyKind::String),
    ] {
        for entry in bag.tables(field)?.into_iter().flatten() {
            let entry = entry?;
            let property_name = name("a property's name", &entry, 0)?;
            let value = match kind {
                PropertyKind::Int => Property::Int(entry.i64(1, 0)?),
                PropertyKind::Float => Property::Float(entry.f32(1)?),
                PropertyKind::String => {
                    let what = format!("the string property {property_name:?}");
                    Property::String(name(&what, &entry, 1)?.to_owned())
                }
            };
            if found.insert(property_name.to_owned(), value).is_some() {
                return Err(Malformed(format!(
                    "property {property_name:?} occurs twice"
                )));
            }
        }
    }
    Ok(())
}
