use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Mutex;

use super::*;
use crate::manifest::Manifest;

const CONTENT: &[u8] = b"the archive's bytes";

fn sha256(content: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(content)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// Serves `content` for every path below `/good/`, 404 for others, and counts requests.
fn server(content: &'static [u8]) -> (String, std::sync::Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = std::sync::Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                request.push(byte[0]);
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let found = path.starts_with("/good/");
            seen.lock().unwrap().push(path);
            let (status, body) = if found {
                ("200 OK", content)
            } else {
                ("404 Not Found", &b""[..])
            };
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(body);
        }
    });
    (address, requests)
}

/// An address that nobody listens at.
fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn source(urls: &[String]) -> Source {
    let mut text = String::from(
        "[[source]]\nname = \"onnxruntime\"\nversion = \"1\"\nlicence = \"MIT\"\nhomepage = \"h\"\nuse = \"u\"\n",
    );
    for (index, url) in urls.iter().enumerate() {
        text.push_str(&format!(
            "[[source.origin]]\nkind = \"upstream\"\nurl = \"{url}\"\nfile = \"a{index}.tar.gz\"\nsha256 = \"{}\"\n",
            sha256(CONTENT)
        ));
    }
    Manifest::parse(&text).unwrap().sources()[0].clone()
}

struct Run {
    dir: tempfile::TempDir,
    notes: Mutex<Vec<String>>,
}

impl Run {
    fn new() -> Self {
        Run {
            dir: tempfile::tempdir().unwrap(),
            notes: Mutex::default(),
        }
    }

    fn fetch(&self, folder: Option<&Path>, sources: &[Source]) -> Vec<Result<Archive>> {
        let progress = |event: Event| {
            if let Event::Note(note) = event {
                self.notes.lock().unwrap().push(note);
            }
        };
        let cache = Cache::new(self.dir.path()).unwrap();
        let kinds = OriginKind::ALL.to_vec();
        let fetcher = Fetcher::new(cache, folder.map(Path::to_owned), kinds, &progress);
        sources.iter().map(|source| fetcher.fetch(source)).collect()
    }

    fn downloads(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.dir.path().join("downloads"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn a_closed_port_and_a_404_are_passed_over_with_a_line_each() {
    let run = Run::new();
    let (address, _) = server(CONTENT);
    let source = source(&[
        format!("{}/good/a", closed_port()),
        format!("{address}/missing/a"),
        format!("{address}/good/a"),
    ]);
    let archive = run.fetch(None, &[source]).remove(0).unwrap();
    assert_eq!(fs::read(&archive.path).unwrap(), CONTENT);
    assert_eq!(run.downloads(), ["a2.tar.gz"]);
    let notes = run.notes.lock().unwrap();
    assert!(
        notes[0].starts_with("passed over upstream: 127.0.0.1:"),
        "{notes:?}"
    );
    assert!(notes[1].contains("answered 404"), "{notes:?}");
}

#[test]
fn a_dead_host_is_asked_once_and_said_once() {
    let run = Run::new();
    let dead = closed_port();
    let results = run.fetch(
        None,
        &[
            source(&[format!("{dead}/a")]),
            source(&[format!("{dead}/b")]),
        ],
    );
    for result in results {
        let text = result.unwrap_err().to_string();
        assert!(
            text.contains("no origin has the source of onnxruntime 1"),
            "{text}"
        );
        assert!(text.contains("upstream (a0.tar.gz): 127.0.0.1:"), "{text}");
    }
    assert_eq!(run.notes.lock().unwrap().len(), 1);
}

#[test]
fn wrong_bytes_are_an_error_that_names_file_expected_and_found_and_are_not_kept() {
    let run = Run::new();
    let (address, _) = server(b"something else");
    let url = format!("{address}/good/a");
    // The next origin would have it right: a wrong hash must stop all the same.
    let (right, requests) = server(CONTENT);
    let error = run
        .fetch(None, &[source(&[url.clone(), format!("{right}/good/a")])])
        .remove(0)
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Hash { .. }), "{text}");
    for part in [
        "a0.tar.gz",
        url.as_str(),
        &format!("expected sha256:{}", sha256(CONTENT)),
        &format!("found sha256:{}", sha256(b"something else")),
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(run.downloads().is_empty(), "{:?}", run.downloads());
    assert!(requests.lock().unwrap().is_empty());
}

#[test]
fn what_is_in_the_cache_is_not_fetched_again_unless_it_is_damaged() {
    let run = Run::new();
    let (address, requests) = server(CONTENT);
    let source = source(&[format!("{address}/good/a")]);
    for _ in 0..2 {
        run.fetch(None, std::slice::from_ref(&source))
            .remove(0)
            .unwrap();
    }
    assert_eq!(requests.lock().unwrap().len(), 1);
    fs::write(run.dir.path().join("downloads/a0.tar.gz"), "cut").unwrap();
    let archive = run.fetch(None, &[source]).remove(0).unwrap();
    assert_eq!(fs::read(archive.path).unwrap(), CONTENT);
    assert_eq!(requests.lock().unwrap().len(), 2);
    assert!(
        run.notes
            .lock()
            .unwrap()
            .iter()
            .any(|note| note.contains("is damaged"))
    );
}

#[test]
fn a_folder_of_the_users_wins_and_is_not_touched() {
    let run = Run::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a0.tar.gz");
    fs::write(&file, CONTENT).unwrap();
    let source = source(&[closed_port()]);
    let archive = run
        .fetch(Some(folder.path()), std::slice::from_ref(&source))
        .remove(0)
        .unwrap();
    assert_eq!(archive.path, file);
    fs::write(&file, "wrong").unwrap();
    let error = run
        .fetch(Some(folder.path()), &[source])
        .remove(0)
        .unwrap_err();
    assert!(matches!(error, Error::Hash { .. }), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"wrong");
}

#[test]
fn a_connection_that_breaks_off_leaves_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/good/a", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 1024];
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this");
    });
    let run = Run::new();
    let text = run
        .fetch(None, &[source(&[url])])
        .remove(0)
        .unwrap_err()
        .to_string();
    assert!(text.contains("broke off after 9"), "{text}");
    assert!(run.downloads().is_empty(), "{:?}", run.downloads());
}
