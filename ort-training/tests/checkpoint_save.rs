//! Saving is atomic: killed at any moment, out of space or beside other writers, a whole checkpoint is there.

mod checkpoint_writer;
mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use checkpoint_writer::{CheckpointSpec, TensorSpec};
use ort_training::{Checkpoint, CheckpointSummary, OptimizerState, Tensor, TrainingSession};
use support::{checkpoint, env, fixture, one_thread, refused, session};

/// Tells a test that it runs as its own child, and where it shall save.
const CHILD: &str = "CHECKPOINT_SAVE_CHILD";

/// Runs the test `name` again, in a process of its own.
fn child(name: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn on(checkpoint: Checkpoint) -> TrainingSession {
    TrainingSession::builder(&env())
        .options(one_thread())
        .checkpoint(checkpoint)
        .artifacts(fixture("regression"))
        .unwrap()
        .build()
        .unwrap()
}

/// Makes number `generation` of a checkpoint: every element of a parameter has that value, and a property, too.
fn set_generation(session: &mut TrainingSession, generation: u16) {
    let elements = Tensor::filled([8, 4], f32::from(generation)).unwrap();
    session
        .checkpoint_mut()
        .update_parameter("x_proj.weight", &elements)
        .unwrap();
    session
        .checkpoint_mut()
        .set_property("generation", i64::from(generation))
        .unwrap();
}

/// Loads the checkpoint and returns its number, after checking that all parts of it have the same.
fn generation(path: &Path) -> i64 {
    let session = on(Checkpoint::load(path).unwrap());
    let number = session
        .checkpoint()
        .int_property("generation")
        .unwrap()
        .unwrap();
    let weight = session.checkpoint().parameter("x_proj.weight").unwrap();
    assert!(
        weight
            .data()
            .iter()
            .all(|&element| element == number as f32),
        "generation {number}: {:?}",
        weight.data()
    );
    number
}

/// The regression's checkpoint with its parameters in a second file.
fn write_external(path: &Path) {
    let session = session("regression");
    let mut data = Vec::new();
    let (mut trainable, mut frozen) = (Vec::new(), Vec::new());
    for info in session.checkpoint().parameters() {
        let dims: Vec<i64> = info
            .shape()
            .iter()
            .map(|&dimension| dimension as i64)
            .collect();
        let elements = session.checkpoint().parameter(info.name()).unwrap();
        let mut tensor = TensorSpec::floats(info.name(), &dims, elements.data());
        tensor.move_out(&mut data);
        if info.requires_grad() {
            trainable.push(tensor)
        } else {
            frozen.push(tensor)
        }
    }
    let mut spec = CheckpointSpec::new(trainable, frozen);
    spec.external = true;
    fs::write(path, spec.to_bytes()).unwrap();
    fs::write(data_path(path), data).unwrap();
}

fn data_path(path: &Path) -> PathBuf {
    path.with_extension("data")
}

/// Saves one generation after the other, and says so, until it is killed.
fn save_forever(path: &Path) -> ! {
    let mut session = on(Checkpoint::load(path).unwrap());
    let start = session
        .checkpoint()
        .int_property("generation")
        .unwrap()
        .unwrap_or(0);
    for number in (start + 1) as u16.. {
        set_generation(&mut session, number);
        session
            .save_checkpoint(path, OptimizerState::Include)
            .unwrap();
        println!("saved {number}");
    }
    unreachable!("generations fit float32 for longer than this runs")
}

/// Kills the child that saves `rounds` times, and looks at what is there each time.
fn kill_and_look(name: &str, path: &Path, rounds: u64) {
    let mut last = 0;
    for round in 0..rounds {
        let mut child = child(name, path);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        // Two saves at least; then it is killed wherever it is.
        while said.len() < 2 {
            let line = lines.next().expect("the child saves on").unwrap();
            said.extend(
                line.strip_prefix("saved ")
                    .map(|number| number.parse::<i64>().unwrap()),
            );
        }
        std::thread::sleep(Duration::from_micros(round * 137 % 2500));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            status.signal(),
            Some(libc::SIGKILL),
            "it ran until it was killed"
        );
        said.extend(
            lines
                .map_while(Result::ok)
                .filter_map(|line| line.strip_prefix("saved ")?.parse::<i64>().ok()),
        );
        let found = generation(path);
        let reported = *said.last().unwrap();
        assert!(
            found == reported || found == reported + 1,
            "round {round}: {reported} was reported as saved, {found} is there"
        );
        assert!(found > last, "round {round}");
        last = found;
    }
}

