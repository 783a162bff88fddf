//! A model's inputs and outputs, and the check of what is fed against them.

use std::fmt;

use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::shape::Dimensions;
use crate::value::{AsValue, Value};

/// A dimension as a model declares it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// It must have this length.
    Fixed(usize),
    /// It may have any length; the name that the model gives it, or an empty one.
    Symbolic(String),
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(length) => write!(f, "{length}"),
            Self::Symbolic(name) if name.is_empty() => f.write_str("any"),
            Self::Symbolic(name) => f.write_str(name),
        }
    }
}

/// An input or output of a model: its name, and type and shape as far as the model declares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoInfo {
    pub(crate) name: String,
    pub(crate) element_type: Option<ElementType>,
    pub(crate) dimensions: Option<Vec<Dimension>>,
}

impl IoInfo {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its elements, if it is a tensor of a declared type.
    #[must_use]
    pub fn element_type(&self) -> Option<ElementType> {
        self.element_type
    }

    /// Its dimensions, if the model declares the rank.
    #[must_use]
    pub fn dimensions(&self) -> Option<&[Dimension]> {
        self.dimensions.as_deref()
    }

    /// The dimensions, if all of them are fixed.
    pub(crate) fn fixed_shape(&self) -> Option<Vec<usize>> {
        self.dimensions
            .as_ref()?
            .iter()
            .map(|dimension| match dimension {
                Dimension::Fixed(length) => Some(*length),
                Dimension::Symbolic(_) => None,
            })
            .collect()
    }

    /// Whether `value` fits. The fast path formats nothing and allocates nothing.
    fn accepts(&self, value: &Value, empty: Empty) -> Result<bool> {
        let found = value.info()?;
        if self
            .element_type
            .is_some_and(|wanted| wanted != found.element_type)
            || (empty == Empty::Refused && found.count == 0)
        {
            return Ok(false);
        }
        let Some(dimensions) = &self.dimensions else {
            return Ok(true);
        };
        Ok(dimensions.len() == found.shape.len()
            && dimensions
                .iter()
                .zip(&found.shape)
                .all(|(dimension, found)| match dimension {
                    Dimension::Fixed(length) => length == found,
                    Dimension::Symbolic(_) => true,
                }))
    }

    #[cold]
    fn refusal(&self, value: &Value, call: &str) -> Error {
        let (element_type, shape) = match (value.element_type(), value.shape()) {
            (Ok(element_type), Ok(shape)) => (element_type, shape),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        let rank = self.dimensions.as_ref().map(|dimensions| dimensions.len());
        let reason = if self
            .element_type
            .is_some_and(|wanted| wanted != element_type)
        {
            String::new()
        } else if let Some(rank) = rank.filter(|rank| *rank != shape.len()) {
            format!(": expected rank {rank}, found rank {}", shape.len())
        } else if shape.contains(&0) {
            ": an empty batch holds nothing to learn from".to_owned()
        } else {
            String::new()
        };
        Error::invalid_argument(format!(
            "{call}: input {:?}: expected {self}, found {element_type} {}{reason}",
            self.name,
            Dimensions(shape)
        ))
    }
}

/// Type and shape, such as `float32 [batch, 64]`.
impl fmt::Display for IoInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.element_type {
            Some(element_type) => write!(f, "{element_type}")?,
            None => f.write_str("any type")?,
        }
        let Some(dimensions) = &self.dimensions else {
            return f.write_str(" of any shape");
        };
        f.write_str(" [")?;
        for (index, dimension) in dimensions.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dimension}")?;
        }
        f.write_str("]")
    }
}

/// Whether a call takes tensors without elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Empty {
    Allowed,
    Refused,
}

