//! The Debian mirrors that the machine's apt is set up with.
//!
//! They are read, never written down in this crate: a machine behind a company's mirror has its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mirrors of Debian's main archive, without duplicates, in apt's order; `ORT_TRAINING_DEBIAN_MIRROR` first.
pub(crate) fn mirrors() -> Vec<String> {
    let own = std::env::var("ORT_TRAINING_DEBIAN_MIRROR")
        .ok()
        .filter(|mirror| !mirror.is_empty());
    let mut mirrors: Vec<String> = own.into_iter().collect();
    for mirror in mirrors_in(Path::new("/etc/apt")) {
        if !mirrors.contains(&mirror) {
            mirrors.push(mirror);
        }
    }
    mirrors
}

/// The proxy that apt uses for plain HTTP, where it has one of its own.
pub(crate) fn proxy() -> Option<String> {
    let output = Command::new("apt-config")
        .args(["dump", "--format", "%v%n", "Acquire::http::Proxy"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let proxy = text.lines().next()?.trim();
    (proxy.starts_with("http://") || proxy.starts_with("https://")).then(|| proxy.to_owned())
}

fn mirrors_in(apt: &Path) -> Vec<String> {
    let mut files = vec![apt.join("sources.list")];
    let mut parts: Vec<PathBuf> = fs::read_dir(apt.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    parts.sort();
    files.extend(parts);
    let mut found = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => one_line(&text, &mut found),
            Some("sources") => deb822(&text, &mut found),
            _ => {}
        }
    }
    let mut mirrors = Vec::new();
    for Entry {
        uri,
        suites,
        components,
    } in found
    {
        // The security archive and archives of others (with suites and components of their own) have another pool.
        let is_main = components.iter().any(|c| c == "main")
            && suites
                .iter()
                .any(|suite| !suite.contains("-security") && !suite.contains('/'));
        if !is_main {
            continue;
        }
        for uri in resolve(&uri) {
            if !mirrors.contains(&uri) {
                mirrors.push(uri);
            }
        }
    }
    mirrors
}

#[derive(Debug, PartialEq)]
struct Entry {
    uri: String,
    suites: Vec<String>,
    components: Vec<String>,
}

/// `deb [options] uri suite component...`
fn one_line(text: &str, found: &mut Vec<Entry>) {
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        if !matches!(words.next(), Some("deb" | "deb-src")) {
            continue;
        }
        let mut words = words.peekable();
        if words.peek().is_some_and(|word| word.starts_with('[')) {
            while words.next().is_some_and(|word| !word.ends_with(']')) {}
        }
        if let (Some(uri), Some(suite)) = (words.next(), words.next()) {
            found.push(Entry {
                uri: uri.to_owned(),
                suites: vec![suite.to_owned()],
                components: words.map(str::to_owned).collect(),
            });
        }
    }
}

/// Paragraphs of `Field: value`, with continuation lines.
fn deb822(text: &str, found: &mut Vec<Entry>) {
    for paragraph in text.replace("\r\n", "\n").split("\n\n") {
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in paragraph.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = fields.last_mut() {
                    value.push(' ');
                    value.push_str(line.trim());
                }
            } else if let Some((name, value)) = line.split_once(':') {
                fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
        let field = |name: &str| -> Vec<String> {
            fields
                .iter()
                .find(|(field, _)| field == name)
                .map(|(_, value)| value.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default()
        };
        if field("enabled")
            .iter()
            .any(|value| value == "no" || value == "false")
        {
            continue;
        }
        for uri in field("uris") {
            found.push(Entry {
                uri,
                suites: field("suites"),
                components: field("components"),
            });
        }
    }
}

/// Cloud images name a file of mirrors (`mirror+file:/etc/apt/mirrors/debian.list`).
fn resolve(uri: &str) -> Vec<String> {
    if uri.starts_with("http://") || uri.starts_with("https://") {
        return vec![uri.trim_end_matches('/').to_owned()];
    }
    let Some(file) = uri.strip_prefix("mirror+file:") else {
        return Vec::new();
    };
    let path = format!("/{}", file.trim_start_matches('/'));
    fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|uri| uri.starts_with("http"))
        .map(|uri| uri.trim_end_matches('/').to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apt_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let apt = tempfile::tempdir().unwrap();
        fs::create_dir(apt.path().join("sources.list.d")).unwrap();
        for (name, text) in files {
            fs::write(apt.path().join(name), text).unwrap();
        }
        apt
    }

    #[test]
    fn one_line_files_with_options_comments_and_strangers() {
        let apt = apt_with(&[(
            "sources.list",
            "# deb http://off.example/debian bookworm main\n\
             deb [ arch=amd64 signed-by=/x.gpg ] http://one.example/debian/ bookworm main contrib # why\n\
             deb-src http://one.example/debian bookworm main\n\
             deb http://security.example/debian-security bookworm-security main\n\
             deb https://stranger.example/apt stable stranger\n\
             deb https://flat.example/apt ./\n",
        )]);
        assert_eq!(mirrors_in(apt.path()), ["http://one.example/debian"]);
    }

    #[test]
    fn deb822_files_with_continuations_and_disabled_paragraphs() {
        let apt = apt_with(&[(
            "sources.list.d/debian.sources",
            "Types: deb\n# a comment\nURIs: http://two.example/debian\n  http://three.example/debian\n\
             Suites: bookworm bookworm-updates\nComponents: main\n\n\
             Enabled: no\nURIs: http://off.example/debian\nSuites: bookworm\nComponents: main\n\n\
             URIs: http://security.example/debian-security\nSuites: bookworm-security\nComponents: main\n",
        )]);
        assert_eq!(
            mirrors_in(apt.path()),
            ["http://two.example/debian", "http://three.example/debian"]
        );
    }

    #[test]
    fn a_file_of_mirrors() {
        let apt = apt_with(&[("mirrors.list", "http://four.example/debian/ priority:1\n")]);
        let list = apt.path().join("mirrors.list");
        fs::write(
            apt.path().join("sources.list.d/a.sources"),
            format!(
                "URIs: mirror+file:{}\nSuites: trixie\nComponents: main\n",
                list.display()
            ),
        )
        .unwrap();
        assert_eq!(mirrors_in(apt.path()), ["http://four.example/debian"]);
    }

    #[test]
    fn no_apt_names_no_mirror() {
        let nothing = tempfile::tempdir().unwrap();
        assert!(mirrors_in(&nothing.path().join("none")).is_empty());
    }
}
