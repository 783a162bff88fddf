//! The cache folder: what lies where, and how things get into it whole or not at all.
//!
//! ```text
//! downloads/           verified archives
//! sources/NAME-HASH/   unpacked and patched
//! build/KEY/           a build in progress (removed after success unless it is to be kept)
//! install/KEY/         finished prefixes
//! logs/KEY.log         the whole output of the last build
//! locks/               one file a key: a second build of the same key waits for the first
//! tools/               where `ci/setup` puts a Python environment with cmake, ninja and libclang
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The environment variable that moves the cache folder.
pub const CACHE_DIR: &str = "ORT_TRAINING_CACHE_DIR";

/// The cache folder and the places in it.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// A cache in `root`, which need not exist yet.
    ///
    /// # Errors
    /// When `root` is relative and the current folder cannot be read.
    pub fn new(root: impl AsRef<Path>) -> Result<Cache> {
        let root = std::path::absolute(root.as_ref())
            .map_err(Error::io(format!("resolving {}", root.as_ref().display())))?;
        Ok(Cache { root })
    }

    /// `ORT_TRAINING_CACHE_DIR`, or `ort-training` in the user's cache folder.
    ///
    /// # Errors
    /// When the variable is unset and there is no home folder to fall back on.
    pub fn from_env() -> Result<Cache> {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(root) = var(CACHE_DIR) {
            return Self::new(PathBuf::from(root));
        }
        // The specification of XDG_CACHE_HOME says that a relative path is to be ignored.
        let base = var("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| var("HOME").map(|home| PathBuf::from(home).join(".cache")));
        match base {
            Some(base) => Self::new(base.join("ort-training")),
            None => Err(Error::Setting {
                name: CACHE_DIR.into(),
                expected: "a folder (HOME and XDG_CACHE_HOME are unset too)".into(),
                found: String::new(),
            }),
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Verified archives.
    pub fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// Unpacked sources.
    pub fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    /// The build folder of a key.
    pub fn build(&self, key: &str) -> PathBuf {
        self.root.join("build").join(key)
    }

    /// The install of a key.
    pub fn install(&self, key: &str) -> PathBuf {
        self.root.join("install").join(key)
    }

    /// The log of the last build of a key.
    pub fn log(&self, key: &str) -> PathBuf {
        self.root.join("logs").join(format!("{key}.log"))
    }

    /// A Python environment with build tools, for people without root.
    pub fn tools(&self) -> PathBuf {
        self.root.join("tools")
    }

    /// Takes the lock of a key. `waiting` is called once, with the holder's process id, when another has it.
    ///
    /// The lock ends with the process, however that ends: nothing stays locked after a kill.
    pub(crate) fn lock(&self, key: &str, waiting: impl FnOnce(&str)) -> Result<Lock> {
        let folder = self.root.join("locks");
        let path = folder.join(format!("{key}.lock"));
        let doing = || format!("locking {}", path.display());
        fs::create_dir_all(&folder).map_err(Error::io(doing()))?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Error::io(doing()))?;
        match fs4::FileExt::try_lock(&file) {
            Ok(()) => {}
            Err(fs4::TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(&path).unwrap_or_default();
                waiting(holder.trim());
                fs4::FileExt::lock(&file).map_err(Error::io(doing()))?;
            }
            Err(fs4::TryLockError::Error(error)) => return Err(Error::io(doing())(error)),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(Error::io(doing()))?;
        Ok(Lock { _file: file })
    }
}

/// Held while a build runs; released when dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Makes a folder whole or not at all: `fill` writes into a temporary sibling, which is then renamed.
///
/// A run that was killed in `fill` leaves a sibling that nothing reads; it is removed by the next run.
pub(crate) fn folder_atomically(
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let parent = target.parent().expect("a target below the cache folder");
    let name = target
        .file_name()
        .and_then(|name| name.to_str())
        .expect("names made by this crate");
    fs::create_dir_all(parent).map_err(Error::io(format!("making {}", parent.display())))?;
    remove_leftovers(parent, name);
    let temporary = parent.join(format!(".{name}.{}.tmp", std::process::id()));
    let made = fs::create_dir(&temporary)
        .map_err(Error::io(format!("making {}", temporary.display())))
        .and_then(|()| fill(&temporary))
        .and_then(|()| match fs::rename(&temporary, target) {
            // Another process finished the same folder first; its content is the same by its name.
            Err(error)
                if target.is_dir()
                    && matches!(
                        error.kind(),
                        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty
                    ) =>
            {
                let _ = fs::remove_dir_all(&temporary);
                Ok(())
            }
            result => result.map_err(Error::io(format!("renaming to {}", target.display()))),
        });
    if made.is_err() {
        let _ = fs::remove_dir_all(&temporary);
    }
    made
}

/// Removes temporary siblings of processes that are gone.
fn remove_leftovers(parent: &Path, name: &str) {
    let prefix = format!(".{name}.");
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let Some(pid) = file
            .to_str()
            .and_then(|file| file.strip_prefix(&prefix)?.strip_suffix(".tmp"))
            .and_then(|pid| pid.parse::<u32>().ok())
        else {
            continue;
        };
        if pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists() {
            let path = entry.path();
            let _ = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
        }
    }
}

/// Writes a file whole or not at all.
pub(crate) fn file_atomically<E: From<Error>>(
    target: &Path,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    let parent = target.parent().expect("a target below the cache folder");
    let name = target
        .file_name()
        .and_then(|name| name.to_str())
        .expect("names made by this crate");
    fs::create_dir_all(parent).map_err(Error::io(format!("making {}", parent.display())))?;
    remove_leftovers(parent, name);
    let temporary = parent.join(format!(".{name}.{}.tmp", std::process::id()));
    let make = || -> Result<(), E> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .map_err(Error::io(format!("making {}", temporary.display())))?;
        write(&mut file)?;
        file.sync_all()
            .map_err(Error::io(format!("writing {}", temporary.display())))?;
        fs::rename(&temporary, target)
            .map_err(Error::io(format!("renaming to {}", target.display())))?;
        Ok(())
    };
    let made = make();
    if made.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    made
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
