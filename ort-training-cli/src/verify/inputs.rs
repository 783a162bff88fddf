//! What the models are run on: given arrays, or random ones.

use anyhow::{Context, Result, bail};
use ort_training::{Dimension, ElementType, IoInfo};

use crate::data::{Array, Elements, Scalar, read_arrays};
use crate::random::SplitMix64;
use crate::session::declared;
use crate::suggest::suggest;

#[derive(clap::Args)]
#[command(next_help_heading = "Inputs")]
pub struct InputArgs {
    /// Inputs: an .npz or .safetensors file with arrays of their names, or INPUT=FILE (.npy) for one; random without
    #[arg(long, value_name = "[INPUT=]FILE")]
    pub inputs: Vec<String>,

    /// Random inputs: the first dimension, where the model leaves it open
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub rows: usize,

    /// Random inputs: the size of a named dimension that the model leaves open
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = dimension)]
    pub dims: Vec<(String, usize)>,

    /// Random inputs: integers are below this number (floats are between -1 and 1)
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub below: u32,

    /// Random inputs: what decides them
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

fn dimension(text: &str) -> Result<(String, usize), String> {
    text.split_once('=')
        .and_then(|(name, size)| Some((name.to_owned(), size.parse().ok()?)))
        .ok_or_else(|| format!("expected NAME=SIZE, found {text:?}"))
}

/// One array for each input of the model.
pub fn gather(args: &InputArgs, specs: &[IoInfo]) -> Result<Vec<(String, Array)>> {
    if args.inputs.is_empty() {
        return random(args, specs);
    }
    let mut given = read_arrays(&args.inputs)?;
    specs
        .iter()
        .map(|spec| {
            let name = spec.name();
            let at = given
                .iter()
                .position(|(known, _)| known == name)
                .with_context(|| {
                    format!(
                        "--inputs: expected an array for input '{name}' ({}){}",
                        declared(spec),
                        suggest(name, given.iter().map(|(known, _)| known.as_str()))
                    )
                })?;
            let (_, array) = given.swap_remove(at);
            let array = convert(array, spec).with_context(|| format!("input '{name}'"))?;
            Ok((name.to_owned(), array))
        })
        .collect()
}

/// An array in the input's element type.
pub fn convert(array: Array, spec: &IoInfo) -> Result<Array> {
    let wanted = spec.element_type().with_context(|| {
        format!(
            "expected an input that is a tensor, found {}",
            declared(spec)
        )
    })?;
    array.cast(wanted)
}

fn random(args: &InputArgs, specs: &[IoInfo]) -> Result<Vec<(String, Array)>> {
    for (name, _) in &args.dims {
        let known = || {
            specs
                .iter()
                .flat_map(|spec| spec.dimensions().unwrap_or_default())
                .filter_map(|dimension| match dimension {
                    Dimension::Symbolic(name) if !name.is_empty() => Some(name.as_str()),
                    _ => None,
                })
        };
        if !known().any(|known| known == name) {
            bail!(
                "--dim {name}: no input has a dimension of this name{}",
                suggest(name, known())
            );
        }
    }
    let mut random = SplitMix64::new(args.seed);
    specs
        .iter()
        .map(|spec| {
            let name = spec.name();
            let array = random_array(args, spec, &mut random).with_context(|| {
                format!(
                    "input '{name}' ({}): no random one can be made; give --inputs",
                    declared(spec)
                )
            })?;
            Ok((name.to_owned(), array))
        })
        .collect()
}

fn random_array(args: &InputArgs, spec: &IoInfo, random: &mut SplitMix64) -> Result<Array> {
    let element_type = spec.element_type().context("it is no tensor")?;
    let dimensions = spec
        .dimensions()
        .context("the model does not say its shape")?;
    let shape: Vec<usize> = dimensions
        .iter()
        .enumerate()
        .map(|(axis, dimension)| {
            let named = match dimension {
                Dimension::Fixed(size) => Some(*size),
                Dimension::Symbolic(name) => args
                    .dims
                    .iter()
                    .find(|(known, _)| known == name)
                    .map(|(_, size)| *size),
            };
            match (named, axis, dimension) {
                (Some(size), ..) => Ok(size),
                (None, 0, _) => Ok(args.rows),
                (None, _, Dimension::Symbolic(name)) if !name.is_empty() => {
                    bail!("the size of '{name}' is open; give --dim {name}=SIZE")
                }
                _ => bail!("the size along axis {axis} is open"),
            }
        })
        .collect::<Result<_>>()?;
    let count = shape
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size))
        .context("it does not fit into memory")?;
    let mut elements =
        Elements::empty(element_type).with_context(|| format!("of type {element_type}"))?;
    for _ in 0..count {
        elements.push(&match element_type {
            ElementType::Float16
            | ElementType::Bfloat16
            | ElementType::Float32
            | ElementType::Float64 => Scalar::Float(random.unit() * 2.0 - 1.0),
            ElementType::Bool => Scalar::Bool(random.below(2) == 1),
            ElementType::String => bail!("of text"),
            _ => Scalar::Int(random.below(args.below as usize) as i128),
        })?;
    }
    Array::new(shape, elements)
}
