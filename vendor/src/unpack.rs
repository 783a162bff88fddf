//! Unpacking archives: `.tar.gz`, `.tar.xz`, `.zip` and wheels, and `.deb` packages.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;

use crate::error::{Error, Result};

/// The folder in an unpacked source that its licence files are copied to, whatever its archive looked like.
pub(crate) const LICENCES: &str = ".licences";

/// Which part of an archive is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout<'a> {
    pub strip: usize,
    pub subfolder: Option<&'a str>,
    pub only: &'a [String],
    /// Paths in the archive for an origin's own list, else paths in the source.
    pub licence_files: &'a [String],
    pub licences_in_archive: bool,
}

/// Unpacks `archive` into `folder`, which exists and is empty.
pub(crate) fn unpack(archive: &Path, layout: Layout<'_>, folder: &Path) -> Result<()> {
    let mut sink = Sink {
        layout,
        folder,
        files: 0,
    };
    let name = archive
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let result = File::open(archive).and_then(|file| {
        if name.ends_with(".zip") || name.ends_with(".whl") {
            unzip(BufReader::new(file), &mut sink)
        } else if name.ends_with(".deb") {
            let (member, data) = deb_data(file)?;
            untar(decompress(&member, data)?, &mut sink)
        } else {
            untar(decompress(name, BufReader::new(file))?, &mut sink)
        }
    });
    match result {
        Ok(()) if sink.files == 0 => Err(Error::Archive {
            file: archive.to_owned(),
            problem: "nothing in it is where sources.toml says".into(),
        }),
        Ok(()) => Ok(()),
        // Writing fails for reasons of this machine, the rest for reasons of the archive.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::PermissionDenied
            ) =>
        {
            Err(Error::io(format!("unpacking {}", archive.display()))(error))
        }
        Err(error) => Err(Error::Archive {
            file: archive.to_owned(),
            problem: error.to_string(),
        }),
    }
}

fn decompress<'a>(name: &str, reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    if name.ends_with(".gz") || name.ends_with(".tgz") {
        Ok(Box::new(MultiGzDecoder::new(reader)))
    } else if name.ends_with(".xz") {
        Ok(Box::new(XzDecoder::new_multi_decoder(reader)))
    } else if name.ends_with(".tar") {
        Ok(Box::new(reader))
    } else {
        Err(io::Error::other(format!(
            "{name}: expected .tar.gz, .tar.xz, .zip, .whl or .deb"
        )))
    }
}

/// The `data.tar.*` of a Debian package, which is an `ar` archive of three members.
fn deb_data(mut file: File) -> io::Result<(String, impl Read)> {
    let mut magic = [0u8; 8];
    file.read_exact(&mut magic)?;
    if magic != *b"!<arch>\n" {
        return Err(io::Error::other("not a Debian package (no ar archive)"));
    }
    loop {
        let mut header = [0u8; 60];
        file.read_exact(&mut header)
            .map_err(|_| io::Error::other("a Debian package without data.tar"))?;
        let text = |range: std::ops::Range<usize>| {
            String::from_utf8_lossy(&header[range]).trim().to_owned()
        };
        let name = text(0..16).trim_end_matches('/').to_owned();
        let size: u64 = text(48..58)
            .parse()
            .map_err(|_| io::Error::other("a damaged ar header"))?;
        if name.starts_with("data.tar") {
            return Ok((name, BufReader::new(file.take(size))));
        }
        // Members begin at even offsets.
        file.seek(SeekFrom::Current((size + size % 2) as i64))?;
    }
}

fn untar(reader: impl Read, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let header = entry.header();
        let executable = header.mode().unwrap_or(0) & 0o100 != 0;
        let time = header
            .mtime()
            .ok()
            .map(|s| SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        match header.entry_type() {
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                sink.file(&path, &mut entry, executable, time)?;
            }
            tar::EntryType::Symlink => {
                let link = entry
                    .link_name()?
                    .map(|link| link.into_owned())
                    .unwrap_or_default();
                sink.symlink(&path, &link)?;
            }
            // Folders are made for the files in them; the pinned archives have no other entries that matter.
            _ => {}
        }
    }
    Ok(())
}

