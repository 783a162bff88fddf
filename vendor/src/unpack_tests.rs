use std::io::Write as _;

use super::*;

fn tar_gz(dir: &Path, entries: &[(&str, &str)]) -> PathBuf {
    let path = dir.join("a.tar.gz");
    let gz =
        flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(gz);
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(if name.ends_with(".sh") { 0o755 } else { 0o644 });
        header.set_mtime(1_000_000_000);
        if let Some(link) = content.strip_prefix("-> ") {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            builder.append_link(&mut header, name, link).unwrap();
        } else {
            header.set_size(content.len() as u64);
            // Written by hand: the crate refuses to write the paths that must be refused when read.
            let bytes = name.as_bytes();
            header.as_old_mut().name[..bytes.len()].copy_from_slice(bytes);
            header.set_cksum();
            builder.append(&header, content.as_bytes()).unwrap();
        }
    }
    builder.into_inner().unwrap().finish().unwrap();
    path
}

fn layout<'a>(licence_files: &'a [String], only: &'a [String]) -> Layout<'a> {
    Layout {
        strip: 1,
        subfolder: None,
        only,
        licence_files,
        licences_in_archive: false,
    }
}

fn listing(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                names.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    names.sort();
    names
}

#[test]
fn folders_are_stripped_and_licences_kept() {
    let dir = tempfile::tempdir().unwrap();
    let archive = tar_gz(
        dir.path(),
        &[
            ("x-1/LICENSE", "mine"),
            ("x-1/src/a.cc", "int a;"),
            ("x-1/run.sh", "#!"),
            ("x-1/src/l", "-> a.cc"),
        ],
    );
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    unpack(&archive, layout(&["LICENSE".into()], &[]), &out).unwrap();
    assert_eq!(
        listing(&out),
        [
            ".licences/LICENSE",
            "LICENSE",
            "run.sh",
            "src/a.cc",
            "src/l"
        ]
    );
    assert_eq!(fs::read_to_string(out.join("src/l")).unwrap(), "int a;");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        fs::metadata(out.join("run.sh"))
            .unwrap()
            .permissions()
            .mode()
            & 0o111,
        0o111
    );
    let time = fs::metadata(out.join("src/a.cc"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(
        time.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs(),
        1_000_000_000
    );
}

#[test]
fn only_the_wanted_part_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let archive = tar_gz(
        dir.path(),
        &[
            ("x/inc/boost/mp11.hpp", "1"),
            ("x/inc/boost/mp11/a.hpp", "2"),
            ("x/inc/boost/any.hpp", "3"),
            ("x/doc", "4"),
        ],
    );
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let only = ["boost/mp11".to_owned(), "boost/mp11.hpp".to_owned()];
    unpack(
        &archive,
        Layout {
            subfolder: Some("inc"),
            ..layout(&[], &only)
        },
        &out,
    )
    .unwrap();
    assert_eq!(listing(&out), ["boost/mp11.hpp", "boost/mp11/a.hpp"]);
}

#[test]
fn paths_and_links_out_of_the_archive_are_refused() {
    for entry in [
        ("x/../../evil", "1"),
        ("/etc/evil", "1"),
        ("x/l", "-> ../../evil"),
        ("x/l", "-> /etc/passwd"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let archive = tar_gz(dir.path(), &[entry]);
        let out = dir.path().join("out");
        fs::create_dir(&out).unwrap();
        let text = unpack(&archive, layout(&[], &[]), &out)
            .unwrap_err()
            .to_string();
        assert!(text.contains("out of the archive"), "{entry:?}: {text}");
        assert!(listing(dir.path()).iter().all(|name| name == "a.tar.gz"));
    }
}

#[test]
fn debian_packages_and_zip_archives_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let data = fs::read(tar_gz(
        dir.path(),
        &[("usr/include/a.hpp", "1"), ("usr/share/doc/copyright", "c")],
    ))
    .unwrap();
    let deb = dir.path().join("a.deb");
    let mut file = File::create(&deb).unwrap();
    file.write_all(b"!<arch>\n").unwrap();
    for (name, content) in [("debian-binary", &b"2.0"[..]), ("data.tar.gz", &data)] {
        writeln!(
            file,
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`",
            0,
            0,
            0,
            100644,
            content.len()
        )
        .unwrap();
        file.write_all(content).unwrap();
        if content.len() % 2 == 1 {
            file.write_all(b"\n").unwrap();
        }
    }
    drop(file);
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let licences = ["usr/share/doc/copyright".to_owned()];
    let wanted = Layout {
        strip: 0,
        subfolder: Some("usr/include"),
        licences_in_archive: true,
        ..layout(&licences, &[])
    };
    unpack(&deb, wanted, &out).unwrap();
    assert_eq!(listing(&out), [".licences/copyright", "a.hpp"]);

    let zip = dir.path().join("a.zip");
    let mut writer = zip::ZipWriter::new(File::create(&zip).unwrap());
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    writer.start_file("x-1/b.h", options).unwrap();
    writer.write_all(b"2").unwrap();
    writer.finish().unwrap();
    let out = dir.path().join("out2");
    fs::create_dir(&out).unwrap();
    unpack(&zip, layout(&[], &[]), &out).unwrap();
    assert_eq!(listing(&out), ["b.h"]);
}

#[test]
fn damaged_and_empty_archives_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    for name in ["a.tar.xz", "b.zip", "c.deb", "d.rar"] {
        let path = dir.path().join(name);
        fs::write(&path, "this is no archive, of whatever kind").unwrap();
        let text = unpack(&path, layout(&[], &[]), &out)
            .unwrap_err()
            .to_string();
        assert!(
            text.starts_with(&format!("cannot unpack {}", path.display())),
            "{text}"
        );
    }
    let archive = tar_gz(dir.path(), &[("x/a", "1")]);
    let elsewhere = Layout {
        subfolder: Some("b"),
        ..layout(&[], &[])
    };
    let text = unpack(&archive, elsewhere, &out).unwrap_err().to_string();
    assert!(
        text.contains("nothing in it is where sources.toml says"),
        "{text}"
    );
}
