//! Running ninja: its progress, its failures, and what follows from them.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::builder::Build;
use crate::configure::Configured;
use crate::error::{Error, Result};
use crate::progress::{Event, Progress};
use crate::tools::Tools;
use crate::workload::Workload;
use crate::{reduced, unity};

/// Compiles everything. Unity batches that do not compile are taken apart, and the build goes on.
pub(crate) fn run(
    build: &Build,
    tools: &Tools,
    configured: &Configured,
    progress: &dyn Progress,
) -> Result<()> {
    let jobs = build
        .jobs
        .unwrap_or_else(|| default_jobs(build.features.cuda));
    loop {
        let mut failed: Vec<String> = Vec::new();
        let mut workload = Workload::read(&configured.dir);
        let mut command = Command::new(&tools.ninja);
        command
            .arg("-C")
            .arg(&configured.dir)
            .arg(format!("-j{jobs}"))
            .env("NINJA_STATUS", "[%f/%t] ")
            .envs(configured.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        // With batches, all that fail are wanted at once; without, the first failure is the end.
        if build.unity {
            command.args(["-k", "0"]);
        }
        let result = logged(
            command,
            "compiling ONNX Runtime",
            &configured.log,
            &mut |line| {
                if let Some((done, total, step)) = status(line) {
                    workload.step(step);
                    progress.event(Event::Compile {
                        done,
                        total,
                        fraction: workload.fraction(),
                        step: step.to_owned(),
                    });
                } else if let Some(object) = failed_object(line) {
                    failed.push(object.to_owned());
                }
            },
        );
        let Err(failure) = result else {
            return Ok(());
        };
        let apart = match unity::batches(&configured.dir, &failed) {
            Some(batches) if build.unity => take_apart(configured, &batches, progress)?,
            _ => false,
        };
        if !apart && !bring_back(configured, &failure.output, progress)? {
            return Err(failure.into_error(first_failure));
        }
        // CMake reads the skip file when it configures; touching nothing else keeps every other object.
        let mut command = Command::new(&tools.cmake);
        command.arg(&configured.dir).stdin(Stdio::null());
        logged(
            command,
            "CMake's configuration",
            &configured.log,
            &mut |_| {},
        )
        .map_err(|failed| failed.into_error(first_failure))?;
    }
}

/// Puts the sources of failed batches into the skip file. Every source goes there at most once, so this ends.
fn take_apart(
    configured: &Configured,
    batches: &[PathBuf],
    progress: &dyn Progress,
) -> Result<bool> {
    let mut added = 0;
    for batch in batches {
        let sources = unity::sources_of(batch)?;
        added += unity::skip(&configured.unity_skip, &sources)?;
        let names: Vec<&str> = sources
            .iter()
            .filter_map(|source| source.rsplit('/').next())
            .collect();
        progress.event(Event::Note(format!(
            "these do not compile as one file, and are compiled one by one: {}",
            names.join(", ")
        )));
    }
    Ok(added > 0)
}

/// Compiles kernels after all that were left out, and that the linker misses. Each file comes back once, so this ends.
fn bring_back(configured: &Configured, output: &[String], progress: &dyn Progress) -> Result<bool> {
    let count = reduced::bring_back(&configured.left_out, output)?;
    if count > 0 {
        progress.event(Event::Note(format!(
            "{count} of the files that register no kernel of these models are needed all the same"
        )));
    }
    Ok(count > 0)
}

/// `[12/345] Building CXX object ...`
fn status(line: &str) -> Option<(u32, u32, &str)> {
    let (counts, step) = line.strip_prefix('[')?.split_once("] ")?;
    let (done, total) = counts.split_once('/')?;
    Some((done.trim().parse().ok()?, total.trim().parse().ok()?, step))
}

/// `FAILED: object`, since ninja 1.12 `FAILED: [code=1] object`.
fn failed_object(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("FAILED: ")?;
    let rest = match rest.strip_prefix("[code=") {
        Some(code) => code.split_once("] ")?.1,
        None => rest,
    };
    rest.split_whitespace().next()
}

/// The first failing command with what it said, from ninja's output.
fn first_failure(output: &[String]) -> String {
    const LINES: usize = 60;
    let Some(from) = output.iter().position(|line| line.starts_with("FAILED: ")) else {
        let from = output.len().saturating_sub(LINES);
        return output[from..].join("\n");
    };
    let end = output[from + 1..]
        .iter()
        .position(|line| {
            status(line).is_some() || line.starts_with("FAILED: ") || line.starts_with("ninja: ")
        })
        .map_or(output.len(), |length| from + 1 + length);
    let mut lines: Vec<String> = output[from..end].to_vec();
    if lines.len() > LINES {
        let left = lines.len() - LINES;
        lines.truncate(LINES);
        lines.push(format!("... and {left} more lines"));
    }
    lines.join("\n")
}

/// A command that ended badly, with all that it said.
pub(crate) struct Failed {
    doing: String,
    status: String,
    output: Vec<String>,
    log: PathBuf,
    error: Option<Error>,
}

impl Failed {
    pub(crate) fn into_error(self, cut: impl Fn(&[String]) -> String) -> Error {
        self.error.unwrap_or_else(|| Error::Command {
            doing: self.doing,
            status: self.status,
            output: cut(&self.output),
            log: Some(self.log),
        })
    }
}

/// Runs a command, with its output line by line into the log and to `line`.
pub(crate) fn logged(
    mut command: Command,
    doing: &str,
    log: &Path,
    line: &mut dyn FnMut(&str),
) -> std::result::Result<(), Box<Failed>> {
    let failed = |error: Error| {
        Box::new(Failed {
            doing: doing.to_owned(),
            status: String::new(),
            output: Vec::new(),
            log: log.to_owned(),
            error: Some(error),
        })
    };
    let logging = || Error::io(format!("writing {}", log.display()));
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_err(|error| failed(logging()(error)))?;
    writeln!(file, "$ {command:?}").map_err(|error| failed(logging()(error)))?;
    let (reader, writer) = os_pipe::pipe()
        .and_then(|(reader, writer)| Ok((reader, (writer.try_clone()?, writer))))
        .map_err(|error| failed(Error::io("making a pipe")(error)))?;
    command.stdout(writer.0).stderr(writer.1);
    end_with_us(&mut command);
    let mut child = command.spawn().map_err(|error| {
        failed(Error::io(format!("running {:?}", command.get_program()))(
            error,
        ))
    })?;
    // The command holds the writing ends of the pipe; the reader ends when the child's close.
    drop(command);
    let mut output = Vec::new();
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match reader.read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        // A full disk must not end the reading: the child would hang on a full pipe. Its own error follows.
        let _ = writeln!(file, "{text}");
        line(text);
        output.push(text.to_owned());
    }
    let status = child
        .wait()
        .map_err(|error| failed(Error::io(format!("waiting for {doing}"))(error)))?;
    if status.success() {
        return Ok(());
    }
    Err(Box::new(Failed {
        doing: doing.to_owned(),
        status: status.to_string(),
        output,
        log: log.to_owned(),
        error: None,
    }))
}

