//! Archives made into folders that can be compiled: unpacked, patched, named by their content.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::assets;
use crate::cache::{self, Cache};
use crate::error::{Error, Result};
use crate::fetch::Archive;
use crate::hash::Fields;
use crate::manifest::Source;
use crate::patch;
use crate::progress::{Event, Progress};
use crate::unpack::{self, Layout};

/// The verified archives of a build.
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<(Source, Archive)>);

/// The folders of a build.
#[derive(Debug)]
pub(crate) struct Folders {
    /// ONNX Runtime's tree: unpacked by us, or the user's own checkout.
    pub onnxruntime: PathBuf,
    /// The others, by name.
    pub dependencies: BTreeMap<String, Dependency>,
    /// `(name, version, origin, hash)` of all, for BUILD-INFO.toml.
    pub made_of: Vec<(String, String, String, String)>,
}

/// One dependency's folder.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub folder: PathBuf,
    /// NAME of FETCHCONTENT_SOURCE_DIR_NAME.
    pub cmake: Option<String>,
}

impl Sources {
    pub(crate) fn add(&mut self, source: Source, archive: Archive) {
        self.0.push((source, archive));
    }

    pub(crate) fn archives(&self) -> Vec<(String, PathBuf)> {
        self.0
            .iter()
            .map(|(source, archive)| (source.name.clone(), archive.path.clone()))
            .collect()
    }

    pub(crate) fn unpack(
        &self,
        cache: &Cache,
        checkout: Option<&Path>,
        progress: &dyn Progress,
    ) -> Result<Folders> {
        let mut made_of = Vec::new();
        let onnxruntime = match checkout {
            Some(checkout) => {
                let version = crate::builder::checkout_version(checkout).unwrap_or_default();
                made_of.push((
                    "onnxruntime".to_owned(),
                    version,
                    checkout.display().to_string(),
                    format!("stamp:{}", checkout_stamp(checkout)?),
                ));
                checkout.to_owned()
            }
            None => {
                let (source, archive) = self
                    .0
                    .iter()
                    .find(|(source, _)| source.name == "onnxruntime")
                    .expect("fetched when there is no checkout");
                made_of.push(described(source, archive));
                unpack_one(cache, source, archive, &[], progress)?
            }
        };
        let mut dependencies = BTreeMap::new();
        for (source, archive) in self.0.iter().filter(|(s, _)| s.name != "onnxruntime") {
            let mut patches = Vec::new();
            for patch in &source.patches {
                let path = onnxruntime.join(patch);
                let text = fs::read_to_string(&path)
                    .map_err(Error::io(format!("reading the patch {}", path.display())))?;
                patches.push((patch.clone(), text));
            }
            made_of.push(described(source, archive));
            let folder = unpack_one(cache, source, archive, &patches, progress)?;
            let cmake = source.cmake.clone();
            dependencies.insert(source.name.clone(), Dependency { folder, cmake });
        }
        Ok(Folders {
            onnxruntime,
            dependencies,
            made_of,
        })
    }
}

fn described(source: &Source, archive: &Archive) -> (String, String, String, String) {
    let origin = &archive.origin;
    (
        source.name.clone(),
        origin
            .version
            .clone()
            .unwrap_or_else(|| source.version.clone()),
        format!("{}: {}", origin.kind.name(), origin.file),
        origin.hash().to_string(),
    )
}

/// Unpacks and patches a source into a folder of the cache, or finds it there.
fn unpack_one(
    cache: &Cache,
    source: &Source,
    archive: &Archive,
    patches: &[(String, String)],
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let origin = &archive.origin;
    let mut patches = patches.to_vec();
    for (name, text) in assets::patches_for(&source.name) {
        patches.push((name.to_owned(), String::from_utf8_lossy(text).into_owned()));
    }
    let mut fields = Fields::new();
    fields.add("layout", "1");
    origin.add_to(&mut fields);
    for path in &source.licence_files {
        fields.add("licence", path);
    }
    for (name, text) in &patches {
        fields.add(name, text);
    }
    let folder = cache
        .sources()
        .join(format!("{}-{}", source.name, fields.short()));
    if folder.is_dir() {
        return Ok(folder);
    }
    progress.event(Event::Note(format!("unpacking {}", origin.file)));
    let layout = Layout {
        strip: origin.strip,
        subfolder: origin.subfolder.as_deref(),
        only: &origin.only,
        licence_files: origin
            .licence_files
            .as_ref()
            .unwrap_or(&source.licence_files),
        licences_in_archive: origin.licence_files.is_some(),
    };
    cache::folder_atomically(&folder, |temporary| {
        unpack::unpack(&archive.path, layout, temporary)?;
        for (name, text) in &patches {
            patch::apply(name, text, temporary)?;
        }
        Ok(())
    })?;
    Ok(folder)
}

/// Names the state of a checkout: the paths, sizes and times of the files that a build reads.
pub(crate) fn checkout_stamp(checkout: &Path) -> Result<String> {
    let mut files = Vec::new();
    for part in [
        "cmake",
        "include",
        "onnxruntime/core",
        "onnxruntime/contrib_ops",
        "onnxruntime/lora",
        "orttraining",
        "VERSION_NUMBER",
    ] {
        collect(&checkout.join(part), &mut files)?;
    }
    files.sort();
    let mut fields = Fields::new();
    fields.add("folder", checkout.as_os_str().as_encoded_bytes());
    for (path, size, time) in files {
        fields
            .add("path", path.as_os_str().as_encoded_bytes())
            .add("size", size.to_le_bytes())
            .add("time", time.to_le_bytes());
    }
    Ok(fields.short())
}

fn collect(path: &Path, files: &mut Vec<(PathBuf, u64, u128)>) -> Result<()> {
    let reading = || Error::io(format!("reading {}", path.display()));
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(reading()(error)),
    };
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(reading())? {
            collect(&entry.map_err(reading())?.path(), files)?;
        }
    } else {
        let time = metadata
            .modified()
            .ok()
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map_or(0, |time| time.as_nanos());
        files.push((path.to_owned(), metadata.len(), time));
    }
    Ok(())
}
