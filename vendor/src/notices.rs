//! The notices of third-party software, made from `sources.toml`.

use std::fmt::Write as _;

use crate::error::Result;
use crate::manifest::Manifest;

/// The content of `THIRD-PARTY-NOTICES.md`.
///
/// # Errors
/// When the bundled manifest is malformed.
pub fn markdown() -> Result<String> {
    let manifest = Manifest::bundled()?;
    let mut text = String::from(
        "# Third-party notices\n\n\
         This repository has no source code of others in it. A build from source downloads the following, compiles it\n\
         into `libonnxruntime.so`, and puts the licence texts into the install's `share/licenses/`. ONNX Runtime's own\n\
         `ThirdPartyNotices.txt`, which lists more than what such a build contains, is there too.\n\n\
         This file is made by `onnxruntime-training-src notices` from `vendor/sources.toml`.\n\n\
         | software | version | licence | what for |\n|---|---|---|---|\n",
    );
    for source in manifest.sources() {
        let mut versions = vec![source.version.clone()];
        for version in source
            .origins
            .iter()
            .filter_map(|origin| origin.version.clone())
        {
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        let when = match &source.feature {
            Some(feature) => format!(" (only with the feature `{feature}`)"),
            None => String::new(),
        };
        writeln!(
            text,
            "| [{}]({}) | {} | {} | {}{when} |",
            source.name,
            source.homepage,
            versions.join(" or "),
            source.licence,
            source.used_for
        )
        .expect("writing to a string");
    }
    Ok(text)
}
