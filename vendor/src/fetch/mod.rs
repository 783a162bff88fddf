//! Getting an archive from whichever origin has it, and making sure that it is the pinned one.

mod apt;
mod http;
mod pip;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cache::{self, Cache};
use crate::error::{Error, Result};
use crate::manifest::{Origin, Source};
use crate::progress::{Event, Progress};

/// The kinds of places that archives come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OriginKind {
    /// A folder of the user's, with the archives by their names.
    Folder,
    /// The projects' own archives.
    Upstream,
    /// Debian's archive, at the mirror that the machine's apt is set up with.
    Debian,
    /// Wheels, through the machine's pip.
    Pypi,
}

impl OriginKind {
    /// All kinds, in the order they are asked by default.
    pub const ALL: [OriginKind; 4] = [
        OriginKind::Folder,
        OriginKind::Upstream,
        OriginKind::Debian,
        OriginKind::Pypi,
    ];

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            OriginKind::Folder => "folder",
            OriginKind::Upstream => "upstream",
            OriginKind::Debian => "debian",
            OriginKind::Pypi => "pypi",
        }
    }
}

impl std::str::FromStr for OriginKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        OriginKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| Error::Setting {
                name: "ORT_TRAINING_ORIGINS".into(),
                expected: "a list of folder, upstream, debian, pypi".into(),
                found: name.into(),
            })
    }
}

/// An archive that has the pinned hash.
#[derive(Debug, Clone)]
pub(crate) struct Archive {
    pub path: PathBuf,
    pub origin: Origin,
}

/// Asks origins, remembering which hosts did not answer: fourteen files shall not wait for one dead host fourteen times.
pub(crate) struct Fetcher<'a> {
    cache: Cache,
    folder: Option<PathBuf>,
    kinds: Vec<OriginKind>,
    progress: &'a dyn Progress,
    http: http::Client,
    mirrors: RefCell<Option<Vec<String>>>,
    noted: RefCell<BTreeMap<String, ()>>,
}

impl<'a> Fetcher<'a> {
    pub(crate) fn new(
        cache: Cache,
        folder: Option<PathBuf>,
        kinds: Vec<OriginKind>,
        progress: &'a dyn Progress,
    ) -> Self {
        Fetcher {
            cache,
            folder,
            kinds,
            progress,
            http: http::Client::new(),
            mirrors: RefCell::new(None),
            noted: RefCell::default(),
        }
    }

    /// The archive of a source, from the cache or the first origin that has it.
    pub(crate) fn fetch(&self, source: &Source) -> Result<Archive> {
        if let Some(archive) = self.in_folder(source)? {
            return Ok(archive);
        }
        for origin in &source.origins {
            let path = self.cache.downloads().join(&origin.file);
            if !path.is_file() {
                continue;
            }
            if verify(&path, origin, "the cache").is_ok() {
                return Ok(Archive {
                    path,
                    origin: origin.clone(),
                });
            }
            // The cache is ours: a file of it that went bad is fetched again, once.
            self.note(format!("{} is damaged; fetching it again", path.display()));
            fs::remove_file(&path).map_err(Error::io(format!("removing {}", path.display())))?;
        }
        let mut tried = Vec::new();
        for kind in &self.kinds {
            for origin in source.origins.iter().filter(|origin| origin.kind == *kind) {
                match self.ask(origin) {
                    Ok(archive) => return Ok(archive),
                    Err(Failure::Fatal(error)) => return Err(error),
                    Err(Failure::Passed(why)) => {
                        // A dead host is said once, not for every file that it might have had.
                        self.note(format!("passed over {}: {why}", kind.name()));
                        tried.push(format!("{} ({}): {why}", kind.name(), origin.file));
                    }
                }
            }
        }
        if let Some(folder) = &self.folder {
            let names: Vec<_> = source.origins.iter().map(|o| o.file.as_str()).collect();
            tried.insert(
                0,
                format!(
                    "folder: none of {} in {}",
                    names.join(", "),
                    folder.display()
                ),
            );
        }
        Err(Error::NoOrigin {
            source: format!("{} {}", source.name, source.version),
            tried,
        })
    }

