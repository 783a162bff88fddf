//! Installs in one file: built once, used by a team or a CI.
//!
//! The archive is a `.tar.xz` of one folder, named after the install's key. Its first entry is `SHA256SUMS`: a line for
//! every file and link. Nothing of an archive is put into place before all of it was checked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};

use liblzma::read::XzDecoder;
use liblzma::write::XzEncoder;
use sha2::{Digest, Sha256};
use tar::EntryType;

use crate::cache::{self, Cache};
use crate::error::{Error, Result};
use crate::hash::hex;
use crate::install::Install;

const SUMS: &str = "SHA256SUMS";

/// The first line of `SHA256SUMS`; another layout gets another number.
const FORMAT: &str = "# onnxruntime-training-src 1";

/// What is known of a path in an install: the hash of a file, or where a link leads.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    File(String),
    Link(String),
}

/// Writes the install at `prefix` to `archive`, whole or not at all.
///
/// # Errors
/// No usable install; a link that leads out of its own folder; a file that cannot be read or written.
pub fn pack(prefix: &Path, archive: &Path) -> Result<()> {
    let install = Install::open(prefix)?;
    let root = &install.root;
    let name = root
        .file_name()
        .and_then(|name| name.to_str())
        .filter(|name| is_plain(name))
        .ok_or_else(|| Error::prefix(root, "a folder with a plain name", "another name"))?;
    let mut contents = BTreeMap::new();
    list(root, Path::new(""), &mut contents)?;
    let archive = std::path::absolute(archive)
        .map_err(Error::io(format!("resolving {}", archive.display())))?;
    let doing = || format!("writing {}", archive.display());
    cache::file_atomically(&archive, |file| {
        let write = || -> io::Result<()> {
            let mut tar = tar::Builder::new(XzEncoder::new(BufWriter::new(file), 6));
            let sums = sums(&contents);
            append(
                &mut tar,
                &format!("{name}/{SUMS}"),
                0o644,
                sums.len() as u64,
                sums.as_bytes(),
            )?;
            for (path, content) in &contents {
                let at = format!("{name}/{path}");
                match content {
                    Content::Link(target) => {
                        let mut header = header(EntryType::Symlink, 0o777, 0);
                        tar.append_link(&mut header, at, target)?;
                    }
                    Content::File(_) => {
                        let file = File::open(root.join(path))?;
                        let size = file.metadata()?.len();
                        let mode = if path.contains(".so") { 0o755 } else { 0o644 };
                        append(&mut tar, &at, mode, size, file)?;
                    }
                }
            }
            tar.into_inner()?.finish()?.into_inner()?;
            Ok(())
        };
        write().map_err(Error::io(doing()))
    })
}

/// No time, no owner: the same install is the same archive.
fn header(kind: EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header
}

fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    size: u64,
    data: impl Read,
) -> io::Result<()> {
    tar.append_data(&mut header(EntryType::Regular, mode, size), path, data)
}

fn list(root: &Path, below: &Path, contents: &mut BTreeMap<String, Content>) -> Result<()> {
    let folder = root.join(below);
    let entries =
        fs::read_dir(&folder).map_err(Error::io(format!("reading {}", folder.display())))?;
    for entry in entries {
        let entry = entry.map_err(Error::io(format!("reading {}", folder.display())))?;
        let (path, full) = (below.join(entry.file_name()), entry.path());
        let metadata = fs::symlink_metadata(&full)
            .map_err(Error::io(format!("reading {}", full.display())))?;
        if metadata.is_dir() {
            list(root, &path, contents)?;
            continue;
        }
        let name = path
            .to_str()
            .filter(|name| !name.contains('\n'))
            .ok_or_else(|| Error::prefix(root, "names in UTF-8", path.display().to_string()))?;
        let content = if metadata.is_symlink() {
            let target =
                fs::read_link(&full).map_err(Error::io(format!("reading {}", full.display())))?;
            let target = target
                .to_str()
                .filter(|target| is_plain(target))
                .ok_or_else(|| {
                    Error::prefix(
                        root,
                        "links that lead to a file beside them",
                        format!("{name} -> {}", target.display()),
                    )
                })?;
            Content::Link(target.to_owned())
        } else {
            let mut file =
                File::open(&full).map_err(Error::io(format!("reading {}", full.display())))?;
            let mut hasher = Hashing(Sha256::new(), io::sink());
            io::copy(&mut file, &mut hasher)
                .map_err(Error::io(format!("reading {}", full.display())))?;
            Content::File(hex(&hasher.0.finalize()))
        };
        contents.insert(name.to_owned(), content);
    }
    Ok(())
}

/// A name that is a single part of a path.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}

fn sums(contents: &BTreeMap<String, Content>) -> String {
    let mut text = format!("{FORMAT}\n");
    for (path, content) in contents {
        match content {
            Content::File(hash) => text.push_str(&format!("{hash}  {path}\n")),
            Content::Link(target) => text.push_str(&format!("link to {target}  {path}\n")),
        }
    }
    text
}

fn parse_sums(text: &str) -> Option<BTreeMap<String, Content>> {
    let mut lines = text.lines();
    if lines.next()? != FORMAT {
        return None;
    }
    lines
        .map(|line| {
            let (what, path) = line.split_once("  ")?;
            let content = match what.strip_prefix("link to ") {
                Some(target) => Content::Link(target.to_owned()),
                None => Content::File(what.to_owned()),
            };
            Some((path.to_owned(), content))
        })
        .collect()
}

