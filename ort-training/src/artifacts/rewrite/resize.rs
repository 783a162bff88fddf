//! Resize as what it is: a linear map along each axis. Nearest picks elements, linear and cubic weigh them.

use super::super::error::Result;
use super::indexing::Part;
use super::sizes::{Size, size_of};
use super::{Outcome, Scope};

/// How one axis is resized.
struct Axis {
    index: usize,
    input: i64,
    output: i64,
    scale: f32,
}

/// What Resize's attributes say.
struct Settings {
    mode: String,
    coordinates: String,
    nearest: String,
    cubic_a: f32,
    exclude_outside: bool,
}

impl Scope<'_, '_> {
    pub(super) fn resize(&mut self) -> Result<Outcome> {
        let text =
            |name: &str, default: &str| self.source.string(name).unwrap_or(default).to_owned();
        let settings = Settings {
            mode: text("mode", "nearest"),
            coordinates: text("coordinate_transformation_mode", "half_pixel"),
            nearest: text("nearest_mode", "round_prefer_floor"),
            cubic_a: self.source.float("cubic_coeff_a").unwrap_or(-0.75),
            exclude_outside: self.source.int("exclude_outside") == Some(1),
        };
        if self.source.int("antialias") == Some(1) {
            return Ok(Outcome::Refuse(
                "it is antialiased, for which there is no rewrite".to_owned(),
            ));
        }
        if settings.coordinates == "tf_crop_and_resize" {
            return Ok(Outcome::Refuse(
                "it crops (tf_crop_and_resize), for which there is no rewrite".to_owned(),
            ));
        }
        if !matches!(
            text("keep_aspect_ratio_policy", "stretch").as_str(),
            "stretch"
        ) {
            return Ok(Outcome::Refuse(
                "it keeps the aspect ratio, for which there is no rewrite".to_owned(),
            ));
        }
        let axes = match self.resized_axes(&settings) {
            Ok(axes) => axes,
            Err(reason) => return Ok(Outcome::Refuse(reason)),
        };
        if settings.mode == "nearest" {
            return Ok(self.pick(&axes, &settings));
        }
        let mut value = self.x();
        let rank = self.rank(&value).unwrap_or_default();
        for axis in &axes {
            value = self.weigh(&value, axis, &settings, rank);
        }
        self.finish(&value);
        Ok(Outcome::Done(
            "MatMul with a constant matrix along each axis",
        ))
    }

    /// Nearest: elements are repeated where the scale is a whole number, else picked by their indices. (The gradient of
    /// repeating is a sum, twice as fast as that of picking.)
    fn pick(&mut self, axes: &[Axis], settings: &Settings) -> Outcome {
        let x = self.x();
        let mut value = x.clone();
        let (repeated, picked): (Vec<&Axis>, Vec<&Axis>) = axes
            .iter()
            .partition(|axis| repeats(axis, settings).is_some());
        if !repeated.is_empty() {
            // [N, C, H, W] → [N, C, H, 1, W, 1] → [N, C, H, k, W, k] → [N, C, k·H, k·W]
            let rank = self.rank(&x).unwrap_or_default();
            let (mut new_axes, mut expanded, mut shape) = (Vec::new(), Vec::new(), Vec::new());
            for index in 0..rank {
                expanded.push(1);
                let times = repeated
                    .iter()
                    .find(|axis| axis.index == index)
                    .and_then(|axis| repeats(axis, settings))
                    .inspect(|times| {
                        new_axes.push(expanded.len() as i64);
                        expanded.push(*times);
                    });
                shape.push(Part::Times(&x, index, times.unwrap_or(1)));
            }
            let apart = self.unsqueeze(&value, &new_axes);
            let expanded = self.integers(&expanded);
            let full = self.op("Expand", &[&apart, &expanded]);
            value = self.reshape_to(&full, &shape);
        }
        for axis in &picked {
            let indices: Vec<i64> = (0..axis.output)
                .map(|at| nearest(at, axis, settings))
                .collect();
            value = self.gather(&value, axis.index as i64, &indices);
        }
        self.finish(&value);
        Outcome::Done(if picked.is_empty() {
            "Expand and Reshape"
        } else {
            "Gather along each axis"
        })
    }

