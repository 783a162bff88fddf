//! Data for models: read from files, fitted to what the model's inputs declare, handed out in batches.

mod array;
mod csv_file;
mod fit;
mod npy;
mod source;

pub use array::{Array, Elements, Scalar, unravel};
pub use npy::write_npz;
pub use source::{DataArgs, Dataset, read_arrays};