#[test]
fn a_killed_save_leaves_a_whole_checkpoint() {
    if let Some(path) = std::env::var_os(CHILD) {
        save_forever(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    fs::copy(fixture("regression").join("checkpoint"), &path).unwrap();
    kill_and_look("a_killed_save_leaves_a_whole_checkpoint", &path, 40);
}

#[test]
fn a_killed_save_of_two_files_leaves_a_whole_pair() {
    if let Some(path) = std::env::var_os(CHILD) {
        save_forever(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    write_external(&path);
    assert!(CheckpointSummary::read(&path).unwrap().has_external_data());
    kill_and_look("a_killed_save_of_two_files_leaves_a_whole_pair", &path, 40);
    assert!(CheckpointSummary::read(&path).unwrap().has_external_data());
}

/// Between the two renames of a pair: what the child of the test above is seldom killed at.
#[test]
fn a_pair_is_finished_by_the_next_load() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let other = folder.path().join("other");
    write_external(&path);
    let mut session = on(Checkpoint::load(&path).unwrap());
    for (target, number) in [(&path, 1), (&other, 2)] {
        set_generation(&mut session, number);
        session
            .save_checkpoint(target, OptimizerState::Include)
            .unwrap();
    }
    drop(session);
    let (ready, ready_data) = (
        folder.path().join(".checkpoint.new"),
        folder.path().join(".checkpoint.new.data"),
    );
    // Killed before the moment that counts: the old pair stays.
    fs::copy(data_path(&other), &ready_data).unwrap();
    assert_eq!(generation(&path), 1);
    // Killed right after it.
    fs::copy(&other, &ready).unwrap();
    assert_eq!(generation(&path), 2);
    assert!(!ready.exists() && !ready_data.exists());
    // Killed between the renames: the data is in place, the checkpoint not yet.
    fs::copy(&other, &ready).unwrap();
    assert_eq!(generation(&path), 2);
    assert!(!ready.exists());
}

#[test]
fn a_full_disk_keeps_the_old_file() {
    const NAME: &str = "a_full_disk_keeps_the_old_file";
    if let Some(path) = std::env::var_os(CHILD) {
        let path = PathBuf::from(path);
        let mut checkpoint = Checkpoint::load(&path).unwrap();
        checkpoint.set_property("generation", 2i64).unwrap();
        let length = fs::metadata(&path).unwrap().len();
        // A limit on a file's size ends a write as a full disk does, at any byte, and without a disk of one's own.
        // SAFETY: ignoring a signal and setting a limit of this process, which is the test's own.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        for limit in (0..40).map(|part| part * length / 40) {
            let limit = libc::rlimit {
                rlim_cur: limit,
                rlim_max: libc::RLIM_INFINITY,
            };
            // SAFETY: as above; the pointer is to a local.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
            let error = checkpoint
                .save(&path, OptimizerState::Include)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("saving checkpoint") && error.contains(path.to_str().unwrap()),
                "{error}"
            );
        }
        return;
    }
    // The small one fits the buffer of ONNX Runtime's stream, which looks at errors of earlier writes only.
    for artifacts in ["digits", "linear1"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let mut checkpoint = checkpoint(artifacts);
        checkpoint.set_property("generation", 1i64).unwrap();
        checkpoint.save(&path, OptimizerState::Include).unwrap();
        let before = fs::read(&path).unwrap();
        assert_eq!(
            before.len() < 1000,
            artifacts == "linear1",
            "{}",
            before.len()
        );
        let output = child(NAME, &path).wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{artifacts}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(
            names(folder.path()),
            ["checkpoint"],
            "nothing half-written is left"
        );
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn saving_leaves_nothing_else_behind() {
    let folder = tempfile::tempdir().unwrap();
    let session = session("regression");
    let path = folder.path().join("a name with spaces, größer");
    for _ in 0..3 {
        session
            .save_checkpoint(&path, OptimizerState::Include)
            .unwrap();
    }
    assert_eq!(names(folder.path()), ["a name with spaces, größer"]);
}

#[test]
fn places_that_cannot_be_saved_to() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint("digits");
    let save = |path: &Path| checkpoint.save(path, OptimizerState::Include);
    refused(
        save(&folder.path().join("nowhere/checkpoint")),
        &["saving checkpoint", "nowhere"],
    );
    fs::create_dir(folder.path().join("folder")).unwrap();
    refused(
        save(&folder.path().join("folder")),
        &["folder", "expected a file"],
    );
    refused(save(Path::new("/")), &["saving checkpoint"]);
    refused(save(Path::new("")), &["saving checkpoint"]);
    refused(
        save(&folder.path().join("check\0point")),
        &["saving checkpoint"],
    );
    assert_eq!(names(folder.path()), ["folder"]);
}

#[test]
fn readers_and_writers_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let mut first = session("regression");
    set_generation(&mut first, 1);
    first
        .save_checkpoint(&path, OptimizerState::Include)
        .unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u16)
            .map(|writer| {
                let path = &path;
                scope.spawn(move || {
                    let mut session = session("regression");
                    for number in 0..50 {
                        set_generation(&mut session, 10 + 100 * writer + number);
                        session
                            .save_checkpoint(path, OptimizerState::Include)
                            .unwrap();
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) {
                generation(&path);
                reads += 1;
            }
            reads
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    let last = generation(&path);
    assert!(last == 59 || last == 159, "{last}");
    assert_eq!(names(folder.path()), ["checkpoint"]);
}

#[test]
fn two_files_are_saved_as_two_files() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("checkpoint"), folder.path().join("copy"));
    write_external(&path);
    let mut session = on(Checkpoint::load(&path).unwrap());
    let x = Tensor::filled([2, 4], 0.5f32).unwrap();
    let z = Tensor::filled([2, 3], -0.5f32).unwrap();
    let target = Tensor::filled([2, 1], 1f32).unwrap();
    session.train_step(&[&x, &z, &target]).unwrap();
    session.optimizer_step().unwrap();
    session
        .save_checkpoint(&copy, OptimizerState::Include)
        .unwrap();
    assert_eq!(
        names(folder.path()),
        ["checkpoint", "checkpoint.data", "copy", "copy.data"]
    );
    let trained = session.checkpoint().parameter("x_proj.weight").unwrap();
    let loaded = on(Checkpoint::load(&copy).unwrap());
    assert_eq!(
        loaded
            .checkpoint()
            .parameter("x_proj.weight")
            .unwrap()
            .data(),
        trained.data()
    );
    assert_eq!(
        CheckpointSummary::read(&copy).unwrap().optimizer_step(),
        Some(1)
    );
    refused(
        Checkpoint::from_bytes(&fs::read(&copy).unwrap()),
        &["external data file", "path"],
    );
}
