//! What the parity tests share: the log that both sides write, the calls into the C scenarios, and the cases they run
//! on. A test runs a C scenario and its Rust twin on the same [`Case`] and compares the two [`Log`]s record by record.

mod c;
mod case;
mod cuda;
mod log;
mod trainer;

#[path = "../../ort-training/examples/digits/data.rs"]
pub mod data;
#[path = "../../ort-training/examples/digits/model.rs"]
pub mod model;
#[path = "../../ort-training/examples/digits/random.rs"]
pub mod random;

pub use c::Scenario;
pub use case::{Case, Column};
pub use cuda::use_cuda;
pub use log::{Log, Payload, Record, assert_same};
pub use trainer::{Input, Trainer, log_inference, session_options};

/// The header of the install that both sides use.
pub const TRAINING_HEADER: &str = env!("ORT_TRAINING_HEADER");
