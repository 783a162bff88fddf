//! What a build tells while it runs.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A stage begins.
    Stage(Stage),
    /// A line worth reading: an origin passed over, a file taken out of a unity batch, a wait for another build.
    Note(String),
    /// Bytes of the file that is being fetched.
    Download {
        /// The file's name.
        file: String,
        /// Bytes so far.
        done: u64,
        /// Bytes in all, where the server says.
        total: Option<u64>,
    },
    /// Steps of the compile.
    Compile {
        /// Steps done.
        done: u32,
        /// Steps in all.
        total: u32,
        /// The part of the work that is done, from 0 to 1, by what the steps cost.
        fraction: f64,
        /// The step that ended last, as ninja describes it.
        step: String,
    },
}

/// The stages of a build, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Getting the archives and checking their hashes.
    Fetch,
    /// Unpacking and patching them.
    Unpack,
    /// CMake's configuration.
    Configure,
    /// Compiling and linking.
    Compile,
    /// Installing into the prefix.
    Install,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Stage; 5] = [
        Stage::Fetch,
        Stage::Unpack,
        Stage::Configure,
        Stage::Compile,
        Stage::Install,
    ];

    /// The name in `BUILD-INFO.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Fetch => "fetch",
            Stage::Unpack => "unpack",
            Stage::Configure => "configure",
            Stage::Compile => "compile",
            Stage::Install => "install",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Fetch => "fetching sources",
            Stage::Unpack => "unpacking and patching",
            Stage::Configure => "configuring",
            Stage::Compile => "compiling",
            Stage::Install => "installing",
        })
    }
}

/// Something that follows a build. Closures that take an [`Event`] are followers too.
pub trait Progress: Sync {
    /// Called for everything that happens, from one thread at a time.
    fn event(&self, event: Event);
}

impl<F: Fn(Event) + Sync> Progress for F {
    fn event(&self, event: Event) {
        self(event);
    }
}

/// Follows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn event(&self, _: Event) {}
}

/// Prints plain lines to standard error: stages and notes at once, the rest every ten seconds.
#[derive(Debug)]
pub struct Lines {
    started: Instant,
    state: Mutex<LinesState>,
}

#[derive(Debug)]
struct LinesState {
    last: Option<Instant>,
    stage_started: Instant,
}

impl Lines {
    const EVERY: Duration = Duration::from_secs(10);

    /// Starts the clock.
    pub fn new() -> Self {
        let now = Instant::now();
        Lines {
            started: now,
            state: Mutex::new(LinesState {
                last: None,
                stage_started: now,
            }),
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for Lines {
    fn event(&self, event: Event) {
        let elapsed = clock(self.started.elapsed());
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        match event {
            Event::Stage(stage) => {
                state.stage_started = Instant::now();
                state.last = None;
                eprintln!("[{elapsed}] {stage}");
            }
            Event::Note(note) => eprintln!("[{elapsed}] {note}"),
            Event::Download { file, done, total } => {
                if due(&mut state.last, Self::EVERY) {
                    eprintln!("[{elapsed}] {file}: {}", megabytes(done, total));
                }
            }
            Event::Compile {
                done,
                total,
                fraction,
                ..
            } => {
                if due(&mut state.last, Self::EVERY) || done == total {
                    let left = estimate(state.stage_started.elapsed(), fraction)
                        .map(|left| format!(", about {} left", clock(left)))
                        .unwrap_or_default();
                    eprintln!("[{elapsed}] compiled {done} of {total}{left}");
                }
            }
        }
    }
}

fn due(last: &mut Option<Instant>, every: Duration) -> bool {
    let now = Instant::now();
    if last.is_some_and(|last| now.duration_since(last) < every) {
        return false;
    }
    *last = Some(now);
    true
}

/// `m:ss`, or `h:mm:ss`.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// The time that the rest takes when it goes as it went so far.
pub fn estimate(elapsed: Duration, fraction: f64) -> Option<Duration> {
    // The first few steps say little about the rest.
    if !(0.02..=1.0).contains(&fraction) {
        return None;
    }
    Some(elapsed.mul_f64((1.0 - fraction) / fraction))
}

fn megabytes(done: u64, total: Option<u64>) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    match total {
        Some(total) => format!("{:.1} of {:.1} MB", mb(done), mb(total)),
        None => format!("{:.1} MB", mb(done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_reads_as_a_clock() {
        assert_eq!(clock(Duration::from_secs(5)), "0:05");
        assert_eq!(clock(Duration::from_secs(754)), "12:34");
        assert_eq!(clock(Duration::from_secs(3725)), "1:02:05");
    }

    #[test]
    fn estimate_is_proportional_and_waits_for_a_start() {
        let minute = Duration::from_secs(60);
        assert_eq!(estimate(minute, 0.01), None);
        assert_eq!(estimate(minute, 0.25), Some(3 * minute));
        assert_eq!(estimate(minute, 1.0), Some(Duration::ZERO));
        assert_eq!(estimate(minute, f64::NAN), None);
    }
}
