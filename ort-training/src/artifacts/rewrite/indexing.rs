//! Rewrites that only move elements.

use super::super::error::Result;
use super::super::onnx::{Dimension, DimensionValue, attribute};
use super::{Outcome, Scope};

/// A dimension of a shape that is put together: a number, or a multiple of a dimension of a value.
pub(super) enum Part<'a> {
    Fixed(i64),
    Times(&'a str, usize, i64),
}

impl Scope<'_, '_> {
    /// Reshapes to a shape of which parts are known only when the model runs.
    pub(super) fn reshape_to(&mut self, value: &str, parts: &[Part<'_>]) -> String {
        let numbers: Option<Vec<i64>> = parts
            .iter()
            .map(|part| match part {
                Part::Fixed(n) => Some(*n),
                Part::Times(of, axis, factor) => self.known_dim(of, *axis).map(|d| d * factor),
            })
            .collect();
        if let Some(numbers) = numbers {
            return self.reshape(value, &numbers);
        }
        let mut dims = Vec::new();
        for part in parts {
            dims.push(match part {
                Part::Fixed(n) => self.integers(&[*n]),
                Part::Times(of, axis, factor) => match self.known_dim(of, *axis) {
                    Some(dim) => self.integers(&[dim * factor]),
                    None => {
                        let shape = self.op("Shape", &[of]);
                        let dim = self.gather(&shape, 0, &[*axis as i64]);
                        let factor = self.integers(&[*factor]);
                        self.op("Mul", &[&dim, &factor])
                    }
                },
            });
        }
        let dims: Vec<&str> = dims.iter().map(String::as_str).collect();
        let shape = self.op_with("Concat", &dims, [attribute::int("axis", 0)]);
        self.op("Reshape", &[value, &shape])
    }

    /// ONNX Runtime's gradient of Where does not undo broadcasting; that of Expand does.
    pub(super) fn where_with_broadcast(&mut self) -> Result<Outcome> {
        let y = self.y();
        let output = self.dims(&y);
        let inputs = self.source.input.clone();
        let broadcast: Vec<usize> = (1..3)
            .filter(|&i| self.rewriter.active.contains(&inputs[i]))
            .filter(|&i| !same_shape(self.dims(&inputs[i]).as_deref(), output.as_deref()))
            .collect();
        if broadcast.is_empty() {
            return Ok(Outcome::Keep);
        }
        let shape = match self.fixed_shape(&y) {
            Some(shape) => self.integers(&shape),
            None => {
                let unshaped = self.op("Where", &[&inputs[0], &inputs[1], &inputs[2]]);
                self.op("Shape", &[&unshaped])
            }
        };
        let mut operands = inputs.clone();
        for i in broadcast {
            operands[i] = self.op("Expand", &[&inputs[i], &shape]);
        }
        let value = self.op("Where", &[&operands[0], &operands[1], &operands[2]]);
        self.finish(&value);
        Ok(Outcome::Done("Where of expanded operands"))
    }

    pub(super) fn pad(&mut self) -> Result<Outcome> {
        let x = self.x();
        let mode = self.source.string("mode").unwrap_or("constant").to_owned();
        let has_axes = self.input(3).is_some();
        if mode == "constant" && !has_axes {
            return Ok(Outcome::Keep);
        }
        let Some(rank) = self.rank(&x) else {
            return Ok(Outcome::Refuse(format!(
                "its mode is '{mode}' and its input's rank is not known"
            )));
        };
        let integers = |scope: &Self, index: usize| {
            scope
                .input(index)
                .and_then(|name| scope.constant(name))
                .and_then(|v| v.ints().map(<[i64]>::to_vec))
        };
        let Some(pads) = integers(self, 1) else {
            return Ok(Outcome::Refuse(format!(
                "its mode is '{mode}' and its pads are not constant"
            )));
        };
        let axes: Vec<i64> = match (has_axes, integers(self, 3)) {
            (false, _) => (0..rank as i64).collect(),
            (true, Some(axes)) => axes
                .iter()
                .map(|&a| if a < 0 { a + rank as i64 } else { a })
                .collect(),
            (true, None) => return Ok(Outcome::Refuse("its axes are not constant".to_owned())),
        };
        let count = axes.len();
        if mode == "constant" {
            // The gradient of Pad forgets the axes.
            let mut all = vec![0; 2 * rank];
            for (i, &axis) in axes.iter().enumerate() {
                all[axis as usize] = pads[i];
                all[rank + axis as usize] = pads[count + i];
            }
            let all = self.integers(&all);
            let mut inputs = vec![x.clone(), all];
            inputs.extend(self.input(2).map(str::to_owned));
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let value = self.op("Pad", &inputs);
            self.finish(&value);
            return Ok(Outcome::Done("Pad of all axes"));
        }
        let mut value = x.clone();
        for (i, &axis) in axes.iter().enumerate() {
            let (before, after) = (pads[i], pads[count + i]);
            if before == 0 && after == 0 {
                continue;
            }
            let Some(size) = self.known_dim(&x, axis as usize) else {
                return Ok(Outcome::Refuse(format!(
                    "its mode is '{mode}' and the size of axis {axis} is not known"
                )));
            };
            let indices: Vec<i64> = (-before..size + after)
                .map(|at| match mode.as_str() {
                    "edge" => at.clamp(0, size - 1),
                    "wrap" => at.rem_euclid(size),
                    _ => reflect(at, size),
                })
                .collect();
            value = self.gather(&value, axis, &indices);
        }
        self.finish(&value);
        Ok(Outcome::Done("Gather along each padded axis"))
    }

    /// The gradient of Split joins the gradients of the parts, and forgets those that have none.
    pub(super) fn split_in_part(&mut self) -> Result<Outcome> {
        let outputs = self.source.output.clone();
        if outputs
            .iter()
            .all(|output| self.rewriter.active.contains(output))
        {
            return Ok(Outcome::Keep);
        }
        let x = self.x();
        let axis = self.source.int("axis").unwrap_or(0);
        let given = match self.input(1) {
            Some(name) => self
                .constant(name)
                .and_then(|v| v.ints().map(<[i64]>::to_vec)),
            None => self.source.ints("split").map(<[i64]>::to_vec).or_else(|| {
                let rank = self.rank(&x)? as i64;
                let size =
                    self.known_dim(&x, if axis < 0 { axis + rank } else { axis } as usize)?;
                let part = (size + outputs.len() as i64 - 1) / outputs.len() as i64;
                Some(
                    (0..outputs.len() as i64)
                        .map(|i| part.min(size - i * part))
                        .collect(),
                )
            }),
        };
        let Some(parts) = given else {
            return Ok(Outcome::Refuse(
                "a part of it is not used, and the sizes of its parts are not known".to_owned(),
            ));
        };
        let mut start = 0;
        for (output, part) in outputs.iter().zip(parts) {
            if self.rewriter.active.contains(output) {
                let [from, to, along] = [start, start + part, axis].map(|n| self.integers(&[n]));
                self.op_to("Slice", &[&x, &from, &to, &along], output, []);
            } else if !output.is_empty() {
                // Not a Slice: ONNX Runtime would join it with the others to a Split again.
                let indices: Vec<i64> = (start..start + part).collect();
                let indices = self.integers(&indices);
                self.op_to(
                    "Gather",
                    &[&x, &indices],
                    output,
                    [attribute::int("axis", axis)],
                );
            }
            start += part;
        }
        Ok(Outcome::Done("a Slice for each part"))
    }

    /// A slice that runs backwards to the first element has an end that ONNX Runtime's gradient cannot read.
    pub(super) fn slice_backwards(&mut self) -> Result<Outcome> {
        let integers = |index: usize| {
            self.input(index)
                .and_then(|name| self.constant(name))
                .and_then(|v| v.ints().map(<[i64]>::to_vec))
        };
        let Some(steps) = integers(4).filter(|steps| steps.iter().any(|&s| s < 0)) else {
            return Ok(Outcome::Keep);
        };
        let (Some(starts), Some(ends)) = (integers(1), integers(2)) else {
            return Ok(Outcome::Refuse(
                "it runs backwards and its bounds are not constant".to_owned(),
            ));
        };
        let x = self.x();
        let Some(rank) = self.rank(&x) else {
            return Ok(Outcome::Refuse(
                "it runs backwards and its input's rank is not known".to_owned(),
            ));
        };
        let axes = integers(3).unwrap_or_else(|| (0..starts.len() as i64).collect());
        let mut value = x.clone();
        for (i, &axis) in axes.iter().enumerate() {
            let axis = if axis < 0 { axis + rank as i64 } else { axis };
            let Some(size) = self.known_dim(&x, axis as usize) else {
                return Ok(Outcome::Refuse(format!(
                    "it runs backwards and the size of axis {axis} is not known"
                )));
            };
            value = self.gather(&value, axis, &sliced(size, starts[i], ends[i], steps[i]));
        }
        self.finish(&value);
        Ok(Outcome::Done("Gather along each axis"))
    }

    /// The gradient of scattering takes every update for an assignment.
    pub(super) fn scatter_with_reduction(&mut self) -> Result<Outcome> {
        match self.source.string("reduction").unwrap_or("none") {
            "none" => return Ok(Outcome::Keep),
            "add" => {}
            other => {
                return Ok(Outcome::Refuse(format!(
                    "its reduction is '{other}', which its gradient ignores"
                )));
            }
        }
        // Added to zeros, updates have the gradient of assignments, and the data that of a summand.
        let x = self.x();
        let shape = self.op("Shape", &[&x]);
        let zero = self.number(&x, 0.0);
        let zeros = self.op("Expand", &[&zero, &shape]);
        let mut scatter = self.source.clone();
        let updates = self.fresh("updates");
        scatter.input[0] = zeros;
        scatter.output = vec![updates.clone()];
        self.nodes.push(scatter);
        let y = self.op("Add", &[&x, &updates]);
        self.finish(&y);
        Ok(Outcome::Done("a sum with scattered zeros"))
    }

    pub(super) fn depth_to_space(&mut self) -> Result<Outcome> {
        let x = self.x();
        let (Some(channels), Some(block)) = (self.known_dim(&x, 1), self.source.int("blocksize"))
        else {
            return Ok(Outcome::Refuse(
                "its number of channels is not known".to_owned(),
            ));
        };
        let depth = channels / (block * block);
        let column_row = self.source.string("mode") == Some("CRD");
        let (h, w) = (Part::Times(&x, 2, 1), Part::Times(&x, 3, 1));
        let batch = Part::Times(&x, 0, 1);
        let (split, order) = if column_row {
            (
                [
                    batch,
                    Part::Fixed(depth),
                    Part::Fixed(block),
                    Part::Fixed(block),
                    h,
                    w,
                ],
                [0, 1, 4, 2, 5, 3],
            )
        } else {
            (
                [
                    batch,
                    Part::Fixed(block),
                    Part::Fixed(block),
                    Part::Fixed(depth),
                    h,
                    w,
                ],
                [0, 3, 4, 1, 5, 2],
            )
        };
        let split = self.reshape_to(&x, &split);
        let moved = self.transpose(&split, &order);
        let value = self.reshape_to(
            &moved,
            &[
                Part::Times(&x, 0, 1),
                Part::Fixed(depth),
                Part::Times(&x, 2, block),
                Part::Times(&x, 3, block),
            ],
        );
        self.finish(&value);
        Ok(Outcome::Done("Reshape and Transpose"))
    }

    pub(super) fn space_to_depth(&mut self) -> Result<Outcome> {
        let x = self.x();
        let shape = self.fixed_shape(&x);
        let sizes = (1..4)
            .map(|axis| self.known_dim(&x, axis))
            .collect::<Option<Vec<i64>>>();
        let (Some(sizes), Some(block)) = (sizes, self.source.int("blocksize")) else {
            return Ok(Outcome::Refuse(format!(
                "its input's sizes are not known ({shape:?})"
            )));
        };
        let (channels, height, width) = (sizes[0], sizes[1] / block, sizes[2] / block);
        let split = self.reshape(&x, &[-1, channels, height, block, width, block]);
        let moved = self.transpose(&split, &[0, 3, 5, 1, 2, 4]);
        let value = self.reshape(&moved, &[-1, channels * block * block, height, width]);
        self.finish(&value);
        Ok(Outcome::Done("Reshape and Transpose"))
    }
}

/// The indices that a slice of an axis picks.
fn sliced(size: i64, start: i64, end: i64, step: i64) -> Vec<i64> {
    let from_end = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let (start, end) = (
        from_end(start).clamp(low.max(0), high),
        from_end(end).clamp(low, high),
    );
    let mut picked = Vec::new();
    let mut at = start;
    while (step > 0 && at < end) || (step < 0 && at > end) {
        picked.push(at);
        at += step;
    }
    picked
}

/// Mirrors an index at the edges, which are not repeated, as often as it takes.
fn reflect(at: i64, size: i64) -> i64 {
    if size == 1 {
        return 0;
    }
    let period = 2 * (size - 1);
    let folded = at.rem_euclid(period);
    if folded < size {
        folded
    } else {
        period - folded
    }
}

fn same_shape(a: Option<&[Dimension]>, b: Option<&[Dimension]>) -> bool {
    let (Some(a), Some(b)) = (a, b) else {
        return false;
    };
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| match (&a.value, &b.value) {
            (Some(DimensionValue::DimValue(a)), Some(DimensionValue::DimValue(b))) => a == b,
            (Some(DimensionValue::DimParam(a)), Some(DimensionValue::DimParam(b))) => {
                !a.is_empty() && a == b
            }
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::{reflect, sliced};

    #[test]
    fn slices_pick_what_onnx_says() {
        assert_eq!(sliced(4, 3, -5, -2), [3, 1]);
        assert_eq!(sliced(4, -1, i64::MIN, -1), [3, 2, 1, 0]);
        assert_eq!(sliced(4, i64::MAX, 0, -1), [3, 2, 1]);
        assert_eq!(sliced(5, 1, i64::MAX, 2), [1, 3]);
        assert_eq!(sliced(5, -3, -1, 1), [2, 3]);
        assert!(sliced(5, 4, 2, 1).is_empty());
    }

    #[test]
    fn reflection_does_not_repeat_the_edge() {
        let padded: Vec<i64> = (-3..7).map(|i| reflect(i, 4)).collect();
        assert_eq!(padded, [3, 2, 1, 0, 1, 2, 3, 2, 1, 0]);
        assert_eq!(reflect(-5, 1), 0);
        assert_eq!(
            (-4..5).map(|i| reflect(i, 2)).collect::<Vec<_>>(),
            [0, 1, 0, 1, 0, 1, 0, 1, 0]
        );
    }
}
