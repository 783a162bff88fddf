//! Applying unified diffs, as `patch -p1 --binary --ignore-whitespace` does with them.
//!
//! ONNX Runtime patches its dependencies when CMake downloads them; given as unpacked folders, they are ours to patch.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

#[derive(Debug)]
struct FilePatch {
    path: String,
    hunks: Vec<Hunk>,
}

#[derive(Debug)]
struct Hunk {
    /// Line of the old file that it begins at, from 1.
    start: usize,
    lines: Vec<Line>,
}

#[derive(Debug)]
enum Line {
    Context(String),
    Removed(String),
    Added(String),
}

/// Applies the patch `text`, called `name` in errors, to the files below `folder`.
pub(crate) fn apply(name: &str, text: &str, folder: &Path) -> Result<()> {
    let fail = |problem: String| Error::Patch {
        patch: name.to_owned(),
        problem,
    };
    let files = parse(text).map_err(fail)?;
    if files.is_empty() {
        return Err(fail("no file in it".into()));
    }
    for file in files {
        let path = folder.join(&file.path);
        let old = match fs::read_to_string(&path) {
            Ok(old) => old,
            // A new file: all its hunks add lines.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file.is_new() => {
                String::new()
            }
            Err(error) => return Err(Error::io(format!("reading {}", path.display()))(error)),
        };
        let new = file.applied(&old).map_err(fail)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .map_err(Error::io(format!("making {}", parent.display())))?;
        }
        fs::write(&path, new).map_err(Error::io(format!("writing {}", path.display())))?;
    }
    Ok(())
}

fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    let mut files: Vec<FilePatch> = Vec::new();
    let mut lines = text.trim_start_matches('\u{feff}').lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(path) = line.strip_prefix("+++ ") {
            let path = path.split('\t').next().unwrap_or(path).trim();
            let path = path.split_once('/').map_or(path, |(_, rest)| rest);
            if path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..")
            {
                return Err(format!("a path out of the folder: {path}"));
            }
            files.push(FilePatch {
                path: path.to_owned(),
                hunks: Vec::new(),
            });
        } else if line.starts_with("@@ -") {
            let (start, old, new) =
                hunk_header(line).ok_or_else(|| format!("not a hunk: {line}"))?;
            let file = files.last_mut().ok_or("a hunk before any file")?;
            let mut hunk = Hunk {
                start,
                lines: Vec::new(),
            };
            let (mut old_left, mut new_left) = (old, new);
            while old_left > 0 || new_left > 0 {
                let line = lines
                    .next()
                    .ok_or_else(|| format!("{}: the patch ends in a hunk", file.path))?;
                let body = line.get(1..).unwrap_or_default().to_owned();
                match line.chars().next() {
                    // Editors that trim line ends leave an empty line for an empty line of context.
                    Some(' ') | None => {
                        hunk.lines.push(Line::Context(body));
                        old_left = old_left.saturating_sub(1);
                        new_left = new_left.saturating_sub(1);
                    }
                    Some('-') => {
                        hunk.lines.push(Line::Removed(body));
                        old_left = old_left.saturating_sub(1);
                    }
                    Some('+') => {
                        hunk.lines.push(Line::Added(body));
                        new_left = new_left.saturating_sub(1);
                    }
                    Some('\\') => {}
                    _ => return Err(format!("{}: not a line of a hunk: {line}", file.path)),
                }
            }
            file.hunks.push(hunk);
        }
    }
    Ok(files)
}

/// `@@ -start,count +start,count @@`; counts of 1 may be left out.
fn hunk_header(line: &str) -> Option<(usize, usize, usize)> {
    let range = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let mut words = line.split_whitespace().skip(1);
    let (start, old) = range(words.next()?.strip_prefix('-')?)?;
    let (_, new) = range(words.next()?.strip_prefix('+')?)?;
    Some((start, old, new))
}

impl FilePatch {
    fn is_new(&self) -> bool {
        self.hunks
            .iter()
            .all(|hunk| hunk.lines.iter().all(|line| matches!(line, Line::Added(_))))
    }

    fn applied(&self, old: &str) -> Result<String, String> {
        let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
        // Files with DOS line ends keep them.
        let ending = if old_lines.first().is_some_and(|line| line.ends_with("\r\n")) {
            "\r\n"
        } else {
            "\n"
        };
        let mut new = String::with_capacity(old.len() + 1024);
        let mut at = 0;
        let mut offset = 0isize;
        for hunk in &self.hunks {
            let wanted: Vec<&str> = hunk
                .lines
                .iter()
                .filter_map(|line| match line {
                    Line::Context(text) | Line::Removed(text) => Some(text.as_str()),
                    Line::Added(_) => None,
                })
                .collect();
            let guess = (hunk.start as isize - 1 + offset).max(at as isize) as usize;
            let found = find(&old_lines, &wanted, at, guess).ok_or_else(|| {
                format!(
                    "{}: the hunk at line {} is not there; expected {:?}",
                    self.path,
                    hunk.start,
                    wanted.first().copied().unwrap_or_default()
                )
            })?;
            offset = found as isize - (hunk.start as isize - 1);
            old_lines[at..found]
                .iter()
                .for_each(|line| new.push_str(line));
            at = found;
            for line in &hunk.lines {
                match line {
                    // The file's own line, whose white space may differ from the patch's.
                    Line::Context(_) => {
                        new.push_str(old_lines[at]);
                        at += 1;
                    }
                    Line::Removed(_) => at += 1,
                    Line::Added(text) => {
                        new.push_str(text.trim_end_matches('\r'));
                        new.push_str(ending);
                    }
                }
            }
        }
        old_lines[at..].iter().for_each(|line| new.push_str(line));
        Ok(new)
    }
}

/// The place nearest to `guess`, not before `from`, where the lines are the wanted ones but for white space.
fn find(lines: &[&str], wanted: &[&str], from: usize, guess: usize) -> Option<usize> {
    let last = lines.len().checked_sub(wanted.len())?;
    let fits = |at: usize| {
        wanted
            .iter()
            .zip(&lines[at..])
            .all(|(wanted, line)| same_words(wanted, line))
    };
    if wanted.is_empty() {
        return Some(guess.min(lines.len()));
    }
    let mut places: Vec<usize> = (from..=last).collect();
    places.sort_by_key(|place| place.abs_diff(guess));
    places.into_iter().find(|place| fits(*place))
}

fn same_words(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