fn list(infos: &[IoInfo]) -> String {
    infos
        .iter()
        .map(|info| format!("{:?} {info}", info.name))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Checks `inputs` against what the model wants, in its order. `call` says for the error what was being done.
pub(crate) fn check_inputs(
    call: &str,
    wanted: &[IoInfo],
    inputs: &[&dyn AsValue],
    empty: Empty,
) -> Result<()> {
    if wanted.len() != inputs.len() {
        return Err(Error::invalid_argument(format!(
            "{call}: expected {} inputs ({}), found {}",
            wanted.len(),
            list(wanted),
            inputs.len()
        )));
    }
    for (at, (info, input)) in wanted.iter().zip(inputs).enumerate() {
        let value = input.as_value();
        if !info.accepts(value, empty)? {
            return Err(info.refusal(value, call));
        }
        check_symbols(call, at, wanted, inputs)?;
    }
    Ok(())
}

/// A model means one length wherever it uses a name: compares the named dimensions of input `at` with the inputs before.
fn check_symbols(call: &str, at: usize, wanted: &[IoInfo], inputs: &[&dyn AsValue]) -> Result<()> {
    let Some(dimensions) = wanted[at].dimensions.as_ref().filter(|_| at > 0) else {
        return Ok(());
    };
    for (dimension, &length) in dimensions.iter().zip(inputs[at].as_value().shape()?) {
        let Dimension::Symbolic(name) = dimension else {
            continue;
        };
        if name.is_empty() {
            continue;
        }
        for (info, input) in wanted[..at].iter().zip(inputs) {
            let Some(earlier) = &info.dimensions else {
                continue;
            };
            for (dimension, &other) in earlier.iter().zip(input.as_value().shape()?) {
                if other != length
                    && matches!(dimension, Dimension::Symbolic(other) if other == name)
                {
                    return Err(Error::invalid_argument(format!(
                        "{call}: input {:?}: expected {name} = {other}, as input {:?} has, found {length}",
                        wanted[at].name, info.name
                    )));
                }
            }
        }
    }
    Ok(())
}

/// Refuses device memory where no execution provider has a device: such a session takes every address for host memory
/// and reads it (utils.cc, `FinalizeFeedFetchCopyInfo`, copies nothing then).
pub(crate) fn check_places(
    call: &str,
    has_device: bool,
    wanted: &[IoInfo],
    inputs: &[&dyn AsValue],
) -> Result<()> {
    if has_device {
        return Ok(());
    }
    for (info, input) in wanted.iter().zip(inputs) {
        if !input.as_value().info()?.is_host {
            return Err(Error::invalid_argument(format!(
                "{call}: input {:?}: expected host memory, as the session has no device, found device memory",
                info.name
            )));
        }
    }
    Ok(())
}

/// Puts named inputs into the model's order.
pub(crate) fn order_inputs<'a>(
    call: &str,
    wanted: &[IoInfo],
    named: &[(&str, &'a dyn AsValue)],
) -> Result<Vec<&'a dyn AsValue>> {
    for (index, (name, _)) in named.iter().enumerate() {
        if !wanted.iter().any(|info| info.name == *name) {
            return Err(Error::invalid_argument(format!(
                "{call}: input {name:?}: expected one of {}, found no such input",
                list(wanted)
            )));
        }
        if named[..index].iter().any(|(earlier, _)| earlier == name) {
            return Err(Error::invalid_argument(format!(
                "{call}: input {name:?} is given twice"
            )));
        }
    }
    wanted
        .iter()
        .map(|info| {
            named
                .iter()
                .find(|(name, _)| *name == info.name)
                .map(|(_, value)| *value)
                .ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "{call}: input {:?}: expected {info}, found none",
                        info.name
                    ))
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    fn images() -> IoInfo {
        IoInfo {
            name: "images".into(),
            element_type: Some(ElementType::Float32),
            dimensions: Some(vec![
                Dimension::Symbolic("batch".into()),
                Dimension::Fixed(3),
            ]),
        }
    }

    #[track_caller]
    fn refused(input: &dyn AsValue, words: &[&str]) {
        let error = check_inputs("step", &[images()], &[input], Empty::Refused)
            .unwrap_err()
            .to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is not in {error:?}");
        }
    }

    #[test]
    fn what_fits_passes() {
        for batch in [1, 7] {
            let tensor = Tensor::filled([batch, 3], 0f32).unwrap();
            check_inputs("step", &[images()], &[&tensor], Empty::Refused).unwrap();
        }
        let tensor = Tensor::filled([0, 3], 0f32).unwrap();
        check_inputs("run", &[images()], &[&tensor], Empty::Allowed).unwrap();
    }

    #[test]
    fn what_does_not_fit_is_named() {
        refused(
            &Tensor::filled([2, 4], 0f32).unwrap(),
            &["images", "[batch, 3]", "[2, 4]"],
        );
        refused(
            &Tensor::filled([2, 3, 1], 0f32).unwrap(),
            &["images", "rank 2", "rank 3"],
        );
        refused(
            &Tensor::filled([2, 3], 0i64).unwrap(),
            &["images", "float32", "int64"],
        );
        refused(
            &Tensor::filled([0, 3], 0f32).unwrap(),
            &["images", "empty batch"],
        );
    }

    #[test]
    fn the_number_is_checked() {
        let error = check_inputs("step", &[images()], &[], Empty::Refused)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("expected 1 inputs") && error.contains("found 0"),
            "{error}"
        );
    }

    #[test]
    fn dimensions_of_one_name_have_one_length() {
        let labels = IoInfo {
            name: "labels".into(),
            element_type: None,
            dimensions: Some(vec![Dimension::Symbolic("batch".into())]),
        };
        let (rows, one) = (
            Tensor::filled([2, 3], 0f32).unwrap(),
            Tensor::filled([1], 0i64).unwrap(),
        );
        let error =
            check_inputs("step", &[images(), labels], &[&rows, &one], Empty::Refused).unwrap_err();
        assert!(
            error.to_string().contains("\"labels\": expected batch = 2"),
            "{error}"
        );
    }
}
