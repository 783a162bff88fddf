//! Inputs that are not what they should be, by the thousand: each is refused with words or can be used, and none ends the
//! process, hangs or leaves memory behind.
//!
//! With the 2,000 mutated and 2,000 random checkpoints of `checkpoint_bytes.rs` and the 400 models of `artifacts_files.rs`
//! these are 15,800 inputs. They are the same each time. A failure names the input and the command that runs it alone.
#![cfg(feature = "artifacts")]

mod artifact_maker;
#[path = "../artifacts_support/mod.rs"]
mod artifacts_support;
mod bytes;
#[path = "../checkpoint_writer/mod.rs"]
mod checkpoint_writer;
mod checkpoints;
mod feed;
mod hazards;
mod inference;
mod model;
mod names;
mod nodes;
mod random;
mod runner;
mod shapes;
#[path = "../support/mod.rs"]
mod support;
mod training;

use runner::Suite;
use training::{EVALUATION, OPTIMIZER, TRAINING, of_model};

#[test]
fn training_models() {
    Suite {
        name: "training_models",
        inputs: 2000,
        run: |index, folder| of_model(TRAINING, "training_models", index, folder),
        at_least: &[("built", 400), ("trained", 350), ("inferred", 350)],
        hazards: &[],
    }
    .test();
}

#[test]
fn evaluation_models() {
    Suite {
        name: "evaluation_models",
        inputs: 1000,
        run: |index, folder| of_model(EVALUATION, "evaluation_models", index, folder),
        at_least: &[("built", 200), ("evaluated", 180), ("inferred", 180)],
        hazards: &[],
    }
    .test();
}

#[test]
fn optimizer_models() {
    Suite {
        name: "optimizer_models",
        inputs: 1000,
        run: |index, folder| of_model(OPTIMIZER, "optimizer_models", index, folder),
        at_least: &[("built", 200), ("optimized", 180)],
        hazards: &[],
    }
    .test();
}

#[test]
fn inference_models() {
    Suite {
        name: "inference_models",
        inputs: 3000,
        run: inference::run,
        at_least: &[("built", 500), ("ran", 400)],
        hazards: &[],
    }
    .test();
}

#[test]
fn forward_models() {
    Suite {
        name: "forward_models",
        inputs: 600,
        run: artifact_maker::run,
        at_least: &[("made", 60), ("trained", 50), ("inferred", 50)],
        hazards: &[],
    }
    .test();
}

#[test]
fn checkpoints() {
    Suite {
        name: "checkpoints",
        inputs: 1500,
        run: checkpoints::run,
        at_least: &[("loaded", 250), ("trained", 200), ("exported", 150)],
        hazards: &[],
    }
    .test();
}

#[test]
fn names() {
    Suite {
        name: "names",
        inputs: 1100,
        run: names::run,
        at_least: &[("taken", 250), ("refused", 400)],
        hazards: &[],
    }
    .test();
}

#[test]
fn shapes() {
    Suite {
        name: "shapes",
        inputs: 1200,
        run: shapes::run,
        at_least: &[("taken", 200), ("refused", 500)],
        hazards: &[],
    }
    .test();
}

/// Each of these ends the process; what ends it is in docs/hazards.md.
#[test]
fn known_hazards() {
    let hazards: Vec<(u64, &str)> = (0..).zip(hazards::ALL.map(|(name, _)| name)).collect();
    Suite {
        name: "known_hazards",
        inputs: hazards.len() as u64,
        run: hazards::run,
        at_least: &[],
        hazards: &hazards,
    }
    .test();
}
