use super::*;

/// An install as small as one can be, in a folder with a key's name; and a cache of its own.
struct Fake(tempfile::TempDir);

const KEY: &str = "onnxruntime-1.21.0-0123456789abcdef";

impl Fake {
    fn new() -> Self {
        let fake = Fake(tempfile::tempdir().unwrap());
        let include = "include/onnxruntime/";
        fake.write(
            &format!("{include}onnxruntime_c_api.h"),
            b"#define ORT_API_VERSION 21\n",
        );
        fake.write(&format!("{include}onnxruntime_training_c_api.h"), b"// x\n");
        fake.write(
            "BUILD-INFO.toml",
            b"version = \"1.21.0\"\nfeatures = [\"training\"]\n",
        );
        fake.elf(62);
        for (link, to) in [
            ("libonnxruntime.so.1", "libonnxruntime.so.1.21.0"),
            ("libonnxruntime.so", "libonnxruntime.so.1"),
        ] {
            std::os::unix::fs::symlink(to, fake.root().join("lib").join(link)).unwrap();
        }
        fake
    }

    fn root(&self) -> PathBuf {
        self.0.path().join(KEY)
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn elf(&self, machine: u8) {
        let mut bytes = vec![0u8; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16] = 3;
        bytes[18] = machine;
        bytes[40] = 64;
        self.write("lib/libonnxruntime.so.1.21.0", &bytes);
    }

    fn packed(&self) -> PathBuf {
        let archive = self.0.path().join("packed.tar.xz");
        pack(&self.root(), &archive).unwrap();
        archive
    }

    fn cache(&self) -> Cache {
        Cache::new(self.0.path().join("cache")).unwrap()
    }

    #[track_caller]
    fn refused(&self, archive: &Path, words: &[&str]) {
        let error = unpack(archive, &self.cache()).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
        let left = fs::read_dir(self.cache().root().join("install"));
        assert_eq!(
            left.map_or(0, Iterator::count),
            0,
            "something was left behind"
        );
    }

    /// The archive with its entries changed by `change`, which may drop them.
    fn changed(
        &self,
        change: impl Fn(&str, &mut tar::Header, &mut Vec<u8>) -> Option<String>,
    ) -> PathBuf {
        let mut from = tar::Archive::new(XzDecoder::new(File::open(self.packed()).unwrap()));
        let path = self.0.path().join("changed.tar.xz");
        let mut to = tar::Builder::new(XzEncoder::new(File::create(&path).unwrap(), 1));
        for entry in from.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let (mut header, mut data) = (entry.header().clone(), Vec::new());
            entry.read_to_end(&mut data).unwrap();
            let Some(name) = change(&name, &mut header, &mut data) else {
                continue;
            };
            header.set_size(data.len() as u64);
            // Past what the tar crate lets through.
            let bytes = &mut header.as_mut_bytes()[..100];
            bytes.fill(0);
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            to.append(&header, data.as_slice()).unwrap();
        }
        to.into_inner().unwrap().finish().unwrap();
        path
    }
}

fn keep(name: &str) -> Option<String> {
    Some(name.to_owned())
}

#[cfg(target_arch = "x86_64")]
#[test]
fn what_was_packed_is_what_is_unpacked() {
    let fake = Fake::new();
    let install = unpack(&fake.packed(), &fake.cache()).unwrap();
    assert_eq!(install.root, fake.cache().install(KEY));
    assert_eq!(install.version, "1.21.0");
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    list(&fake.root(), Path::new(""), &mut before).unwrap();
    list(&install.root, Path::new(""), &mut after).unwrap();
    assert_eq!(before.len(), 6);
    // The archive's list is not part of the install.
    assert_eq!(before, after);
    // Again: it is there.
    assert_eq!(unpack(&fake.packed(), &fake.cache()).unwrap(), install);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_same_install_is_the_same_archive() {
    let fake = Fake::new();
    let first = fs::read(fake.packed()).unwrap();
    assert_eq!(first, fs::read(fake.packed()).unwrap());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_damaged_archive_installs_nothing() {
    let fake = Fake::new();
    let whole = fs::read(fake.packed()).unwrap();
    let cut = fake.0.path().join("cut.tar.xz");
    for length in [0, 10, whole.len() / 2, whole.len() - 1] {
        fs::write(&cut, &whole[..length]).unwrap();
        fake.refused(&cut, &["cut.tar.xz"]);
    }
    fs::write(&cut, b"something else").unwrap();
    fake.refused(&cut, &["no whole .tar.xz"]);
    fake.refused(&fake.0.path().join("absent.tar.xz"), &["absent.tar.xz"]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn what_is_not_as_listed_is_named() {
    let fake = Fake::new();
    let tampered = fake.changed(|name, _, data| {
        if name.ends_with("BUILD-INFO.toml") {
            data.push(b'#');
        }
        keep(name)
    });
    fake.refused(&tampered, &["BUILD-INFO.toml", "expected sha256"]);
    let lacking = fake.changed(|name, _, _| (!name.ends_with(".toml")).then(|| name.to_owned()));
    fake.refused(&lacking, &["BUILD-INFO.toml", "is not in the archive"]);
    let unlisted = fake.changed(|name, _, data| {
        if name.ends_with(SUMS) {
            let text = String::from_utf8(std::mem::take(data)).unwrap();
            let lines = text.lines().filter(|line| !line.ends_with(".toml"));
            *data = lines.collect::<Vec<_>>().join("\n").into_bytes();
        }
        keep(name)
    });
    fake.refused(&unlisted, &["BUILD-INFO.toml is not in SHA256SUMS"]);
    let no_list = fake.changed(|name, _, _| (!name.ends_with(SUMS)).then(|| name.to_owned()));
    fake.refused(&no_list, &["expected SHA256SUMS"]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn nothing_is_written_outside() {
    let fake = Fake::new();
    for evil in [
        format!("{KEY}/../../evil"),
        "/tmp/evil".into(),
        "onnxruntime-x".into(),
    ] {
        let moved = fake.changed(|name, _, _| {
            Some(if name.ends_with(".toml") {
                evil.clone()
            } else {
                name.to_owned()
            })
        });
        fake.refused(&moved, &["expected paths such as"]);
    }
    let link = fake.changed(|name, header, _| {
        if name.ends_with("libonnxruntime.so.1") {
            header.set_link_name("../../../evil").unwrap();
        }
        keep(name)
    });
    fake.refused(&link, &["libonnxruntime.so.1", "evil"]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn another_architecture_is_refused() {
    let fake = Fake::new();
    let other = fake.changed(|name, _, data| {
        if name.ends_with(".so.1.21.0") {
            data[18] = 183;
        } else if name.ends_with(SUMS) {
            // The right sum of the other library.
            let mut library = fs::read(fake.root().join("lib/libonnxruntime.so.1.21.0")).unwrap();
            let old = hex(&Sha256::digest(&library));
            library[18] = 183;
            let text = String::from_utf8(std::mem::take(data)).unwrap();
            *data = text
                .replace(&old, &hex(&Sha256::digest(&library)))
                .into_bytes();
        }
        keep(name)
    });
    fake.refused(&other, &["aarch64", "x86_64"]);
}