    /// y = x times a constant matrix along one axis.
    fn weigh(&mut self, value: &str, axis: &Axis, settings: &Settings, rank: usize) -> String {
        let matrix = weights(axis, settings);
        let (rows, columns) = (axis.output as usize, axis.input as usize);
        let x = self.x();
        if axis.index + 2 == rank {
            let matrix = self.numbers(&x, &[axis.output, axis.input], &matrix);
            return self.op("MatMul", &[&matrix, value]);
        }
        let turned: Vec<f64> = (0..columns)
            .flat_map(|c| (0..rows).map(move |r| (r, c)))
            .map(|(r, c)| matrix[r * columns + c])
            .collect();
        let turned = self.numbers(&x, &[axis.input, axis.output], &turned);
        if axis.index + 1 == rank {
            return self.op("MatMul", &[value, &turned]);
        }
        let mut order: Vec<i64> = (0..rank as i64).collect();
        order.swap(axis.index, rank - 1);
        let last = self.transpose(value, &order);
        let product = self.op("MatMul", &[&last, &turned]);
        self.transpose(&product, &order)
    }

    fn resized_axes(&self, settings: &Settings) -> Result<Vec<Axis>, String> {
        let x = self.x();
        let rank = self.rank(&x).ok_or("its input's rank is not known")?;
        let scales = match self.input(2) {
            None => None,
            Some(name) => match self.constant(name) {
                Some(values) => Some(values.floats()).filter(|scales| !scales.is_empty()),
                None => return Err("its scales are not constant".to_owned()),
            },
        };
        let sizes = match self.input(3) {
            None => None,
            Some(name) => Some(
                self.sizes(name)
                    .ok_or("its sizes are not known: they do not follow from shapes")?,
            ),
        };
        let axes: Vec<usize> = match self.source.ints("axes") {
            Some(axes) if !axes.is_empty() => axes
                .iter()
                .map(|&a| if a < 0 { a + rank as i64 } else { a } as usize)
                .collect(),
            _ => (0..rank).collect(),
        };
        let given = match (&sizes, &scales) {
            (Some(sizes), _) => sizes.len(),
            (None, Some(scales)) => scales.len(),
            (None, None) => return Err("it has neither scales nor sizes".to_owned()),
        };
        if given != axes.len() {
            return Err(format!(
                "it has {given} scales or sizes for {} axes",
                axes.len()
            ));
        }
        let mut resized = Vec::new();
        for (i, &index) in axes.iter().enumerate() {
            let known = self.known_dim(&x, index);
            let scale = scales.as_ref().map(|s| s[i] as f32);
            let size = match sizes.as_ref().map(|s| &s[i]) {
                None => None,
                Some(Size::Known(size)) => Some(*size),
                // As large as it was.
                Some(same) if Some(same) == size_of(self.rewriter.types, &x, index).as_ref() => {
                    continue;
                }
                Some(_) => {
                    return Err(format!(
                        "the size of axis {index} of its output is not known"
                    ));
                }
            };
            if size.is_none() && scale == Some(1.0) {
                continue;
            }
            let Some(input) = known else {
                // A whole number of repetitions is the same for every size; this one stands for all.
                let probe = Axis {
                    index,
                    input: 16,
                    output: scale.map_or(0, |s| (16.0 * s) as i64),
                    scale: scale.unwrap_or(0.0),
                };
                let size_matters = matches!(
                    settings.coordinates.as_str(),
                    "align_corners" | "half_pixel_symmetric"
                );
                if size.is_none()
                    && settings.mode == "nearest"
                    && !size_matters
                    && repeats(&probe, settings).is_some()
                {
                    resized.push(probe);
                    continue;
                }
                return Err(format!(
                    "the size of axis {index} of its input is not known"
                ));
            };
            let (output, scale) = match (size, scale) {
                (Some(size), _) => (size, size as f32 / input as f32),
                (None, Some(scale)) => ((input as f32 * scale).floor() as i64, scale),
                (None, None) => return Err("it has neither scales nor sizes".to_owned()),
            };
            if output != input || scale != 1.0 {
                resized.push(Axis {
                    index,
                    input,
                    output,
                    scale,
                });
            }
        }
        Ok(resized)
    }
}

