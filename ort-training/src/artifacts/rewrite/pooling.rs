//! Windows: explicit padding for convolution and pooling, and pooling in forms whose gradients are right.

use super::super::error::Result;
use super::super::onnx::attribute;
use super::indexing::Part;
use super::{Outcome, Scope};

/// The windows of a convolution or pooling, with the padding that `auto_pad` stands for.
struct Windows {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// Begins, then ends.
    pads: Vec<i64>,
    /// Whether `auto_pad` said what the padding is.
    automatic: bool,
}

impl Scope<'_, '_> {
    /// ONNX Runtime's gradient of convolution takes `auto_pad` for no padding at all.
    pub(super) fn convolution(&mut self) -> Result<Outcome> {
        let windows = match self.windows() {
            Ok(windows) => windows,
            Err(reason) => return Ok(Outcome::Refuse(reason)),
        };
        if !windows.automatic {
            return Ok(Outcome::Keep);
        }
        self.pad_explicitly(&windows);
        Ok(Outcome::Done("the same with explicit padding"))
    }

    /// ONNX Runtime's gradient of MaxPool takes every size but the batch from what the model says, and writes outside
    /// its memory where the model says nothing.
    pub(super) fn max_pool(&mut self) -> Result<Outcome> {
        let x = self.x();
        let rank = self.rank(&x).unwrap_or_default();
        if rank > 2 && (1..rank).all(|axis| self.known_dim(&x, axis).is_some()) {
            return self.convolution();
        }
        if self.source.int("storage_order") == Some(1) {
            return Ok(Outcome::Refuse(
                "its indices are in column order and its input's sizes are not known".to_owned(),
            ));
        }
        // The indices of the maxima count through the whole tensor.
        let indices = match self.source.output_name(1) {
            Some(name) => name.to_owned(),
            None => self.fresh("indices"),
        };
        let mut pool = self.source.clone();
        pool.output = vec![self.fresh("maximum"), indices.clone()];
        self.nodes.push(pool);
        let flat = self.reshape(&x, &[-1]);
        let y = self.op_with("Gather", &[&flat, &indices], [attribute::int("axis", 0)]);
        self.finish(&y);
        Ok(Outcome::Done("Gather of the maxima"))
    }

    /// ONNX Runtime's gradient of AveragePool takes all sizes from what the model says, the batch, too; it ignores
    /// dilations, and is wrong in three dimensions.
    pub(super) fn average_pool(&mut self) -> Result<Outcome> {
        let x = self.x();
        let windows = match self.windows() {
            Ok(windows) => windows,
            Err(reason) => return Ok(Outcome::Refuse(reason)),
        };
        let dilated = windows.dilations.iter().any(|&d| d > 1);
        if self.fixed_shape(&x).is_some_and(|shape| shape.len() <= 4) && !dilated {
            if windows.automatic {
                self.pad_explicitly(&windows);
                return Ok(Outcome::Done("the same with explicit padding"));
            }
            return Ok(Outcome::Keep);
        }
        self.average_by_convolution(&x, windows)
    }

