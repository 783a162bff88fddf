//! ONNX Runtime's log arrives at the `log` crate. A binary of its own, because logger and environment are one per process.

mod support;

use std::sync::Mutex;

use ort_training::{Environment, InferenceSession, LogSeverity, SessionOptions};
use support::{fixture, one_thread};

#[derive(Debug, Clone)]
struct Line {
    level: log::Level,
    target: String,
    file: Option<String>,
    line: Option<u32>,
    text: String,
}

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

struct Collector;

impl log::Log for Collector {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        LINES.lock().unwrap().push(Line {
            level: record.level(),
            target: record.target().to_owned(),
            file: record.file().map(str::to_owned),
            line: record.line(),
            text: record.args().to_string(),
        });
    }

    fn flush(&self) {}
}

fn build(options: SessionOptions) -> Vec<Line> {
    LINES.lock().unwrap().clear();
    let env = Environment::shared().unwrap();
    InferenceSession::builder(&env)
        .options(options)
        .model(fixture("digits").join("forward.onnx"))
        .build()
        .unwrap();
    std::mem::take(&mut LINES.lock().unwrap())
}

#[test]
fn lines_carry_severity_category_and_location() {
    log::set_logger(&Collector).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    Environment::builder("routing")
        .log_severity(LogSeverity::Warning)
        .build()
        .unwrap();

    // Building a session says what it does at info.
    let options = || one_thread().with_log_id("the session").unwrap();
    let lines = build(options().with_log_severity(LogSeverity::Info).unwrap());
    let info = lines
        .iter()
        .find(|line| line.level == log::Level::Info)
        .expect("a line of level info");
    assert_eq!(info.target, "onnxruntime");
    assert!(
        info.file
            .as_deref()
            .is_some_and(|file| file.ends_with(".cc")),
        "{info:?}"
    );
    assert!(info.line.is_some_and(|line| line > 0), "{info:?}");
    assert!(info.text.starts_with("[onnxruntime"), "{info:?}");
    assert!(
        lines.iter().any(|line| line.text.contains("the session")),
        "{lines:?}"
    );

    // Verbose lines are traces, and come only when asked for.
    assert!(
        lines.iter().all(|line| line.level != log::Level::Trace),
        "{lines:?}"
    );
    let lines = build(options().with_log_severity(LogSeverity::Verbose).unwrap());
    assert!(
        lines.iter().any(|line| line.level == log::Level::Trace),
        "{lines:?}"
    );

    // What the log crate drops is not passed on.
    log::set_max_level(log::LevelFilter::Off);
    assert!(build(options().with_log_severity(LogSeverity::Verbose).unwrap()).is_empty());

    // A logger that sees nothing below error.
    log::set_max_level(log::LevelFilter::Trace);
    let quiet = build(options().with_log_severity(LogSeverity::Error).unwrap());
    assert!(
        quiet.iter().all(|line| line.level == log::Level::Error),
        "{quiet:?}"
    );
}