/// Where an output element lies among the input's, in single precision, as ONNX Runtime computes it.
fn coordinate(at: i64, axis: &Axis, settings: &Settings) -> f32 {
    let (at, input, output) = (at as f32, axis.input as f32, axis.output as f32);
    match settings.coordinates.as_str() {
        "asymmetric" => at / axis.scale,
        "align_corners" if output == 1.0 => 0.0,
        "align_corners" => at * (input - 1.0) / (output - 1.0),
        "pytorch_half_pixel" if output <= 1.0 => 0.0,
        "tf_half_pixel_for_nn" => (at + 0.5) / axis.scale,
        "half_pixel_symmetric" => {
            let adjustment = output / (axis.scale * input);
            let offset = input / 2.0 * (1.0 - adjustment);
            offset + (at + 0.5) / axis.scale - 0.5
        }
        _ => (at + 0.5) / axis.scale - 0.5,
    }
}

/// How often each element of an axis is repeated; `None` when nearest is not that.
fn repeats(axis: &Axis, settings: &Settings) -> Option<i64> {
    let times = axis
        .output
        .checked_div(axis.input)
        .filter(|times| times * axis.input == axis.output)?;
    (0..axis.output)
        .all(|at| nearest(at, axis, settings) == at / times)
        .then_some(times)
}

fn nearest(at: i64, axis: &Axis, settings: &Settings) -> i64 {
    let original = coordinate(at, axis, settings);
    let picked = match settings.nearest.as_str() {
        "floor" => original.floor(),
        "ceil" => original.ceil(),
        "round_prefer_ceil" => original.round(),
        // Halves go down.
        _ if original == original.trunc() + 0.5 => original.floor(),
        _ => original.round(),
    };
    (picked as i64).clamp(0, axis.input - 1)
}

/// The matrix of an axis, row by row.
fn weights(axis: &Axis, settings: &Settings) -> Vec<f64> {
    let (rows, columns) = (axis.output as usize, axis.input as usize);
    let mut matrix = vec![0.0; rows * columns];
    for row in 0..rows {
        let original = coordinate(row as i64, axis, settings);
        let taps: Vec<(i64, f64)> = if settings.mode == "cubic" {
            cubic(original, axis.input, settings)
        } else {
            let inside = original.clamp(0.0, (axis.input - 1) as f32);
            let low = inside.floor() as i64;
            let share = f64::from(inside - inside.floor());
            vec![(low, 1.0 - share), (low + 1, share)]
        };
        for (column, weight) in taps {
            matrix[row * columns + column.clamp(0, axis.input - 1) as usize] += weight;
        }
    }
    matrix
}

fn cubic(original: f32, input: i64, settings: &Settings) -> Vec<(i64, f64)> {
    let floor = original.floor();
    let (s, a) = (f64::from(original - floor), f64::from(settings.cubic_a));
    let far = |d: f64| ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
    let near = |d: f64| ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    let weights = [far(s + 1.0), near(s), near(1.0 - s), far(2.0 - s)];
    let mut taps: Vec<(i64, f64)> = (floor as i64 - 1..).zip(weights).collect();
    if settings.exclude_outside {
        taps.retain(|&(at, _)| (0..input).contains(&at));
        let total: f64 = taps.iter().map(|(_, w)| w).sum();
        taps.iter_mut().for_each(|(_, w)| *w /= total);
    }
    taps
}
