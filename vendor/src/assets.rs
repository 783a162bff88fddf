//! What is done with the embedded files.

use std::fs;
use std::path::Path;

use crate::embedded::FILES;
use crate::error::{Error, Result};

/// `(path in the package, content)`, sorted by path.
pub(crate) fn files() -> &'static [(&'static str, &'static [u8])] {
    FILES
}

/// Our own patches (below `patches/`) that one source gets, in order of their names.
pub(crate) fn patches_for(source: &str) -> Vec<(&'static str, &'static [u8])> {
    let folder = format!("patches/{source}/");
    FILES
        .iter()
        .filter(|(name, _)| name.starts_with(&folder) && name.ends_with(".patch"))
        .copied()
        .collect()
}

/// Writes the files below `folder`. A file that is there with the same bytes is left alone, so that its time does
/// not make ninja compile again what has not changed.
pub(crate) fn write_to(folder: &Path) -> Result<()> {
    for (name, content) in FILES {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|old| old == *content) {
            continue;
        }
        let parent = path.parent().expect("below a folder");
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, content))
            .map_err(Error::io(format!("writing {}", path.display())))?;
    }
    Ok(())
}
