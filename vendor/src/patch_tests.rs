use super::*;

fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

const PATCH: &str = "diff --git a/src/a.h b/src/a.h\nindex 1..2 100644\n--- a/src/a.h\n+++ b/src/a.h\n\
@@ -2,3 +2,4 @@ somewhere\n two\n-three\n+THREE\n+and more\n four\n";

#[test]
fn a_hunk_is_applied_where_it_fits() {
    let dir = folder_with(&[("src/a.h", "one\ntwo\nthree\nfour\nfive\n")]);
    apply("p", PATCH, dir.path()).unwrap();
    let read = || fs::read_to_string(dir.path().join("src/a.h")).unwrap();
    assert_eq!(read(), "one\ntwo\nTHREE\nand more\nfour\nfive\n");
    // Three lines further down than the patch says.
    fs::write(dir.path().join("src/a.h"), "0\n0\n0\none\ntwo\nthree\nfour").unwrap();
    apply("p", PATCH, dir.path()).unwrap();
    assert_eq!(read(), "0\n0\n0\none\ntwo\nTHREE\nand more\nfour");
}

#[test]
fn the_nearest_of_two_places_is_taken() {
    let dir = folder_with(&[(
        "src/a.h",
        "two\nthree\nfour\n\n\n\n\n\n\n\ntwo\nthree\nfour\n",
    )]);
    apply("p", PATCH, dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join("src/a.h")).unwrap();
    assert!(
        text.starts_with("two\nTHREE\n") && text.ends_with("two\nthree\nfour\n"),
        "{text}"
    );
}

#[test]
fn white_space_line_ends_and_byte_order_marks_do_not_matter() {
    let dir = folder_with(&[("src/a.h", "one\r\n  two\r\nthree \r\nfour\r\n")]);
    apply("p", &format!("\u{feff}{PATCH}"), dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join("src/a.h")).unwrap();
    assert_eq!(text, "one\r\n  two\r\nTHREE\r\nand more\r\nfour\r\n");
}

#[test]
fn empty_lines_of_context_may_have_lost_their_space() {
    let dir = folder_with(&[("a", "x\n\ny\n")]);
    apply(
        "p",
        "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n x\n\n-y\n+z\n",
        dir.path(),
    )
    .unwrap();
    assert_eq!(
        fs::read_to_string(dir.path().join("a")).unwrap(),
        "x\n\nz\n"
    );
}

#[test]
fn a_new_file_is_made() {
    let dir = folder_with(&[]);
    apply(
        "p",
        "--- /dev/null\n+++ b/new/a\n@@ -0,0 +1,2 @@\n+x\n+y\n",
        dir.path(),
    )
    .unwrap();
    assert_eq!(
        fs::read_to_string(dir.path().join("new/a")).unwrap(),
        "x\ny\n"
    );
}

#[test]
fn what_does_not_fit_is_named_and_changes_nothing() {
    let content = "one\ntwo\nTHREE\nfour\n";
    let dir = folder_with(&[("src/a.h", content)]);
    let text = apply("protobuf.patch", PATCH, dir.path())
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("protobuf.patch") && text.contains("src/a.h: the hunk at line 2"),
        "{text}"
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("src/a.h")).unwrap(),
        content
    );
}

#[test]
fn bad_patches_are_refused() {
    let dir = folder_with(&[("a", "x\n")]);
    for (patch, says) in [
        ("no patch at all\n", "no file in it"),
        ("--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n x\n", "ends in a hunk"),
        (
            "--- a/a\n+++ b/../a\n@@ -1 +1 @@\n-x\n+y\n",
            "a path out of the folder",
        ),
        ("@@ -1 +1 @@\n-x\n+y\n", "a hunk before any file"),
        ("--- a/a\n+++ b/a\n@@ -x +1 @@\n", "not a hunk"),
        (
            "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n x\n?y\n",
            "not a line of a hunk",
        ),
    ] {
        let text = apply("p", patch, dir.path()).unwrap_err().to_string();
        assert!(text.contains(says), "{says}: {text}");
    }
}
