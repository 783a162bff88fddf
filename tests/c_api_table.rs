//! docs/c-api.md says where each function of the C API went. It is held against the header of the install in use, so
//! that a new release of ONNX Runtime cannot bring a function that nobody noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::fs;
use std::path::{Path, PathBuf};

struct Row {
    items: Vec<String>,
    tests: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rows of the first table of docs/c-api.md: function, Rust items, tests; each name in backquotes.
fn table() -> BTreeMap<String, Row> {
    let text = fs::read_to_string(root().join("docs/c-api.md")).expect("docs/c-api.md");
    let names = |cell: &str| {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 3, "a row with other than three cells: {line}");
        let function = names(cells[0]).pop().expect("a function's name");
        let row = Row {
            items: names(cells[1]),
            tests: names(cells[2]),
        };
        assert!(
            rows.insert(function.clone(), row).is_none(),
            "{function} has two rows"
        );
    }
    rows
}

/// The functions of `struct OrtTrainingApi`, from the header's text.
fn header_functions() -> BTreeSet<String> {
    let header = fs::read_to_string(ort_training_parity::TRAINING_HEADER).expect("the header");
    let start = header
        .find("struct OrtTrainingApi {")
        .expect("struct OrtTrainingApi");
    let end = start + header[start..].find("\n};").expect("its end");
    let mut code = header[start..end].to_owned();
    while let Some(open) = code.find("/*") {
        let close = open + code[open..].find("*/").expect("a comment's end") + 2;
        code.replace_range(open..close, "");
    }
    let code: String = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let mut functions = BTreeSet::new();
    for (macro_name, prefix) in [("ORT_API2_STATUS(", ""), ("ORT_CLASS_RELEASE(", "Release")] {
        for (at, _) in code.match_indices(macro_name) {
            let name: String = code[at + macro_name.len()..]
                .chars()
                .skip_while(|c| c.is_whitespace())
                .take_while(|c| c.is_alphanumeric())
                .collect();
            functions.insert(format!("{prefix}{name}"));
        }
    }
    // A function declared in a form that this doesn't know would make the struct larger than what was found.
    let size = size_of::<ort_training_sys::OrtTrainingApi>() / size_of::<*const c_void>();
    assert_eq!(
        functions.len(),
        size,
        "functions found in the header, and function pointers in the struct"
    );
    functions
}

fn rust_sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(rust_sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_function_of_the_header_has_a_row() {
    let rows: BTreeSet<String> = table().into_keys().collect();
    let functions = header_functions();
    let missing: Vec<_> = functions.difference(&rows).collect();
    let surplus: Vec<_> = rows.difference(&functions).collect();
    assert!(
        missing.is_empty(),
        "in the header, not in docs/c-api.md: {missing:?}"
    );
    assert!(
        surplus.is_empty(),
        "in docs/c-api.md, not in the header: {surplus:?}"
    );
}

#[test]
fn every_named_test_exists() {
    let mut tests = BTreeSet::new();
    for file in fs::read_dir(root().join("tests")).expect("tests") {
        let path = file.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a test file");
        let file = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        for (at, _) in text.match_indices("#[test]\n") {
            let name = text[at..]
                .split("fn ")
                .nth(1)
                .and_then(|rest| rest.split('(').next());
            tests.insert(format!("{file}::{}", name.expect("a test's name")));
        }
    }
    for (function, row) in table() {
        assert!(!row.tests.is_empty(), "{function} names no test");
        for test in row.tests {
            assert!(
                tests.contains(&test),
                "{function} names the test {test}, which isn't in tests/; there are {tests:?}"
            );
        }
    }
}

#[test]
fn every_named_item_exists() {
    let sources: String = rust_sources(&root().join("ort-training/src"))
        .iter()
        .map(|path| fs::read_to_string(path).expect("a source file"))
        .collect();
    for (function, row) in table() {
        assert!(!row.items.is_empty(), "{function} names no Rust item");
        for item in row.items {
            let declared = match item.rsplit_once("::") {
                Some((_, method)) => ["(", "<"]
                    .iter()
                    .any(|end| sources.contains(&format!("fn {method}{end}"))),
                None => match item.strip_suffix("()") {
                    Some(function) => sources.contains(&format!("pub fn {function}(")),
                    // A release function is called when the value of this type is dropped.
                    None => sources.contains(&format!("pub struct {item} ")),
                },
            };
            assert!(
                declared,
                "{function} names {item}, which ort-training/src doesn't declare"
            );
        }
    }
}
