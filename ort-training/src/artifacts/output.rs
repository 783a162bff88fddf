//! Finished artifacts: in memory, or as files.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::{ArtifactsError, Result};
use super::native::{CheckpointTensor, Native};
use super::onnx::{Bytes, TensorProto};
use super::report::Report;

/// Above this much parameter data a checkpoint keeps it in a file of its own, `checkpoint.data`: one flat buffer holds
/// 2 GB at most.
const EXTERNAL_ABOVE: u64 = 1800 * 1024 * 1024;

/// Training artifacts that were made and not yet written: three models, and the parameters of the checkpoint.
pub struct Artifacts {
    pub(crate) native: Native,
    pub(crate) training_model: Vec<u8>,
    pub(crate) eval_model: Vec<u8>,
    pub(crate) optimizer_model: Option<Vec<u8>>,
    pub(crate) trainable: Vec<TensorProto>,
    pub(crate) frozen: Vec<TensorProto>,
    pub(crate) prefix: String,
    pub(crate) nominal: bool,
    pub(crate) report: Report,
}

impl std::fmt::Debug for Artifacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Artifacts")
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// The artifacts as bytes, for a training session that reads no files.
#[derive(Clone)]
pub struct ArtifactBytes {
    /// `training_model.onnx`.
    pub training_model: Vec<u8>,
    /// `eval_model.onnx`.
    pub eval_model: Vec<u8>,
    /// `optimizer_model.onnx`, unless no optimizer was asked for.
    pub optimizer_model: Option<Vec<u8>>,
    /// `checkpoint`.
    pub checkpoint: Vec<u8>,
}

impl std::fmt::Debug for ArtifactBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArtifactBytes")
            .field("training_model", &self.training_model.len())
            .field("eval_model", &self.eval_model.len())
            .field(
                "optimizer_model",
                &self.optimizer_model.as_ref().map(Vec::len),
            )
            .field("checkpoint", &self.checkpoint.len())
            .finish()
    }
}

/// Where the artifacts were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactPaths {
    /// The training model.
    pub training_model: PathBuf,
    /// The evaluation model.
    pub eval_model: PathBuf,
    /// The optimizer model, unless no optimizer was asked for.
    pub optimizer_model: Option<PathBuf>,
    /// The checkpoint; parameters of more than 1.8 GB lie beside it in `checkpoint.data`.
    pub checkpoint: PathBuf,
    /// The checkpoint with names and types only, when it was asked for.
    pub nominal_checkpoint: Option<PathBuf>,
}

impl Artifacts {
    /// What was made, and what was done to the model on the way.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The training model: forward, loss, gradients, and their accumulation. Serialized ONNX.
    pub fn training_model(&self) -> &[u8] {
        &self.training_model
    }

    /// The evaluation model: forward in inference form, and the loss. Serialized ONNX.
    pub fn eval_model(&self) -> &[u8] {
        &self.eval_model
    }

    /// The optimizer model, unless no optimizer was asked for. Serialized ONNX.
    pub fn optimizer_model(&self) -> Option<&[u8]> {
        self.optimizer_model.as_deref()
    }

    /// All artifacts as bytes.
    ///
    /// # Errors
    /// The parameters exceed 1.8 GB, which a checkpoint in one piece cannot hold; [`Self::write_to`] can.
    pub fn to_bytes(&self) -> Result<ArtifactBytes> {
        Ok(ArtifactBytes {
            training_model: self.training_model.clone(),
            eval_model: self.eval_model.clone(),
            optimizer_model: self.optimizer_model.clone(),
            checkpoint: self.checkpoint_bytes()?,
        })
    }

    /// The same as [`Self::to_bytes`] without a copy of the models.
    ///
    /// # Errors
    /// As [`Self::to_bytes`].
    pub fn into_bytes(self) -> Result<ArtifactBytes> {
        let checkpoint = self.checkpoint_bytes()?;
        Ok(ArtifactBytes {
            training_model: self.training_model,
            eval_model: self.eval_model,
            optimizer_model: self.optimizer_model,
            checkpoint,
        })
    }