    /// From the user's folder: used where it lies; a wrong hash there is the user's to know, and nothing is removed.
    fn in_folder(&self, source: &Source) -> Result<Option<Archive>> {
        let Some(folder) = &self.folder else {
            return Ok(None);
        };
        if !self.kinds.contains(&OriginKind::Folder) {
            return Ok(None);
        }
        for origin in &source.origins {
            let path = folder.join(&origin.file);
            if path.is_file() {
                verify(&path, origin, "ORT_TRAINING_SOURCES_DIR")?;
                return Ok(Some(Archive {
                    path,
                    origin: origin.clone(),
                }));
            }
        }
        Ok(None)
    }

    fn ask(&self, origin: &Origin) -> Result<Archive, Failure> {
        let target = self.cache.downloads().join(&origin.file);
        let from = match origin.kind {
            OriginKind::Upstream => {
                let url = origin.url.clone().expect("checked by the manifest");
                self.download(&url, origin, &target)?;
                url
            }
            OriginKind::Debian => self.ask_debian(origin, &target)?,
            OriginKind::Pypi => {
                let package = origin.package.as_deref().expect("checked by the manifest");
                pip::download(&self.cache, package, &origin.file, &|wheel| {
                    verify(wheel, origin, package)?;
                    cache::file_atomically(&target, |file| copy(wheel, file))
                })?;
                package.to_owned()
            }
            OriginKind::Folder => return Err(Failure::Passed("no folder was given".into())),
        };
        self.note(format!("{} from {from}", origin.file));
        Ok(Archive {
            path: target,
            origin: origin.clone(),
        })
    }

    fn ask_debian(&self, origin: &Origin, target: &Path) -> Result<String, Failure> {
        let pool = origin.pool.as_deref().expect("checked by the manifest");
        let mirrors = self
            .mirrors
            .borrow_mut()
            .get_or_insert_with(apt::mirrors)
            .clone();
        if mirrors.is_empty() {
            return Err(Failure::Passed(
                "this machine's apt names no mirror (ORT_TRAINING_DEBIAN_MIRROR can)".into(),
            ));
        }
        let mut why = Vec::new();
        for mirror in &mirrors {
            let url = format!("{}/pool/main/{pool}", mirror.trim_end_matches('/'));
            match self.download(&url, origin, target) {
                Ok(()) => return Ok(url),
                Err(Failure::Passed(line)) => why.push(line),
                Err(fatal) => return Err(fatal),
            }
        }
        Err(Failure::Passed(why.join("; ")))
    }

    /// Downloads into the cache. The bytes are checked before they get their name.
    fn download(&self, url: &str, origin: &Origin, target: &Path) -> Result<(), Failure> {
        let progress = |done, total| {
            self.progress.event(Event::Download {
                file: origin.file.clone(),
                done,
                total,
            });
        };
        cache::file_atomically(target, |file| {
            self.http.get(url, file, &progress)?;
            let expected = origin.hash();
            let found = expected
                .of_open_file(file)
                .map_err(Error::io(format!("reading {}", target.display())))?;
            if found == expected {
                return Ok(());
            }
            Err(Failure::Fatal(Error::Hash {
                file: target.to_owned(),
                origin: url.to_owned(),
                expected: expected.to_string(),
                found: found.to_string(),
            }))
        })
    }

    fn note(&self, line: String) {
        if self.noted.borrow_mut().insert(line.clone(), ()).is_none() {
            self.progress.event(Event::Note(line));
        }
    }
}

/// Why an origin did not serve.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It did not answer or does not have the file: the next is asked.
    Passed(String),
    /// It gave something wrong, or this machine cannot store it: asking on would hide that.
    Fatal(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Fatal(error)
    }
}

fn verify(path: &Path, origin: &Origin, from: &str) -> Result<()> {
    let expected = origin.hash();
    let found = expected
        .of_file(path)
        .map_err(Error::io(format!("reading {}", path.display())))?;
    if found == expected {
        return Ok(());
    }
    Err(Error::Hash {
        file: path.to_owned(),
        origin: from.to_owned(),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}

fn copy(from: &Path, to: &mut fs::File) -> Result<()> {
    fs::File::open(from)
        .and_then(|mut file| std::io::copy(&mut file, to))
        .map(|_| ())
        .map_err(Error::io(format!("copying {}", from.display())))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
