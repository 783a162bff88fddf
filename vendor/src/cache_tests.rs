use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::*;

#[test]
fn a_folder_is_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("a/b");
    let failed = folder_atomically(&target, |folder| {
        fs::write(folder.join("half"), "x").unwrap();
        Err(Error::Manifest("stop".into()))
    });
    assert!(failed.is_err());
    assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 0);
    folder_atomically(&target, |folder| {
        fs::write(folder.join("whole"), "x").unwrap();
        Ok(())
    })
    .unwrap();
    assert!(target.join("whole").is_file());
    assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 1);
}

#[test]
fn a_second_maker_of_the_same_folder_is_content_with_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("b");
    folder_atomically(&target, |folder| {
        fs::write(folder.join("mine"), "x").unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(target.join("theirs"), "x").unwrap();
        Ok(())
    })
    .unwrap();
    assert!(target.join("theirs").is_file());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

const CHILD_FOLDER: &str = "ORT_TRAINING_TEST_CHILD_FOLDER";

/// What the process does that the next two tests start and kill.
fn be_the_child(folder: &Path) {
    let cache = Cache::new(folder).unwrap();
    let _lock = cache.lock("key", |_| {}).unwrap();
    let _ = folder_atomically(&cache.install("key"), |folder| {
        fs::write(folder.join("half"), "x").unwrap();
        println!("half done");
        std::thread::sleep(Duration::from_secs(600));
        Ok(())
    });
}

fn spawn_child(folder: &Path) -> std::process::Child {
    use std::io::BufRead;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "cache::tests::a_kill_leaves_nothing_that_is_trusted_and_nothing_for_long",
            "--nocapture",
        ])
        .env(CHILD_FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    assert!(
        stdout
            .lines()
            .any(|line| line.unwrap().contains("half done")),
        "the child ended early"
    );
    child
}

#[test]
fn a_kill_leaves_nothing_that_is_trusted_and_nothing_for_long() {
    // This test's own process, started again by spawn_child.
    if let Some(folder) = std::env::var_os(CHILD_FOLDER) {
        return be_the_child(Path::new(&folder));
    }
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path()).unwrap();
    let mut child = spawn_child(dir.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let install = cache.install("key");
    assert!(!install.exists());
    let parent = install.parent().unwrap();
    assert_eq!(
        fs::read_dir(parent).unwrap().count(),
        1,
        "the half-made sibling"
    );
    // The lock went with the process: this does not wait.
    let _lock = cache
        .lock("key", |holder| panic!("still locked by {holder}"))
        .unwrap();
    folder_atomically(&install, |folder| {
        fs::write(folder.join("whole"), "x").unwrap();
        Ok(())
    })
    .unwrap();
    assert_eq!(
        fs::read_dir(parent).unwrap().count(),
        1,
        "the sibling is gone"
    );
    assert!(!install.join("half").exists());
}

#[test]
fn a_second_build_waits_says_for_whom_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn_child(dir.path());
    let (sender, receiver) = mpsc::channel();
    let waiting = sender.clone();
    let cache = Cache::new(dir.path()).unwrap();
    let second = std::thread::spawn(move || {
        let _lock = cache
            .lock("key", |holder| waiting.send(holder.to_owned()).unwrap())
            .unwrap();
        sender.send("locked".into()).unwrap();
    });
    assert_eq!(receiver.recv().unwrap(), child.id().to_string());
    assert!(
        receiver.recv_timeout(Duration::from_millis(200)).is_err(),
        "locked while the first holds it"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(receiver.recv().unwrap(), "locked");
    second.join().unwrap();
}

#[test]
fn temporaries_of_living_processes_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let living = dir.path().join(".b.1.tmp");
    fs::create_dir(&living).unwrap();
    let dead = dir.path().join(".b.4194305.tmp");
    fs::create_dir(&dead).unwrap();
    folder_atomically(&dir.path().join("b"), |_| Ok(())).unwrap();
    assert!(living.exists());
    assert!(!dead.exists());
}

#[test]
fn a_disk_that_takes_nothing_is_named() {
    // /dev/full answers every write with "no space left".
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = (&full)
        .write_all(b"x")
        .map_err(Error::io("writing a test"))
        .unwrap_err();
    assert!(error.is_disk_full());
    let text = error.to_string();
    assert!(
        text.contains("The disk is full") && text.contains(CACHE_DIR),
        "{text}"
    );
}
