//! SHA-2 of files and of labelled fields.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256, Sha512};

/// A pinned hash. Upstreams and distributions publish one or the other.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hash {
    /// SHA-256, in hexadecimal digits.
    Sha256(String),
    /// SHA-512, in hexadecimal digits.
    Sha512(String),
}

impl Hash {
    /// The hexadecimal digits.
    pub fn hex(&self) -> &str {
        match self {
            Hash::Sha256(hex) | Hash::Sha512(hex) => hex,
        }
    }

    /// The same kind of hash, of a file.
    pub(crate) fn of_file(&self, path: &Path) -> io::Result<Hash> {
        self.of_open_file(&mut File::open(path)?)
    }

    /// The same kind of hash, of all that an open file has in it.
    pub(crate) fn of_open_file(&self, file: &mut File) -> io::Result<Hash> {
        file.rewind()?;
        Ok(match self {
            Hash::Sha256(_) => Hash::Sha256(digest::<Sha256>(file)?),
            Hash::Sha512(_) => Hash::Sha512(digest::<Sha512>(file)?),
        })
    }

    pub(crate) fn is_well_formed(&self) -> bool {
        let length = match self {
            Hash::Sha256(_) => 64,
            Hash::Sha512(_) => 128,
        };
        let hex = self.hex();
        hex.len() == length && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Hash::Sha256(hex) => write!(f, "sha256:{hex}"),
            Hash::Sha512(hex) => write!(f, "sha512:{hex}"),
        }
    }
}

fn digest<D: Digest>(file: &mut File) -> io::Result<String> {
    let mut hasher = D::new();
    let mut buffer = vec![0u8; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            n => hasher.update(&buffer[..n]),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes labelled fields. Lengths are hashed too, so that no two lists of fields read the same.
#[derive(Clone)]
pub(crate) struct Fields(Sha256);

impl Fields {
    pub(crate) fn new() -> Self {
        Fields(Sha256::new())
    }

    pub(crate) fn add(&mut self, label: &str, value: impl AsRef<[u8]>) -> &mut Self {
        for part in [label.as_bytes(), value.as_ref()] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
        self
    }

    /// The first 16 hexadecimal digits: enough to name a folder.
    pub(crate) fn short(&self) -> String {
        let mut all = hex(&self.0.clone().finalize());
        all.truncate(16);
        all
    }
}
