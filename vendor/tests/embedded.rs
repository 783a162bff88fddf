//! The embedded files: all of them.

#[path = "../src/embedded.rs"]
mod embedded;

use std::fs;
use std::path::Path;

#[test]
fn no_file_is_forgotten() {
    fn collect(folder: &Path, root: &Path, names: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, root, names);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                names.push(name.to_owned());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in ["cmake", "cuda", "patches", "reduced", "shim"] {
        collect(&root.join(folder), root, &mut found);
    }
    found.sort();
    let embedded: Vec<_> = embedded::FILES.iter().map(|(name, _)| *name).collect();
    assert_eq!(embedded, found);
}
