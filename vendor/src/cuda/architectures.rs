//! The GPUs to compile for.

use std::process::{Command, Stdio};

use super::probe::Version;
use crate::error::{Error, Result};

pub(super) const VARIABLE: &str = "ORT_TRAINING_CUDA_ARCHITECTURES";

/// The common ones that a toolkit compiles for, from Volta or Turing on; the last also as PTX, which newer GPUs translate.
fn common(cuda: Version) -> &'static str {
    if cuda >= Version(13, 0, 0) {
        "75-real;80-real;86-real;89-real;90-real;120"
    } else if cuda >= Version(12, 8, 0) {
        "70-real;75-real;80-real;86-real;89-real;90-real;120"
    } else {
        "70-real;75-real;80-real;86-real;89-real;90"
    }
}

/// What CMake is told. `wanted` is the user's list, `supported` what the toolkit's `nvcc --list-gpu-arch` names, or nothing
/// when it does not say.
pub(super) fn resolve(
    wanted: Option<&str>,
    cuda: Version,
    supported: &[u32],
    native: impl FnOnce() -> std::result::Result<Vec<u32>, String>,
) -> Result<String> {
    let Some(wanted) = wanted else {
        return Ok(common(cuda).to_owned());
    };
    let wrong = |found: String, expected: &str| Error::Setting {
        name: VARIABLE.into(),
        expected: expected.into(),
        found,
    };
    let native_wanted = wanted == "native";
    let list = if native_wanted {
        let mut numbers = native().map_err(|found| {
            wrong(
                found,
                "numbers such as 90 or 80;90 on a machine without a GPU, since `native` asks the GPU",
            )
        })?;
        numbers.sort_unstable();
        numbers.dedup();
        numbers
            .iter()
            .map(|number| format!("{number}-real"))
            .collect::<Vec<_>>()
    } else {
        wanted
            .split([';', ','])
            .map(|item| item.trim().to_owned())
            .collect()
    };
    for item in &list {
        let digits = item.trim_end_matches("-real").trim_end_matches("-virtual");
        let number = digits
            .trim_end_matches(['a', 'f'])
            .parse::<u32>()
            .ok()
            .filter(|number| (10..1000).contains(number));
        let Some(number) = number else {
            return Err(wrong(
                item.clone(),
                "compute capabilities without the dot, such as 90 or 80;90, or native",
            ));
        };
        if !supported.is_empty() && !supported.contains(&number) {
            let known: Vec<String> = supported.iter().map(u32::to_string).collect();
            return Err(wrong(
                number.to_string(),
                &format!("one that CUDA {cuda} compiles for: {}", known.join(", ")),
            ));
        }
    }
    Ok(list.join(";"))
}

/// The architectures that a toolkit names.
pub(super) fn supported(nvcc: &std::path::Path) -> Vec<u32> {
    let Ok(output) = Command::new(nvcc)
        .arg("--list-gpu-arch")
        .stdin(Stdio::null())
        .output()
    else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.trim().strip_prefix("compute_")?.parse().ok())
        .collect()
}

/// The compute capabilities of this machine's GPUs, or why they are not known.
pub(super) fn native() -> std::result::Result<Vec<u32>, String> {
    let output = Command::new("nvidia-smi")
        .args(["--query-gpu=compute_cap", "--format=csv,noheader"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("native, and nvidia-smi does not run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u32> = text
        .lines()
        .filter_map(|line| line.trim().replace('.', "").parse().ok())
        .collect();
    if numbers.is_empty() {
        return Err(format!("native, and nvidia-smi says: {}", text.trim()));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUDA_13: Version = Version(13, 0, 88);

    fn list(wanted: &str) -> Result<String> {
        resolve(Some(wanted), CUDA_13, &[75, 80, 90], || {
            Ok(vec![90, 80, 90])
        })
    }

    #[test]
    fn the_default_goes_by_the_toolkit() {
        let of = |cuda| resolve(None, cuda, &[], native).unwrap();
        assert!(of(Version(12, 4, 0)).starts_with("70-real;"));
        assert!(of(Version(12, 4, 0)).ends_with(";90"));
        assert!(of(Version(12, 8, 0)).ends_with(";120"));
        assert!(of(CUDA_13).starts_with("75-real;"), "13 dropped Volta");
    }

    #[test]
    fn lists_are_taken_as_cmake_takes_them() {
        assert_eq!(list("90").unwrap(), "90");
        assert_eq!(list("80-real, 90a").unwrap(), "80-real;90a");
        assert_eq!(list("native").unwrap(), "80-real;90-real");
    }

    #[test]
    fn what_is_none_is_named() {
        for (wanted, words) in [
            ("9.0", "9.0"),
            ("sm_90", "sm_90"),
            ("", "compute capabilities"),
            ("70", "75, 80, 90"),
        ] {
            let error = list(wanted).unwrap_err().to_string();
            assert!(error.contains(words), "{wanted:?}: {error}");
        }
        let error = resolve(
            Some("native"),
            CUDA_13,
            &[],
            || Err("native, no GPU".into()),
        );
        assert!(error.unwrap_err().to_string().contains("no GPU"));
    }
}