    /// Writes the artifacts into `directory`, which is made when it is missing: `training_model.onnx`,
    /// `eval_model.onnx`, `optimizer_model.onnx` and `checkpoint`, each after the prefix.
    ///
    /// Either all of them are written or none: they are made in a folder beside, brought to the disk, and then moved.
    /// A directory that is new appears complete. One that exists and holds nothing but artifacts is exchanged as a whole
    /// where the system can do that (Linux), so that even a process that is killed leaves the old ones or the new ones.
    /// In one with other files, artifacts are replaced one by one once all the new ones are on the disk, and put back
    /// when one cannot be; only there could a kill between the moves leave a mixture.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write_to(&self, directory: impl AsRef<Path>) -> Result<ArtifactPaths> {
        let directory = directory.as_ref();
        let parent = match directory.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let fail = |what: &str, path: &Path, e| {
            ArtifactsError::io(format!("{what} {}", path.display()), e)
        };
        if directory.exists() && !directory.is_dir() {
            return Err(fail(
                "writing to",
                directory,
                std::io::Error::new(std::io::ErrorKind::NotADirectory, "it is not a directory"),
            ));
        }
        fs::create_dir_all(&parent).map_err(|e| fail("making", &parent, e))?;
        let staging = tempfile::Builder::new()
            .prefix(".ort-artifacts-")
            .tempdir_in(&parent)
            .map_err(|e| fail("making a folder in", &parent, e))?;
        self.stage(staging.path())?;

        if !directory.exists() {
            // tempfile makes the folder for its owner alone; a folder of artifacts is like any other.
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(staging.path(), fs::Permissions::from_mode(0o755))
                    .map_err(|e| fail("opening", staging.path(), e))?;
            }
            fs::rename(staging.path(), directory).map_err(|e| fail("moving to", directory, e))?;
            // The folder is no longer where it was made; there is nothing left to remove.
            let _ = staging.keep();
        } else if !(holds_only(directory, &self.names())? && exchange(staging.path(), directory)) {
            replace_files(staging.path(), directory)?;
        }
        sync(&parent)?;
        Ok(self.paths(directory))
    }

    fn names(&self) -> [String; 5] {
        [
            "training_model.onnx",
            "eval_model.onnx",
            "optimizer_model.onnx",
            "checkpoint",
            "nominal_checkpoint",
        ]
        .map(|name| format!("{}{name}", self.prefix))
    }

    fn paths(&self, directory: &Path) -> ArtifactPaths {
        let [training, eval, optimizer, checkpoint, nominal] =
            self.names().map(|name| directory.join(name));
        ArtifactPaths {
            training_model: training,
            eval_model: eval,
            optimizer_model: self.optimizer_model.is_some().then_some(optimizer),
            checkpoint,
            nominal_checkpoint: self.nominal.then_some(nominal),
        }
    }

    fn stage(&self, directory: &Path) -> Result<()> {
        let paths = self.paths(directory);
        write_file(&paths.training_model, &self.training_model)?;
        write_file(&paths.eval_model, &self.eval_model)?;
        if let (Some(path), Some(model)) = (&paths.optimizer_model, &self.optimizer_model) {
            write_file(path, model)?;
        }
        let external = self.parameter_bytes() > EXTERNAL_ABOVE;
        self.save_checkpoint(&paths.checkpoint, false, external)?;
        if let Some(path) = &paths.nominal_checkpoint {
            self.save_checkpoint(path, true, false)?;
        }
        for entry in fs::read_dir(directory).map_err(|e| ArtifactsError::reading(directory, e))? {
            let path = entry
                .map_err(|e| ArtifactsError::reading(directory, e))?
                .path();
            sync(&path)?;
        }
        sync(directory)
    }

    fn parameter_bytes(&self) -> u64 {
        self.trainable
            .iter()
            .chain(&self.frozen)
            .map(|t| t.raw_data.as_ref().map_or(0, Bytes::len) as u64 + 256)
            .sum()
    }

    fn save_checkpoint(&self, path: &Path, nominal: bool, external_data: bool) -> Result<()> {
        let text = path.to_str().ok_or_else(|| {
            ArtifactsError::Name(format!(
                "the path {} is not Unicode, which ONNX Runtime needs",
                path.display()
            ))
        })?;
        self.native.save_checkpoint(
            &borrowed(&self.trainable),
            &borrowed(&self.frozen),
            text,
            nominal,
            external_data,
        )
    }

    fn checkpoint_bytes(&self) -> Result<Vec<u8>> {
        let size = self.parameter_bytes();
        if size > EXTERNAL_ABOVE {
            return Err(ArtifactsError::TooLarge(format!(
                "the parameters have {size} bytes; a checkpoint in memory holds {EXTERNAL_ABOVE}: write the artifacts \
                 to a directory, where the data has a file of its own"
            )));
        }
        // ONNX Runtime's writer writes files only.
        #[cfg(target_os = "linux")]
        if let Some(mut file) = memory_file() {
            use std::io::{Read, Seek};
            use std::os::fd::AsRawFd;
            let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            if path.exists() {
                self.save_checkpoint(&path, false, false)?;
                let mut bytes = Vec::new();
                file.rewind()
                    .and_then(|()| file.read_to_end(&mut bytes))
                    .map_err(|e| {
                        ArtifactsError::io("reading the checkpoint back from memory", e)
                    })?;
                return Ok(bytes);
            }
        }
        let directory =
            tempfile::tempdir().map_err(|e| ArtifactsError::io("making a temporary folder", e))?;
        let path = directory.path().join("checkpoint");
        self.save_checkpoint(&path, false, false)?;
        fs::read(&path).map_err(|e| ArtifactsError::reading(&path, e))
    }
}

