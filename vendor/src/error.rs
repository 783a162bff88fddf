//! What can go wrong, in words that name the input, what was expected and what was found.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a prefix could not be opened, or ONNX Runtime not be fetched or built.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written.
    Io {
        /// What was being done, naming the file.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A folder is not a usable ONNX Runtime prefix.
    Prefix {
        /// The folder that was named.
        prefix: PathBuf,
        /// What a usable one has.
        expected: String,
        /// What was there.
        found: String,
    },
    /// A setting (environment variable, option) has a value that means nothing.
    Setting {
        /// The variable or option.
        name: String,
        /// What values it takes.
        expected: String,
        /// The value that was given.
        found: String,
    },
    /// Tools that the build needs are missing; the message has all of them and the command that installs them.
    Tools(String),
    /// A file has other bytes than the pinned ones.
    Hash {
        /// The file that was read.
        file: PathBuf,
        /// Where it came from.
        origin: String,
        /// The pinned hash, `algorithm:hex`.
        expected: String,
        /// The hash of the file, `algorithm:hex`.
        found: String,
    },
    /// No origin had a source.
    NoOrigin {
        /// The source and version.
        source: String,
        /// One line an origin: why it did not serve.
        tried: Vec<String>,
    },
    /// `sources.toml` is not as it must be.
    Manifest(String),
    /// An archive cannot be unpacked.
    Archive {
        /// The archive.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A model, or a list of operators, cannot be used.
    Model {
        /// The file.
        file: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
    /// A patch does not fit.
    Patch {
        /// The patch's name.
        patch: String,
        /// What did not fit, naming the file and line.
        problem: String,
    },
    /// A command (CMake, ninja, pip) failed.
    Command {
        /// What it was for.
        doing: String,
        /// How it ended.
        status: String,
        /// What it said, cut to the part about the failure.
        output: String,
        /// The file with everything it said.
        log: Option<PathBuf>,
    },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, source }
    }

    pub(crate) fn prefix(
        prefix: &Path,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Error::Prefix {
            prefix: prefix.to_owned(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Whether the cause is that no space was left on the disk.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Error::Io { source, .. } => {
                source.kind() == io::ErrorKind::StorageFull
                    || source.kind() == io::ErrorKind::QuotaExceeded
            }
            Error::Command { output, .. } => {
                output.contains("No space left on device") || output.contains("Disk quota exceeded")
            }
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, source } => write!(f, "{doing}: {source}")?,
            Error::Prefix {
                prefix,
                expected,
                found,
            } => write!(
                f,
                "{} is not a usable ONNX Runtime prefix: expected {expected}, found {found}",
                prefix.display()
            )?,
            Error::Setting {
                name,
                expected,
                found,
            } => write!(f, "{name}: expected {expected}, found {found:?}")?,
            Error::Tools(message) => f.write_str(message)?,
            Error::Hash {
                file,
                origin,
                expected,
                found,
            } => write!(
                f,
                "wrong hash of {} (from {origin}): expected {expected}, found {found}",
                file.display()
            )?,
            Error::NoOrigin { source, tried } => {
                write!(f, "no origin has the source of {source}; tried:")?;
                for line in tried {
                    write!(f, "\n  {line}")?;
                }
                write!(
                    f,
                    "\nA folder with the archives can be given with ORT_TRAINING_SOURCES_DIR."
                )?;
            }
            Error::Manifest(problem) => write!(f, "sources.toml: {problem}")?,
            Error::Archive { file, problem } => {
                write!(f, "cannot unpack {}: {problem}", file.display())?;
            }
            Error::Model { file, problem } => write!(f, "{}: {problem}", file.display())?,
            Error::Patch { patch, problem } => write!(f, "patch {patch} does not fit: {problem}")?,
            Error::Command {
                doing,
                status,
                output,
                log,
            } => {
                write!(f, "{doing} failed ({status})")?;
                if !output.is_empty() {
                    write!(f, ":\n{}", output.trim_end())?;
                }
                if let Some(log) = log {
                    write!(f, "\nThe whole output is in {}", log.display())?;
                }
            }
        }
        if self.is_disk_full() {
            write!(
                f,
                "\nThe disk is full. A build takes about 1 GB; free some, or name a folder on another \
                 disk with ORT_TRAINING_CACHE_DIR. What was installed before is untouched, and the \
                 next run goes on from here."
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