/// Makes the child end when this process does, however it ends: otherwise a ninja that outlived a killed build would
/// write into the folder that the next build works in.
#[cfg(target_os = "linux")]
fn end_with_us(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let parent = std::process::id();
    // SAFETY: the closure runs between fork and exec and makes async-signal-safe calls only (prctl, getppid);
    // it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before the call.
            if libc::getppid() as u32 != parent {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_us(_: &mut Command) {}

/// One a core, and one for every 2 GiB of memory: the largest files take 2.1 GB, CUDA's up to twice that.
fn default_jobs(cuda: bool) -> usize {
    let each = if cuda { 4.0 } else { 2.0 };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    match memory_gib() {
        Some(gib) => cores.min((gib / each).round() as usize).max(1),
        None => cores,
    }
}

/// The machine's memory, or less where this process's control group has less.
fn memory_gib() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: f64 = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    let machine = kib / (1024.0 * 1024.0);
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|bytes| bytes.trim().parse::<f64>().ok())
        .map(|bytes| bytes / (1024.0 * 1024.0 * 1024.0));
    Some(group.map_or(machine, |group| group.min(machine)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn ninjas_status_lines_are_read() {
        assert_eq!(
            status("[12/345] Building CXX object a.o"),
            Some((12, 345, "Building CXX object a.o"))
        );
        assert_eq!(status("[ 50%] Building"), None);
        assert_eq!(status("a[1/2] b"), None);
    }

    #[test]
    fn failed_objects_of_old_and_new_ninja() {
        assert_eq!(
            failed_object("FAILED: x/Unity/unity_0_cxx.cxx.o "),
            Some("x/Unity/unity_0_cxx.cxx.o")
        );
        assert_eq!(failed_object("FAILED: [code=1] a.o"), Some("a.o"));
        assert_eq!(failed_object("ninja: build stopped"), None);
    }

    #[test]
    fn the_first_failure_is_shown_whole_and_alone() {
        let output = lines(
            "[1/9] fine\nFAILED: [code=1] a.o\nc++ -c a.cc\na.cc:1: error: no\n[2/9] also fine\n\
             FAILED: [code=1] b.o\nc++ -c b.cc\nninja: build stopped",
        );
        assert_eq!(
            first_failure(&output),
            "FAILED: [code=1] a.o\nc++ -c a.cc\na.cc:1: error: no"
        );
    }

    #[test]
    fn output_is_logged_and_a_failure_has_its_status() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let mut seen = Vec::new();
        let failed = logged(command, "testing", &log, &mut |line| {
            seen.push(line.to_owned())
        })
        .err();
        seen.sort();
        assert_eq!(seen, ["err", "out"]);
        let error = failed
            .unwrap()
            .into_error(|output| format!("{} lines", output.len()));
        let text = error.to_string();
        assert!(
            text.starts_with("testing failed (exit status: 3):\n2 lines"),
            "{text}"
        );
        assert!(text.contains(&log.display().to_string()), "{text}");
        let logged = std::fs::read_to_string(&log).unwrap();
        assert!(
            logged.contains("out\n") && logged.contains("err\n"),
            "{logged}"
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let command = Command::new("/no/such/program");
        let failed = logged(command, "testing", &dir.path().join("log"), &mut |_| {}).err();
        let text = failed.unwrap().into_error(|_| String::new()).to_string();
        assert!(text.contains("/no/such/program"), "{text}");
    }

    #[test]
    fn at_least_one_job() {
        assert!(default_jobs(true) >= 1 && default_jobs(false) >= default_jobs(true));
    }
}