fn unzip(reader: impl Read + Seek, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut archive = zip::ZipArchive::new(reader).map_err(io::Error::other)?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(io::Error::other)?;
        if entry.is_dir() {
            continue;
        }
        let path = PathBuf::from(entry.name());
        let mode = entry.unix_mode().unwrap_or(0o100_644);
        if mode & 0o170_000 == 0o120_000 {
            let mut link = String::new();
            entry.read_to_string(&mut link)?;
            sink.symlink(&path, Path::new(&link))?;
        } else {
            sink.file(&path, &mut entry, mode & 0o100 != 0, None)?;
        }
    }
    Ok(())
}

struct Sink<'a> {
    layout: Layout<'a>,
    folder: &'a Path,
    files: usize,
}

impl Sink<'_> {
    fn file(
        &mut self,
        path: &Path,
        content: &mut dyn Read,
        executable: bool,
        time: Option<SystemTime>,
    ) -> io::Result<()> {
        let clean = clean(path)?;
        let target = self.place(&clean);
        let licence = self.is_licence(&clean).then(|| {
            let name = clean.file_name().expect("a file has a name");
            self.folder.join(LICENCES).join(name)
        });
        let (first, second) = match (target, licence) {
            (Some(target), licence) => (target, licence),
            (None, Some(licence)) => (licence, None),
            (None, None) => return Ok(()),
        };
        write(&first, content, executable, time)?;
        if let Some(second) = second {
            fs::create_dir_all(second.parent().expect("below the folder"))?;
            fs::copy(&first, &second)?;
        }
        self.files += 1;
        Ok(())
    }

    fn symlink(&mut self, path: &Path, link: &Path) -> io::Result<()> {
        let clean = clean(path)?;
        let Some(target) = self.place(&clean) else {
            return Ok(());
        };
        // A link must stay in the archive; none of the sources needs one that does not.
        let mut depth = clean.components().count() as i64 - 1;
        for component in link.components() {
            match component {
                Component::Normal(_) => depth += 1,
                Component::ParentDir => depth -= 1,
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => depth = -1,
            }
            if depth < 0 {
                return Err(io::Error::other(format!(
                    "a link out of the archive: {} -> {}",
                    path.display(),
                    link.display()
                )));
            }
        }
        fs::create_dir_all(target.parent().expect("below the folder"))?;
        std::os::unix::fs::symlink(link, target)
    }

    fn stripped(&self, path: &Path) -> Option<PathBuf> {
        let mut components = path.components();
        for _ in 0..self.layout.strip {
            components.next()?;
        }
        let rest = components.as_path();
        (!rest.as_os_str().is_empty()).then(|| rest.to_owned())
    }

    /// Where a path of the archive goes, if it is wanted.
    fn place(&self, path: &Path) -> Option<PathBuf> {
        let mut rest = self.stripped(path)?;
        if let Some(subfolder) = self.layout.subfolder {
            rest = rest.strip_prefix(subfolder).ok()?.to_owned();
        }
        let only = self.layout.only;
        if !only.is_empty() && !only.iter().any(|wanted| rest.starts_with(wanted)) {
            return None;
        }
        Some(self.folder.join(rest))
    }

    fn is_licence(&self, path: &Path) -> bool {
        let path = if self.layout.licences_in_archive {
            Some(path.to_owned())
        } else {
            self.stripped(path)
        };
        path.is_some_and(|path| {
            self.layout
                .licence_files
                .iter()
                .any(|file| Path::new(file) == path)
        })
    }
}

fn clean(path: &Path) -> io::Result<PathBuf> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            _ => {
                return Err(io::Error::other(format!(
                    "a path out of the archive: {}",
                    path.display()
                )));
            }
        }
    }
    if clean.as_os_str().is_empty() {
        return Err(io::Error::other("an empty path"));
    }
    Ok(clean)
}

fn write(
    path: &Path,
    content: &mut dyn Read,
    executable: bool,
    time: Option<SystemTime>,
) -> io::Result<()> {
    fs::create_dir_all(path.parent().expect("below the folder"))?;
    let mut file = File::create(path)?;
    io::copy(content, &mut file)?;
    if executable {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
    }
    // The archive's own times: a source that is unpacked again does not make ninja compile again.
    if let Some(time) = time {
        file.set_modified(time)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
