//! Runs inputs in child processes, so that one that ends the process or hangs is an answer and not the end of the test.
//!
//! A test starts this very binary again, for itself alone, with `ORT_TRAINING_MUTATIONS=FROM..TO` in the environment. The
//! child announces each input before it begins and says afterwards how far that got.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Which inputs a child runs.
const RANGE: &str = "ORT_TRAINING_MUTATIONS";
/// A folder where a child leaves what it fed to ONNX Runtime.
const KEEP: &str = "ORT_TRAINING_MUTATIONS_KEEP";

/// Runs so many times the inputs: a longer search than a test should be.
const TIMES: &str = "ORT_TRAINING_MUTATIONS_TIMES";

/// Inputs for one child.
const BATCH: u64 = 200;
/// A child that says nothing for so long hangs. Most inputs take milliseconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Address space of a child: more than any of these models needs, less than what an absurd dimension asks for.
const ADDRESS_SPACE: u64 = 6 << 30;
/// What live memory may grow by for each input. A session that leaked would leave far more behind.
const GROWTH: i64 = 1024;

/// Where a suite gives up.
const MOST_FAILURES: usize = 12;

/// How far an input got.
pub type Stages = Vec<&'static str>;

/// A kind of inputs.
pub struct Suite<'a> {
    /// Also that of its test function.
    pub name: &'static str,
    pub inputs: u64,
    /// Runs the input of this number. What it writes belongs into the folder.
    pub run: fn(u64, &Folder) -> Stages,
    /// How many inputs must get so far, so that the suite means something.
    pub at_least: &'a [(&'static str, u64)],
    /// Inputs that end the process inside ONNX Runtime, with the name that docs/hazards.md has for the reason.
    pub hazards: &'a [(u64, &'static str)],
}

/// Where an input may write, and where it is left to be looked at when that is asked for.
pub struct Folder {
    scratch: tempfile::TempDir,
    keep: Option<PathBuf>,
}

impl Folder {
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Leaves `bytes` as `name` where `ORT_TRAINING_MUTATIONS_KEEP` says.
    pub fn keep(&self, name: &str, bytes: &[u8]) {
        if let Some(folder) = &self.keep {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(name), bytes).unwrap();
        }
    }
}

impl Suite<'_> {
    pub fn test(&self) {
        match std::env::var(RANGE) {
            Ok(range) => self.child(parse(&range)),
            Err(_) => self.parent(),
        }
    }

    fn child(&self, range: Range<u64>) {
        limit_memory();
        let folder = Folder {
            scratch: tempfile::tempdir().unwrap(),
            keep: std::env::var_os(KEEP).map(PathBuf::from),
        };
        // libtest leaves its own line open.
        say(String::new());
        let count = range.end - range.start;
        // Allocators and caches fill up first.
        let warm = range.start + count / 2;
        let mut before = 0;
        for index in range.clone() {
            if index == warm {
                before = live_bytes();
            }
            say(format!("@begin {index}"));
            let stages = (self.run)(index, &folder);
            say(format!("@end {index} {}", stages.join(",")));
        }
        say(format!(
            "@grown {} {}",
            live_bytes() - before,
            range.end - warm
        ));
    }

    fn parent(&self) {
        let mut tally = Tally::default();
        let mut found = Vec::new();
        let times: u64 = std::env::var(TIMES).map_or(1, |times| times.parse().expect("a number"));
        let inputs = self.inputs * times;
        let mut next = 0;
        while next < inputs {
            let batch = next..inputs.min(next + BATCH);
            match self.batch(batch.clone(), &mut tally) {
                Ok(()) => next = batch.end,
                Err(failure) => {
                    next = failure.index + 1;
                    if !self.is_known(&failure) {
                        found.push(self.explain(&failure, batch.start));
                        assert!(
                            found.len() < MOST_FAILURES,
                            "{} inputs, and no more are tried:\n{}",
                            found.len(),
                            found.join("\n")
                        );
                    }
                    tally.ended.push(failure.index);
                }
            }
        }
        println!("{}: {tally}", self.name);
        for (index, hazard) in self.hazards {
            if !tally.ended.contains(index) {
                found.push(format!(
                    "input {index} is listed as hazard {hazard:?} and ended well: take it off the list"
                ));
            }
        }
        assert!(
            found.is_empty(),
            "{} of {inputs} inputs:\n{}",
            found.len(),
            found.join("\n")
        );
        let ran = tally.ran + tally.ended.len() as u64;
        assert_eq!(ran, inputs, "each input runs once");
        for (stage, wanted) in self.at_least {
            let reached = tally.stages.get(*stage).copied().unwrap_or(0);
            assert!(
                reached >= *wanted,
                "{}: expected {wanted} inputs or more to be {stage}, found {reached}",
                self.name
            );
        }
        if let Some(growth) = tally.growth() {
            assert!(
                growth < GROWTH,
                "{}: expected memory to grow by less than {GROWTH} bytes for each input, found {growth}",
                self.name
            );
        }
    }

    fn is_known(&self, failure: &Failure) -> bool {
        matches!(failure.how, How::Signal(_))
            && self
                .hazards
                .iter()
                .any(|(index, _)| *index == failure.index)
    }

    /// Runs a child to its end, or to the input at which it fails.
    fn batch(&self, range: Range<u64>, tally: &mut Tally) -> Result<(), Failure> {
        let folder = tempfile::tempdir().unwrap();
        let errors = folder.path().join("stderr");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([self.name, "--exact", "--nocapture", "--test-threads=1"])
            .env(RANGE, format!("{}..{}", range.start, range.end))
            // What is freed or not yet written holds no old zeros to hide behind.
            .env("MALLOC_PERTURB_", "165")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut current = range.start;
        let hung = loop {
            let line = match lines.recv_timeout(SILENCE) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) => break true,
            };
            let mut words = line.split(' ');
            match words.next() {
                Some("@begin") => current = number(words.next()) as u64,
                Some("@end") => tally.end(words.nth(1).unwrap_or_default()),
                Some("@grown") => {
                    let (bytes, inputs) = (number(words.next()), number(words.next()));
                    tally.grown.push(bytes / inputs);
                }
                _ => {}
            }
        };
        if hung {
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        drop(lines);
        reader.join().unwrap();
        if status.success() {
            return Ok(());
        }
        let text = fs::read(&errors).unwrap();
        let text = String::from_utf8_lossy(&text);
        let tail: Vec<&str> = text.lines().rev().take(12).collect();
        Err(Failure {
            index: current,
            how: How::of(hung, status),
            errors: tail.into_iter().rev().collect::<Vec<_>>().join("\n    "),
        })
    }

    /// What happened, and how to see it again. Where the input alone does no harm, one before it did.
    fn explain(&self, failure: &Failure, start: u64) -> String {
        let fails = |first: u64| {
            self.batch(first..failure.index + 1, &mut Tally::default())
                .is_err()
        };
        let range = if fails(failure.index) {
            failure.index.to_string()
        } else if fails(start) {
            // The last input from which on it still happens.
            let (mut fails_from, mut passes_from) = (start, failure.index);
            while passes_from - fails_from > 1 {
                let middle = fails_from + (passes_from - fails_from) / 2;
                if fails(middle) {
                    fails_from = middle;
                } else {
                    passes_from = middle;
                }
            }
            format!("{fails_from}..{}", failure.index + 1)
        } else {
            format!("{start}..{} (not every time)", failure.index + 1)
        };
        format!(
            "  input {}: {}; again with\n    {RANGE}={range} {KEEP}=/tmp/mutated cargo test -p ort-training \
             --features artifacts --test mutations -- --exact --nocapture {}\n    {}",
            failure.index, failure.how, self.name, failure.errors
        )
    }
}

