//! `sources.toml`: the upstreams, their pins and origins.

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::features::Features;
use crate::fetch::OriginKind;
use crate::hash::{Fields, Hash};

const BUNDLED: &str = include_str!("../sources.toml");

/// The sources that a build can be made of.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    #[serde(rename = "source")]
    sources: Vec<Source>,
}

/// One upstream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Source {
    /// Its name, also that of its folder and of its licences' folder.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence, as an SPDX expression.
    pub licence: String,
    /// Where it lives.
    pub homepage: String,
    /// What ONNX Runtime uses it for.
    #[serde(rename = "use")]
    pub used_for: String,
    /// `<NAME>` of the CMake variable `FETCHCONTENT_SOURCE_DIR_<NAME>`.
    pub cmake: Option<String>,
    /// The feature that needs it; always needed without one.
    pub feature: Option<String>,
    /// ONNX Runtime's patches for it, as paths in ONNX Runtime's tree.
    #[serde(default)]
    pub patches: Vec<String>,
    /// Its licence files.
    #[serde(default)]
    pub licence_files: Vec<String>,
    /// Where its archive can be had.
    #[serde(rename = "origin")]
    pub origins: Vec<Origin>,
}

/// A place that has the archive of a source.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Origin {
    /// What kind of place it is.
    pub kind: OriginKind,
    /// The address, for upstream.
    pub url: Option<String>,
    /// The path below `pool/main/`, for Debian.
    pub pool: Option<String>,
    /// `name==version`, for PyPI.
    pub package: Option<String>,
    /// The archive's file name.
    pub file: String,
    sha256: Option<String>,
    sha512: Option<String>,
    /// The version, where it is not that of the source.
    pub version: Option<String>,
    /// Leading folders of the archive's paths to drop.
    #[serde(default = "one")]
    pub strip: usize,
    /// Only what is below this folder is wanted.
    pub subfolder: Option<String>,
    /// Only these paths are wanted; all without.
    #[serde(default)]
    pub only: Vec<String>,
    /// Licence files, as paths in the archive, where they are not those of the source.
    pub licence_files: Option<Vec<String>>,
}

fn one() -> usize {
    1
}

impl Origin {
    /// The pinned hash of the archive.
    pub fn hash(&self) -> Hash {
        match (&self.sha256, &self.sha512) {
            (Some(hex), _) => Hash::Sha256(hex.clone()),
            (None, Some(hex)) => Hash::Sha512(hex.clone()),
            (None, None) => unreachable!("checked when the manifest was read"),
        }
    }

    /// Everything that decides what an unpacked folder has in it.
    pub(crate) fn add_to(&self, fields: &mut Fields) {
        fields
            .add("hash", self.hash().to_string())
            .add("strip", self.strip.to_string())
            .add("subfolder", self.subfolder.as_deref().unwrap_or_default());
        for path in &self.only {
            fields.add("only", path);
        }
        for path in self.licence_files.iter().flatten() {
            fields.add("licence", path);
        }
    }
}

impl Manifest {
    /// The manifest that is part of this crate.
    ///
    /// # Errors
    /// When it is malformed, which the tests rule out.
    pub fn bundled() -> Result<Manifest> {
        Self::parse(BUNDLED)
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// When it is not TOML of the described form, an origin has no hash or no address, or there is no `onnxruntime`.
    pub fn parse(text: &str) -> Result<Manifest> {
        let manifest: Manifest =
            toml::from_str(text).map_err(|error| Error::Manifest(error.to_string()))?;
        for source in &manifest.sources {
            let bad =
                |what: String| Err(Error::Manifest(format!("source {}: {what}", source.name)));
            if source.origins.is_empty() {
                return bad("no origin".into());
            }
            for origin in &source.origins {
                if origin.sha256.is_some() == origin.sha512.is_some() {
                    return bad(format!(
                        "{}: expected one of sha256 and sha512",
                        origin.file
                    ));
                }
                if !origin.hash().is_well_formed() {
                    return bad(format!(
                        "{}: {} is not a hash in lower-case hexadecimal digits",
                        origin.file,
                        origin.hash()
                    ));
                }
                let (key, address) = match origin.kind {
                    OriginKind::Upstream => ("url", &origin.url),
                    OriginKind::Debian => ("pool", &origin.pool),
                    OriginKind::Pypi => ("package", &origin.package),
                    OriginKind::Folder => {
                        return bad(
                            "a folder is no origin of a manifest; every file is looked for there"
                                .into(),
                        );
                    }
                };
                if address.is_none() {
                    return bad(format!("{}: no {key}", origin.file));
                }
            }
        }
        if !manifest.sources.iter().any(|s| s.name == "onnxruntime") {
            return Err(Error::Manifest("no source \"onnxruntime\"".into()));
        }
        Ok(manifest)
    }

    /// All sources, in the order of the file.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    pub(crate) fn onnxruntime(&self) -> &Source {
        self.sources
            .iter()
            .find(|source| source.name == "onnxruntime")
            .expect("checked when the manifest was read")
    }

    /// The sources that a build with these features needs.
    pub fn needed(&self, features: &Features) -> impl Iterator<Item = &Source> {
        let names = features.names();
        self.sources.iter().filter(move |source| {
            source
                .feature
                .as_ref()
                .is_none_or(|feature| names.contains(feature))
        })
    }

    pub(crate) fn add_to(&self, fields: &mut Fields, features: &Features) {
        for source in self.needed(features) {
            fields.add("source", &source.name);
            for patch in &source.patches {
                fields.add("patch", patch);
            }
            for origin in &source.origins {
                origin.add_to(fields);
            }
        }
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
