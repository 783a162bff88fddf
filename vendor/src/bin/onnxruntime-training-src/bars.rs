//! The live display on a terminal.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use onnxruntime_training_src::progress::{Event, Progress, Stage, clock, estimate};

pub struct Bars {
    bar: ProgressBar,
    state: Mutex<State>,
}

struct State {
    stage: Option<Stage>,
    stage_started: Instant,
}

impl Bars {
    pub fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(200));
        Bars {
            bar,
            state: Mutex::new(State {
                stage: None,
                stage_started: Instant::now(),
            }),
        }
    }
}

impl Progress for Bars {
    fn event(&self, event: Event) {
        let mut state = self
            .state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        match event {
            Event::Stage(stage) => {
                if let Some(last) = state.stage {
                    self.bar
                        .println(format!("{last}: {}", clock(state.stage_started.elapsed())));
                }
                state.stage = Some(stage);
                state.stage_started = Instant::now();
                self.bar.set_length(0);
                self.bar.set_position(0);
                self.bar.set_message("");
                self.bar.set_prefix(stage.to_string());
                self.bar
                    .set_style(style("{spinner} {prefix} [{elapsed_precise}] {wide_msg}"));
            }
            Event::Note(note) => self.bar.println(note),
            Event::Download { file, done, total } => {
                let total = total
                    .map(|total| format!(" of {:.1}", total as f64 / 1e6))
                    .unwrap_or_default();
                self.bar
                    .set_message(format!("{file}: {:.1}{total} MB", done as f64 / 1e6));
            }
            Event::Compile {
                done,
                total,
                fraction,
                step,
            } => {
                self.bar.set_style(style(
                    "{spinner} {prefix} [{elapsed_precise}] {bar:30} {pos}/{len} {wide_msg}",
                ));
                self.bar.set_length(u64::from(total));
                self.bar.set_position(u64::from(done));
                let left = estimate(state.stage_started.elapsed(), fraction)
                    .map(|left| format!("about {} left  ", clock(left)))
                    .unwrap_or_default();
                // ninja's words are "Building CXX object path"; the file is what changes.
                let file = step.rsplit('/').next().unwrap_or(&step);
                self.bar.set_message(format!("{left}{file}"));
            }
            _ => {}
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .progress_chars("=> ")
}