/// A file that is memory only.
#[cfg(target_os = "linux")]
fn memory_file() -> Option<File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a C string.
    let descriptor = unsafe { libc::memfd_create(c"checkpoint".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: a descriptor that is not negative is open and nobody else's.
    (descriptor >= 0).then(|| unsafe { File::from_raw_fd(descriptor) })
}

fn borrowed(tensors: &[TensorProto]) -> Vec<CheckpointTensor<'_>> {
    tensors
        .iter()
        .map(|tensor| CheckpointTensor {
            name: tensor.label(),
            data_type: tensor.elem_type(),
            dims: &tensor.dims,
            data: tensor.raw_data.as_deref().unwrap_or_default(),
        })
        .collect()
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    File::create(path)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|e| ArtifactsError::io(format!("writing {}", path.display()), e))
}

fn sync(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|e| ArtifactsError::io(format!("bringing {} to the disk", path.display()), e))
}

/// Whether a directory holds files of these names and nothing else.
fn holds_only(directory: &Path, names: &[String]) -> Result<bool> {
    if directory.is_symlink() {
        return Ok(false); // An exchange would replace the link.
    }
    for entry in fs::read_dir(directory).map_err(|e| ArtifactsError::reading(directory, e))? {
        let entry = entry.map_err(|e| ArtifactsError::reading(directory, e))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let name = entry.file_name();
        let ours = names
            .iter()
            .any(|n| name == n.as_str() || name.to_str() == Some(&format!("{n}.data")));
        if !(is_file && ours) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Exchanges two directories in one step; false where that cannot be done.
#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    let c_path = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).ok();
    let (Some(c_a), Some(c_b)) = (c_path(a), c_path(b)) else {
        return false;
    };
    // The new directory is to be as open as the old one.
    let mode = fs::metadata(b)
        .map(|m| m.permissions().mode())
        .unwrap_or(0o755);
    if fs::set_permissions(a, fs::Permissions::from_mode(mode)).is_err() {
        return false;
    }
    // SAFETY: both paths are C strings that live for the call.
    let result = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            c_a.as_ptr(),
            libc::AT_FDCWD,
            c_b.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> bool {
    false
}

/// Moves the files of `staging` over those of `directory`; puts the old ones back when a move fails.
fn replace_files(staging: &Path, directory: &Path) -> Result<()> {
    let fail = |path: &Path, e| ArtifactsError::io(format!("replacing {}", path.display()), e);
    let backup = tempfile::Builder::new()
        .prefix(".ort-artifacts-old-")
        .tempdir_in(directory)
        .map_err(|e| fail(directory, e))?;
    let mut names = Vec::new();
    for entry in fs::read_dir(staging).map_err(|e| ArtifactsError::reading(staging, e))? {
        let name = entry
            .map_err(|e| ArtifactsError::reading(staging, e))?
            .file_name();
        let target = directory.join(&name);
        if target.exists() && !target.is_file() {
            return Err(fail(
                &target,
                std::io::Error::other("something that is not a file has its name"),
            ));
        }
        names.push(name);
    }
    let mut done = Vec::new();
    let moved = names.iter().try_for_each(|name| {
        let (old, target) = (backup.path().join(name), directory.join(name));
        let had = target.exists();
        if had {
            fs::rename(&target, &old).map_err(|e| fail(&target, e))?;
        }
        done.push((name, had));
        fs::rename(staging.join(name), &target).map_err(|e| fail(&target, e))
    });
    if moved.is_err() {
        for (name, had) in done {
            let target = directory.join(name);
            // What cannot be put back is reported by the error that led here.
            let _ = fs::remove_file(&target);
            if had {
                let _ = fs::rename(backup.path().join(name), &target);
            }
        }
        return moved;
    }
    sync(directory)
}
