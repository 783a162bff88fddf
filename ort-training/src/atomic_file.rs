//! Replacing files whole: whoever reads, and whatever is killed, finds the old file or the new one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};

/// A temporary sibling is left by a process that was killed if that process is gone and the file this old.
const STALE: Duration = Duration::from_secs(600);

/// A name beside `path` that nobody else uses. What is still there under it is removed when this is dropped.
pub(crate) struct Sibling {
    target: PathBuf,
    pub(crate) path: PathBuf,
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// `.<name><suffix>` in the folder of `path`.
fn hidden(path: &Path, suffix: &str) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        Error::invalid_argument(format!(
            "{}: expected a path that ends in a file name",
            path.display()
        ))
    })?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(suffix);
    Ok(path.with_file_name(hidden))
}

fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

impl Sibling {
    pub(crate) fn new(target: &Path) -> Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let parent = folder(target);
        if !parent.is_dir() {
            return Err(Error::io(
                format_args!("{}: folder {}", target.display(), parent.display()),
                &io::Error::from(io::ErrorKind::NotFound),
            ));
        }
        if target.is_dir() {
            return Err(Error::invalid_argument(format!(
                "{}: expected a file or nothing, found a folder",
                target.display()
            )));
        }
        remove_stale(target);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = hidden(target, &format!(".tmp-{}-{number}", std::process::id()))?;
        Ok(Self {
            target: target.to_owned(),
            path,
        })
    }

    /// Puts the file in the target's place, flushed to the disk before and after.
    pub(crate) fn commit(self) -> Result<()> {
        let subject = self.target.display().to_string();
        flush(&self.path).map_err(|error| Error::io(&subject, &error))?;
        fs::rename(&self.path, &self.target).map_err(|error| Error::io(&subject, &error))?;
        flush(folder(&self.target)).map_err(|error| Error::io(&subject, &error))
    }

    /// Puts the file and its second file (`<name>.data`) in the places of the target and its second file.
    ///
    /// No file system renames two files at once. So the pair gets its final contents under two fixed hidden names first;
    /// the second of these renames is the moment from which [`recover`] finishes the rest, and before which the old pair
    /// is untouched.
    pub(crate) fn commit_pair(self) -> Result<()> {
        let subject = self.target.display().to_string();
        let pair = || -> io::Result<()> {
            flush(&self.path)?;
            flush(&with_suffix(&self.path, ".data"))
        };
        pair().map_err(|error| Error::io(&subject, &error))?;
        let ready = hidden(&self.target, ".new")?;
        let steps = || -> io::Result<()> {
            fs::rename(
                with_suffix(&self.path, ".data"),
                with_suffix(&ready, ".data"),
            )?;
            fs::rename(&self.path, &ready)?;
            flush(folder(&self.target))
        };
        steps().map_err(|error| Error::io(&subject, &error))?;
        recover(&self.target)
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(with_suffix(&self.path, ".data"));
    }
}

/// Finishes a [`commit_pair`](Sibling::commit_pair) that was killed half-way. Call before reading or writing `target`.
pub(crate) fn recover(target: &Path) -> Result<()> {
    let Ok(ready) = hidden(target, ".new") else {
        return Ok(());
    };
    let ready_data = with_suffix(&ready, ".data");
    if !ready.exists() {
        return Ok(());
    }
    let steps = || -> io::Result<()> {
        match fs::rename(&ready_data, with_suffix(target, ".data")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match fs::rename(&ready, target) {
            // Another process finished it.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        flush(folder(target))
    };
    steps().map_err(|error| Error::io(target.display(), &error))
}

fn flush(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes what killed processes left beside `target`.
fn remove_stale(target: &Path) {
    let Ok(prefix) = hidden(target, ".tmp-") else {
        return;
    };
    let Some(prefix) = prefix
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
    else {
        return;
    };
    let Ok(entries) = fs::read_dir(folder(target)) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name
            .strip_prefix(&prefix)
            .and_then(|rest| rest.split('-').next())
        else {
            continue;
        };
        let old = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|time| {
                SystemTime::now()
                    .duration_since(time)
                    .is_ok_and(|age| age > STALE)
            });
        let gone = process.parse::<u32>().is_ok()
            && Path::new("/proc/self").exists()
            && !Path::new("/proc").join(process).exists();
        if old && gone {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with an old pair, and a new one written beside it.
    fn pair() -> (tempfile::TempDir, PathBuf, Sibling) {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        fs::write(&target, "old").unwrap();
        fs::write(with_suffix(&target, ".data"), "old").unwrap();
        let sibling = Sibling::new(&target).unwrap();
        fs::write(&sibling.path, "new").unwrap();
        fs::write(with_suffix(&sibling.path, ".data"), "new").unwrap();
        (folder, target, sibling)
    }

    fn contents(target: &Path) -> [String; 2] {
        [target, &with_suffix(target, ".data")].map(|path| fs::read_to_string(path).unwrap())
    }

    fn count(folder: &tempfile::TempDir) -> usize {
        fs::read_dir(folder.path()).unwrap().count()
    }

    #[test]
    fn a_pair_that_failed_half_way_is_finished() {
        let (folder, target, sibling) = pair();
        // A folder in the way makes the last rename fail, when everything before it is done.
        fs::remove_file(&target).unwrap();
        fs::create_dir(&target).unwrap();
        sibling.commit_pair().unwrap_err();
        fs::remove_dir(&target).unwrap();
        fs::write(&target, "old").unwrap();
        recover(&target).unwrap();
        assert_eq!(contents(&target), ["new", "new"]);
        assert_eq!(count(&folder), 2);
    }

    #[test]
    fn a_pair_that_failed_early_is_untouched() {
        let (folder, target, sibling) = pair();
        fs::remove_file(&sibling.path).unwrap();
        sibling.commit_pair().unwrap_err();
        recover(&target).unwrap();
        assert_eq!(contents(&target), ["old", "old"]);
        assert_eq!(count(&folder), 2);
    }

    #[test]
    fn what_is_dropped_is_removed() {
        let (folder, target, sibling) = pair();
        assert_eq!(count(&folder), 4);
        drop(sibling);
        assert_eq!(contents(&target), ["old", "old"]);
        assert_eq!(count(&folder), 2);
    }

    #[test]
    fn only_stale_files_of_dead_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let dead = i32::MAX;
        let mine = std::process::id();
        let old = SystemTime::now() - 2 * STALE;
        let cases = [
            (format!(".file.tmp-{dead}-0"), true, false),
            (format!(".file.tmp-{dead}-1.data"), true, false),
            (format!(".file.tmp-{dead}-2"), false, true),
            (format!(".file.tmp-{mine}-0"), true, true),
            (format!(".other.tmp-{dead}-0"), true, true),
            (".file.tmp-x".to_owned(), true, true),
        ];
        for (name, is_old, _) in &cases {
            let file = File::create(folder.path().join(name)).unwrap();
            if *is_old {
                file.set_modified(old).unwrap();
            }
        }
        Sibling::new(&target).unwrap();
        for (name, _, stays) in &cases {
            assert_eq!(folder.path().join(name).exists(), *stays, "{name}");
        }
    }
}