enum How {
    Hang,
    Signal(i32),
    /// A test that fails: 101.
    Exit(Option<i32>),
}

impl How {
    fn of(hung: bool, status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        match status.signal() {
            _ if hung => Self::Hang,
            Some(signal) => Self::Signal(signal),
            None => Self::Exit(status.code()),
        }
    }
}

impl std::fmt::Display for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hang => write!(f, "silent for {} s", SILENCE.as_secs()),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Exit(code) => write!(f, "a failed test, exit status {code:?}"),
        }
    }
}

struct Failure {
    index: u64,
    how: How,
    errors: String,
}

#[derive(Default)]
struct Tally {
    ran: u64,
    ended: Vec<u64>,
    stages: BTreeMap<String, u64>,
    /// Bytes for each input, in each child.
    grown: Vec<i64>,
}

impl Tally {
    /// The lower quartile: what is kept once is no leak, and comes in one child early and in another late (MLAS keeps
    /// the largest buffer that a thread needed).
    fn growth(&self) -> Option<i64> {
        let mut grown = self.grown.clone();
        grown.sort_unstable();
        grown.get(grown.len() / 4).copied()
    }

    fn end(&mut self, stages: &str) {
        self.ran += 1;
        for stage in stages.split(',').filter(|stage| !stage.is_empty()) {
            *self.stages.entry(stage.to_owned()).or_default() += 1;
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} inputs", self.ran)?;
        for (stage, count) in &self.stages {
            write!(f, ", {count} {stage}")?;
        }
        if let Some(growth) = self.growth() {
            write!(f, "; {growth} bytes kept by each")?;
        }
        if !self.ended.is_empty() {
            write!(f, "; ended by {:?}", self.ended)?;
        }
        Ok(())
    }
}

/// `17` or `10..20`.
fn parse(range: &str) -> Range<u64> {
    let number = |text: &str| text.parse().expect("a number, or a range as 10..20");
    match range.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(range)..number(range) + 1,
    }
}

fn number(word: Option<&str>) -> i64 {
    word.expect("a number").parse().expect("a number")
}

/// One line, at once: the next thing may end the process.
fn say(line: String) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

fn limit_memory() {
    let limit = libc::rlimit {
        rlim_cur: ADDRESS_SPACE,
        rlim_max: ADDRESS_SPACE,
    };
    let no_dump = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both limits are alive during the calls, which only read them.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_CORE, &no_dump), 0);
    }
}

/// Bytes that are allocated and not freed: unlike the resident pages, not a matter of fragments.
fn live_bytes() -> i64 {
    // SAFETY: reads the allocator's counters.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as i64
}
