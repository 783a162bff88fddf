//! The documents that must agree with data: the notices with `sources.toml`, the README with the settings.
#![cfg(feature = "fetch-build")]

#[test]
fn the_committed_notices_are_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../THIRD-PARTY-NOTICES.md");
    let committed = std::fs::read_to_string(path)
        .expect("THIRD-PARTY-NOTICES.md at the root of the repository");
    let made =
        onnxruntime_training_src::notices::markdown().expect("the bundled manifest is well-formed");
    assert_eq!(
        committed, made,
        "run: cargo run -p onnxruntime-training-src --features cli -- notices > THIRD-PARTY-NOTICES.md"
    );
}

#[test]
fn the_readme_lists_every_variable_with_its_meaning() {
    let readme = include_str!("../README.md").replace('`', "");
    for (name, meaning) in onnxruntime_training_src::VARIABLES {
        let line = format!("| {name} | {meaning} |");
        assert!(readme.contains(&line), "not in vendor/README.md: {line}");
    }
}