    /// An average is a convolution with equal weights; what pads do not count for is divided out.
    fn average_by_convolution(&mut self, x: &str, mut windows: Windows) -> Result<Outcome> {
        let spatial = windows.kernel.len();
        let counts_pads = self.source.int("count_include_pad") == Some(1);
        if self.source.int("ceil_mode") == Some(1) {
            for axis in 0..spatial {
                let Some(size) = self.known_dim(x, axis + 2) else {
                    return Ok(Outcome::Refuse(format!(
                        "it rounds up (ceil_mode) and the size of axis {} of its input is not known",
                        axis + 2
                    )));
                };
                let stride = windows.strides[axis];
                let window = windows.dilations[axis] * (windows.kernel[axis] - 1) + 1;
                let padded = size + windows.pads[axis] + windows.pads[spatial + axis];
                let beyond = (padded - window + stride - 1) / stride * stride + window - padded;
                if beyond > 0 && counts_pads {
                    return Ok(Outcome::Refuse(
                        "it rounds up (ceil_mode) and counts padding".to_owned(),
                    ));
                }
                windows.pads[spatial + axis] += beyond;
            }
        }
        let elements: i64 = windows.kernel.iter().product();
        let mut shape = vec![Part::Fixed(-1), Part::Fixed(1)];
        shape.extend((0..spatial).map(|axis| Part::Times(x, axis + 2, 1)));
        let flat = self.reshape_to(x, &shape);
        let mut dims = vec![1, 1];
        dims.extend(&windows.kernel);
        let weight = self.numbers(x, &dims, &vec![1.0 / elements as f64; elements as usize]);
        let attributes = [
            attribute::ints("kernel_shape", &windows.kernel),
            attribute::ints("strides", &windows.strides),
            attribute::ints("dilations", &windows.dilations),
            attribute::ints("pads", &windows.pads),
        ];
        let mut y = self.op_with("Conv", &[&flat, &weight], attributes.clone());
        let sizes = y.clone();
        if !counts_pads && windows.pads.iter().any(|&p| p > 0) {
            let shape = self.op("Shape", &[&flat]);
            let all: Vec<i64> = (2..2 + spatial as i64).collect();
            let tail = self.gather(&shape, 0, &all);
            let head = self.integers(&[1, 1]);
            let shape = self.op_with("Concat", &[&head, &tail], [attribute::int("axis", 0)]);
            let one = self.number(x, 1.0);
            let ones = self.op("Expand", &[&one, &shape]);
            let share = self.op_with("Conv", &[&ones, &weight], attributes);
            y = self.op("Div", &[&y, &share]);
        }
        let mut shape = vec![Part::Times(x, 0, 1), Part::Times(x, 1, 1)];
        shape.extend((0..spatial).map(|axis| Part::Times(&sizes, axis + 2, 1)));
        let y = self.reshape_to(&y, &shape);
        self.finish(&y);
        Ok(Outcome::Done("Conv with equal weights"))
    }

    fn pad_explicitly(&mut self, windows: &Windows) {
        let mut padded = self.source.clone();
        padded
            .attribute
            .retain(|a| !matches!(a.name.as_deref(), Some("auto_pad" | "pads")));
        padded
            .attribute
            .push(attribute::ints("pads", &windows.pads));
        self.nodes.push(padded);
    }

    fn windows(&self) -> Result<Windows, String> {
        let x = self.x();
        let mode = self.source.string("auto_pad").unwrap_or("NOTSET");
        let kernel = match self.source.ints("kernel_shape") {
            Some(kernel) => kernel.to_vec(),
            None => match self.input(1).and_then(|weight| self.fixed_shape(weight)) {
                Some(shape) if shape.len() > 2 => shape[2..].to_vec(),
                _ if mode == "NOTSET" => Vec::new(),
                _ => return Err("the shape of its kernel is not known".to_owned()),
            },
        };
        let spatial = kernel.len();
        let ints = |name: &str, count: usize, default: i64| {
            self.source
                .ints(name)
                .filter(|v| v.len() == count)
                .map_or(vec![default; count], <[i64]>::to_vec)
        };
        let (strides, dilations) = (ints("strides", spatial, 1), ints("dilations", spatial, 1));
        let automatic = mode != "NOTSET";
        let mut pads = if automatic {
            vec![0; 2 * spatial]
        } else {
            ints("pads", 2 * spatial, 0)
        };
        if mode.starts_with("SAME") {
            for axis in 0..spatial {
                let window = dilations[axis] * (kernel[axis] - 1) + 1;
                let total = match self.known_dim(&x, axis + 2) {
                    Some(size) => {
                        let outputs = (size + strides[axis] - 1) / strides[axis];
                        ((outputs - 1) * strides[axis] + window - size).max(0)
                    }
                    // Without strides it is the same for every size.
                    None if strides[axis] == 1 => window - 1,
                    None => {
                        return Err(format!(
                            "its auto_pad is {mode} and the size of axis {} of its input is not known",
                            axis + 2
                        ));
                    }
                };
                let (small, large) = (total / 2, total - total / 2);
                (pads[axis], pads[spatial + axis]) = if mode == "SAME_UPPER" {
                    (small, large)
                } else {
                    (large, small)
                };
            }
        }
        Ok(Windows {
            kernel,
            strides,
            dilations,
            pads,
            automatic,
        })
    }
}