/// Hashes what is written through it.
struct Hashing<W>(Sha256, W);

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.1.write(data)?;
        self.0.update(&data[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.1.flush()
    }
}

/// Checks `archive`, puts the install that it holds into the cache under its key, and opens it. One that is there already
/// is left alone.
///
/// # Errors
/// A file that is no such archive, is cut off, or does not hold what its list says: nothing is installed. An install for
/// another architecture than this one.
pub fn unpack(archive: &Path, cache: &Cache) -> Result<Install> {
    let bad = |problem: String| Error::Archive {
        file: archive.to_owned(),
        problem,
    };
    let open = || {
        let file =
            File::open(archive).map_err(Error::io(format!("opening {}", archive.display())))?;
        Ok(XzDecoder::new(BufReader::new(file)))
    };
    // To its very end, which what reads the entries does not look at.
    io::copy(&mut open()?, &mut io::sink())
        .map_err(|error| bad(format!("no whole .tar.xz: {error}")))?;
    let mut tar = tar::Archive::new(open()?);
    let mut entries = tar.entries().map_err(|error| bad(error.to_string()))?;
    let mut first = entries
        .next()
        .ok_or_else(|| bad("it is empty".into()))?
        .map_err(|error| bad(format!("no .tar.xz that `pack` wrote: {error}")))?;
    let (key, path) = place(&first).map_err(bad)?;
    let mut text = String::new();
    let wanted = (path == SUMS)
        .then(|| first.read_to_string(&mut text).ok())
        .flatten()
        .and_then(|_| parse_sums(&text))
        .ok_or_else(|| {
            bad(format!(
                "expected {SUMS} that begins with {FORMAT:?} as its first entry, found {path}"
            ))
        })?;
    let target = cache.install(&key);
    let _lock = cache.lock(&key, |_| ())?;
    if target.is_dir() {
        return Install::open(&target);
    }
    cache::folder_atomically(&target, |folder| {
        let mut left = wanted;
        for entry in entries {
            let mut entry = entry.map_err(|error| bad(error.to_string()))?;
            let (folder_name, path) = place(&entry).map_err(bad)?;
            let content = left
                .remove(&path)
                .filter(|_| folder_name == key)
                .ok_or_else(|| bad(format!("{folder_name}/{path} is not in {SUMS}")))?;
            put(&mut entry, &content, &path, &folder.join(&path), &bad)?;
        }
        if let Some(path) = left.keys().next() {
            return Err(bad(format!("{path} of {SUMS} is not in the archive")));
        }
        // Its architecture, and that it is whole.
        Install::open(folder).map(drop)
    })?;
    Install::open(&target)
}

/// The name of the folder and the path in it.
fn place<R: Read>(entry: &tar::Entry<'_, R>) -> std::result::Result<(String, String), String> {
    let path = entry.path().map_err(|error| error.to_string())?;
    let parts: Option<Vec<&str>> = path
        .components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    match parts.as_deref() {
        Some([folder, rest @ ..]) if !rest.is_empty() && folder.starts_with("onnxruntime-") => {
            Ok(((*folder).to_owned(), rest.join("/")))
        }
        _ => Err(format!(
            "expected paths such as onnxruntime-1.21.0-KEY/lib/FILE, found {}",
            path.display()
        )),
    }
}

fn put<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    content: &Content,
    path: &str,
    target: &Path,
    bad: &dyn Fn(String) -> Error,
) -> Result<()> {
    let parent = target.parent().expect("below a folder");
    fs::create_dir_all(parent).map_err(Error::io(format!("making {}", parent.display())))?;
    match (content, entry.header().entry_type()) {
        (Content::Link(wanted), EntryType::Symlink) => {
            let link = entry
                .link_name()
                .ok()
                .flatten()
                .map(|name| name.into_owned());
            if link.as_deref() != Some(Path::new(wanted)) || !is_plain(wanted) {
                return Err(bad(format!(
                    "{path}: expected a link to {wanted} beside it, found one to {}",
                    link.unwrap_or_default().display()
                )));
            }
            std::os::unix::fs::symlink(wanted, target)
                .map_err(Error::io(format!("making {}", target.display())))
        }
        (Content::File(wanted), EntryType::Regular) => {
            let file = File::create_new(target)
                .map_err(Error::io(format!("making {}", target.display())))?;
            let mut hashing = Hashing(Sha256::new(), BufWriter::new(file));
            copy(entry, &mut hashing, bad, target)?;
            let found = hex(&hashing.0.finalize());
            if found != *wanted {
                return Err(bad(format!(
                    "{path}: expected sha256 {wanted}, found {found}"
                )));
            }
            Ok(())
        }
        (_, kind) => Err(bad(format!("{path}: found an entry of kind {kind:?}"))),
    }
}

/// Tells an archive that cannot be read from a disk that cannot be written.
fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    bad: &dyn Fn(String) -> Error,
    target: &Path,
) -> Result<()> {
    let mut buffer = vec![0u8; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => to
                .write_all(&buffer[..count])
                .map_err(Error::io(format!("writing {}", target.display())))?,
            Err(error) => return Err(bad(error.to_string())),
        }
    }
    to.flush()
        .map_err(Error::io(format!("writing {}", target.display())))
}

/// The name that `pack` gives an archive by default: the install's key.
pub fn file_name(install: &Install) -> PathBuf {
    let mut name = install.root.file_name().unwrap_or_default().to_owned();
    name.push(".tar.xz");
    name.into()
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
