//! Wheels, through the machine's own pip, so that its configuration decides which index is asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Failure;
use crate::cache::Cache;
use crate::error::Error;

/// Downloads the wheel `file` of `package` (`name==version`), and hands it to `take`.
pub(crate) fn download(
    cache: &Cache,
    package: &str,
    file: &str,
    take: &dyn Fn(&Path) -> Result<(), Error>,
) -> Result<(), Failure> {
    let Some(python) = python_with_pip(cache) else {
        return Err(Failure::Passed("no Python with pip on this machine".into()));
    };
    let folder = cache
        .downloads()
        .join(format!(".pip.{}.tmp", std::process::id()));
    let result = download_with(&python, package, file, &folder, take);
    let _ = fs::remove_dir_all(&folder);
    result
}

fn download_with(
    python: &Path,
    package: &str,
    file: &str,
    folder: &Path,
    take: &dyn Fn(&Path) -> Result<(), Error>,
) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(Error::io(format!("making {}", folder.display())))?;
    let output = Command::new(python)
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ])
        .args(["--retries", "1", "--timeout", "20", "--dest"])
        .arg(folder)
        .args(tags(file))
        .arg(package)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io(format!("running {}", python.display())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        return Err(Failure::Passed(format!(
            "pip download {package}: {}",
            last.unwrap_or("failed without a word")
        )));
    }
    let wheel = folder.join(file);
    if !wheel.is_file() {
        return Err(Failure::Passed(format!(
            "pip has no file {file} of {package}"
        )));
    }
    take(&wheel).map_err(Failure::Fatal)
}

/// Which Python, ABI and platform pip is to look for, when the wheel `file` is made for one: only the files in it are
/// wanted here, so it need not be this machine's.
fn tags(file: &str) -> Vec<String> {
    let stem = file.strip_suffix(".whl").unwrap_or(file);
    let mut parts = stem.rsplit('-');
    let (Some(platforms), Some(abi), Some(python)) = (parts.next(), parts.next(), parts.next())
    else {
        return Vec::new();
    };
    let Some(version) = python.strip_prefix("cp") else {
        return Vec::new();
    };
    let mut tags = vec![
        "--implementation=cp".to_owned(),
        format!("--python-version={version}"),
        format!("--abi={abi}"),
    ];
    tags.extend(
        platforms
            .split('.')
            .map(|name| format!("--platform={name}")),
    );
    tags
}

fn python_with_pip(cache: &Cache) -> Option<PathBuf> {
    [
        cache.tools().join("bin/python3"),
        "python3".into(),
        "python".into(),
    ]
    .into_iter()
    .find(|python| {
        Command::new(python)
            .args(["-m", "pip", "--version"])
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success())
    })
}

#[cfg(test)]
mod tests {
    use super::tags;

    #[test]
    fn wheels_for_one_python_are_asked_for_as_such() {
        assert_eq!(
            tags("a_b-1.14.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"),
            [
                "--implementation=cp",
                "--python-version=311",
                "--abi=cp311",
                "--platform=manylinux_2_27_x86_64",
                "--platform=manylinux_2_28_x86_64",
            ]
        );
        assert!(tags("a_b-3.4.1-0-py3-none-any.whl").is_empty());
    }
}
