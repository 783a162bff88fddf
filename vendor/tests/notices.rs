//! `THIRD-PARTY-NOTICES.md` at the root of the repository is what `sources.toml` makes it.
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
