//! Files that appear whole or not at all.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Lets `write` fill a file beside `path`, brings it to the disk and gives it its name.
pub fn write_whole(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let mut file = tempfile::Builder::new()
        .prefix(".ort-training-")
        .tempfile_in(folder_of(path))
        .with_context(what)?;
    write(file.as_file_mut()).with_context(what)?;
    file.as_file().sync_all().with_context(what)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are for their owner alone; results are like other files.
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644))
            .with_context(what)?;
    }
    file.persist(path).with_context(what)?;
    Ok(())
}

/// The folder that a file lies in.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Says early, before the work whose result is to go there, that a file could not be written.
pub fn check_writable(option: &str, path: &Path) -> Result<()> {
    let folder = folder_of(path);
    if !folder.is_dir() {
        bail!(
            "{option} {}: expected a path in a folder that exists; there is no folder {}",
            path.display(),
            folder.display()
        );
    }
    if path.is_dir() {
        bail!(
            "{option} {}: expected a path of a file, found a folder",
            path.display()
        );
    }
    tempfile::Builder::new()
        .prefix(".ort-training-")
        .tempfile_in(&folder)
        .with_context(|| format!("{option} {}", path.display()))?;
    Ok(())
}
