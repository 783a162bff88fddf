use super::*;

#[test]
fn the_bundled_manifest_pins_everything() {
    let manifest = Manifest::bundled().unwrap();
    assert_eq!(manifest.onnxruntime().version, "1.21.0");
    for source in manifest.sources() {
        assert!(
            !source.licence.is_empty() && source.homepage.starts_with("https://"),
            "{}",
            source.name
        );
        let upstream = source
            .origins
            .iter()
            .filter(|o| o.kind == OriginKind::Upstream);
        assert_eq!(upstream.count(), 1, "{}", source.name);
        if source.feature.is_none() {
            assert!(
                source.origins.len() > 1,
                "{} has one origin only",
                source.name
            );
        }
        for origin in &source.origins {
            if let Some(url) = &origin.url {
                assert!(url.starts_with("https://"), "{url}");
            }
        }
    }
    let mut files: Vec<_> = manifest
        .sources()
        .iter()
        .flat_map(|s| &s.origins)
        .map(|o| &o.file)
        .collect();
    let all = files.len();
    files.sort();
    files.dedup();
    assert_eq!(files.len(), all, "two origins with one file name");
}

#[test]
fn no_mirror_is_written_down() {
    let manifest = Manifest::bundled().unwrap();
    for origin in manifest.sources().iter().flat_map(|s| &s.origins) {
        if origin.kind != OriginKind::Upstream {
            assert_eq!(origin.url, None);
        }
    }
}

#[test]
fn features_decide_what_is_needed() {
    let manifest = Manifest::bundled().unwrap();
    let names = |cuda| {
        let features = Features {
            cuda,
            ..Features::default()
        };
        manifest
            .needed(&features)
            .map(|s| s.name.clone())
            .collect::<Vec<_>>()
    };
    assert!(!names(false).contains(&"cutlass".to_owned()));
    assert!(names(true).contains(&"cutlass".to_owned()));
    assert!(names(false).contains(&"protobuf".to_owned()));
}

fn problem(origin: &str) -> String {
    let text = format!(
        "[[source]]\nname = \"onnxruntime\"\nversion = \"1\"\nlicence = \"MIT\"\nhomepage = \"h\"\nuse = \"u\"\n\
         [[source.origin]]\nfile = \"f\"\n{origin}"
    );
    Manifest::parse(&text).unwrap_err().to_string()
}

#[test]
fn bad_manifests_are_refused_by_name() {
    let hash = format!("sha256 = \"{}\"\n", "0".repeat(64));
    for (origin, says) in [
        (
            "kind = \"upstream\"\nurl = \"u\"\n".to_owned(),
            "expected one of sha256 and sha512",
        ),
        (
            "kind = \"upstream\"\nurl = \"u\"\nsha256 = \"12\"\n".to_owned(),
            "is not a hash",
        ),
        (format!("kind = \"upstream\"\n{hash}"), "no url"),
        (format!("kind = \"debian\"\nurl = \"u\"\n{hash}"), "no pool"),
        (format!("kind = \"pypi\"\n{hash}"), "no package"),
        (
            format!("kind = \"folder\"\n{hash}"),
            "a folder is no origin",
        ),
        (format!("kind = \"floppy\"\n{hash}"), "floppy"),
    ] {
        let text = problem(&origin);
        assert!(
            text.starts_with("sources.toml: ") && text.contains(says),
            "{says}: {text}"
        );
    }
    assert!(
        Manifest::parse("source = []")
            .unwrap_err()
            .to_string()
            .contains("no source \"onnxruntime\"")
    );
}
