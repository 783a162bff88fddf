//! Data for models: read from files, fitted to what the model's inputs declare, handed out in batches.

mod array;
mod csv_file;
mod fit;
mod npy;
mod safetensors_file;
mod source;

pub use array::{Array, Elements, Scalar, unravel};
pub use npy::write_npz;
pub use safetensors_file::{SafetensorsFile, read_safetensors};
pub use source::{DataArgs, Dataset, read_arrays};
