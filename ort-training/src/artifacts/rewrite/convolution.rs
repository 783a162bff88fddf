//! Transposed convolution as a convolution of the input with zeros between its elements.

use super::super::error::Result;
use super::super::onnx::attribute;
use super::indexing::Part;
use super::{Outcome, Scope};

/// What a transposed convolution's attributes say, one value for each spatial axis.
struct Settings {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    output_padding: Vec<i64>,
    begin: Vec<i64>,
    end: Vec<i64>,
    group: i64,
}

impl Settings {
    /// Whether every output element comes from one input element: the windows touch and do not overlap.
    fn tiles(&self) -> bool {
        self.group == 1
            && self.kernel == self.strides
            && self.dilations.iter().all(|&d| d == 1)
            && self
                .begin
                .iter()
                .chain(&self.end)
                .chain(&self.output_padding)
                .all(|&p| p == 0)
    }
}

impl Scope<'_, '_> {
    /// Windows that tile the output (the usual way up in a U-Net): a product for each input element, whose results are
    /// its tile. No zeros are multiplied.
    fn convolve_and_spread(&mut self, x: &str, weight: &str, shape: &[i64]) -> Outcome {
        let (inputs, outputs, kernel) = (shape[0], shape[1], shape[2..].to_vec());
        let spatial = kernel.len();
        // [C_in, C_out, k…] → [C_out·k…, C_in, 1…]
        let order: Vec<i64> = (1..shape.len() as i64).chain([0]).collect();
        let turned = self.transpose(weight, &order);
        let tile: i64 = kernel.iter().product();
        let flat: Vec<i64> = [outputs * tile, inputs]
            .into_iter()
            .chain(vec![1; spatial])
            .collect();
        let pointwise = self.reshape(&turned, &flat);
        let tiles = self.op_with(
            "Conv",
            &[x, &pointwise],
            [attribute::ints("kernel_shape", &vec![1; spatial])],
        );

        // [N, C_out·kh·kw, H, W] → [N, C_out, kh, kw, H, W] → [N, C_out, H, kh, W, kw] → [N, C_out, H·kh, W·kw]
        let mut apart = vec![Part::Times(x, 0, 1), Part::Fixed(outputs)];
        apart.extend(kernel.iter().map(|&k| Part::Fixed(k)));
        apart.extend((0..spatial).map(|axis| Part::Times(x, axis + 2, 1)));
        let apart = self.reshape_to(&tiles, &apart);
        let order: Vec<i64> = [0, 1]
            .into_iter()
            .chain((0..spatial as i64).flat_map(|axis| [2 + spatial as i64 + axis, 2 + axis]))
            .collect();
        let woven = self.transpose(&apart, &order);
        let mut full = vec![Part::Times(x, 0, 1), Part::Fixed(outputs)];
        full.extend(
            kernel
                .iter()
                .enumerate()
                .map(|(axis, &k)| Part::Times(x, axis + 2, k)),
        );
        let mut y = self.reshape_to(&woven, &full);
        if let Some(bias) = self.input(2).map(str::to_owned) {
            let broadcast: Vec<i64> = [-1].into_iter().chain(vec![1; spatial]).collect();
            let bias = self.reshape(&bias, &broadcast);
            y = self.op("Add", &[&y, &bias]);
        }
        self.finish(&y);
        Outcome::Done("Conv and spreading of its tiles")
    }

    pub(super) fn conv_transpose(&mut self) -> Result<Outcome> {
        let (x, weight) = (self.x(), self.source.input[1].clone());
        let Some(weight_shape) = self.fixed_shape(&weight).filter(|s| s.len() >= 3) else {
            return Ok(Outcome::Refuse(
                "the shape of its weight is not known".to_owned(),
            ));
        };
        let settings = match self.conv_transpose_settings(&x, &weight_shape) {
            Ok(settings) => settings,
            Err(reason) => return Ok(Outcome::Refuse(reason)),
        };
        if settings.tiles() {
            return Ok(self.convolve_and_spread(&x, &weight, &weight_shape));
        }
        let spread = self.zeros_between(&x, &settings.strides);
        let kernel = self.convolution_weight(&weight, &weight_shape, settings.group);

        // A convolution does not take negative padding: what is too much is cut off afterwards.
        let spatial = settings.kernel.len();
        let mut pads = vec![0; 2 * spatial];
        let mut crops = vec![0; 2 * spatial];
        for axis in 0..spatial {
            let reach = settings.dilations[axis] * (settings.kernel[axis] - 1);
            let sides = [
                (axis, reach - settings.begin[axis]),
                (
                    spatial + axis,
                    reach - settings.end[axis] + settings.output_padding[axis],
                ),
            ];
            for (at, pad) in sides {
                pads[at] = pad.max(0);
                crops[at] = (-pad).max(0);
            }
        }
        let mut inputs = vec![spread.as_str(), kernel.as_str()];
        let bias = self.input(2).map(str::to_owned);
        inputs.extend(bias.as_deref());
        let attributes = [
            attribute::ints("kernel_shape", &settings.kernel),
            attribute::ints("dilations", &settings.dilations),
            attribute::ints("strides", &vec![1; spatial]),
            attribute::ints("pads", &pads),
            attribute::int("group", settings.group),
        ];
        let mut y = self.op_with("Conv", &inputs, attributes);
        if crops.iter().any(|&c| c > 0) {
            let ends: Vec<i64> = crops[spatial..]
                .iter()
                .map(|&c| if c > 0 { -c } else { i64::MAX })
                .collect();
            y = self.slice(&y, &crops[..spatial], &ends);
        }
        self.finish(&y);
        Ok(Outcome::Done("zero insertion and Conv"))
    }

    fn conv_transpose_settings(&self, x: &str, weight_shape: &[i64]) -> Result<Settings, String> {
        let spatial = weight_shape.len() - 2;
        let ints = |name: &str, default: i64| {
            self.source
                .ints(name)
                .filter(|v| !v.is_empty())
                .map_or(vec![default; spatial], <[i64]>::to_vec)
        };
        let kernel = weight_shape[2..].to_vec();
        let (strides, dilations) = (ints("strides", 1), ints("dilations", 1));
        let output_padding = ints("output_padding", 0);
        let auto_pad = self.source.string("auto_pad").unwrap_or("NOTSET");
        let output_shape = self.source.ints("output_shape").filter(|s| !s.is_empty());
        let (mut begin, mut end) = match self.source.ints("pads") {
            Some(pads) if pads.len() == 2 * spatial => {
                (pads[..spatial].to_vec(), pads[spatial..].to_vec())
            }
            _ => (vec![0; spatial], vec![0; spatial]),
        };
        let same = matches!(auto_pad, "SAME_UPPER" | "SAME_LOWER");
        if same || output_shape.is_some() {
            for axis in 0..spatial {
                let full = dilations[axis] * (kernel[axis] - 1) + 1 + output_padding[axis];
                // What is computed less what is wanted; `in · stride` is wanted for SAME.
                let total = match output_shape {
                    None => full - strides[axis],
                    Some(shape) => {
                        let wanted = shape[shape.len() - spatial + axis];
                        let Some(size) = self.known_dim(x, axis + 2) else {
                            return Err(
                                "it has an output_shape, and its input's size is not known"
                                    .to_owned(),
                            );
                        };
                        (size - 1) * strides[axis] + full - wanted
                    }
                }
                .max(0);
                let (small, large) = (total / 2, total - total / 2);
                (begin[axis], end[axis]) = if auto_pad == "SAME_UPPER" {
                    (small, large)
                } else {
                    (large, small)
                };
            }
        }
        let group = self.source.int("group").unwrap_or(1);
        Ok(Settings {
            kernel,
            strides,
            dilations,
            output_padding,
            begin,
            end,
            group,
        })
    }

    /// `strides - 1` zeros between neighbours.
    fn zeros_between(&mut self, x: &str, strides: &[i64]) -> String {
        if strides.iter().all(|&s| s == 1) {
            return x.to_owned();
        }
        let spatial = strides.len();
        // [N, C, H, W] → [N, C, H, 1, W, 1], each new axis padded to the stride, and folded into the one before.
        let axes: Vec<i64> = (0..spatial as i64).map(|i| 3 + 2 * i).collect();
        let apart = self.unsqueeze(x, &axes);
        let rank = 2 + 2 * spatial;
        let mut pads = vec![0; 2 * rank];
        for (i, stride) in strides.iter().enumerate() {
            pads[rank + 3 + 2 * i] = stride - 1;
        }
        let pads = self.integers(&pads);
        let padded = self.op("Pad", &[&apart, &pads]);
        let mut shape = vec![Part::Times(x, 0, 1), Part::Times(x, 1, 1)];
        shape.extend(
            strides
                .iter()
                .enumerate()
                .map(|(i, &s)| Part::Times(x, i + 2, s)),
        );
        let folded = self.reshape_to(&padded, &shape);
        // No zeros after the last element.
        let ends: Vec<i64> = strides
            .iter()
            .map(|&s| if s > 1 { 1 - s } else { i64::MAX })
            .collect();
        self.slice(&folded, &vec![0; spatial], &ends)
    }

    /// Cuts the spatial axes.
    fn slice(&mut self, value: &str, starts: &[i64], ends: &[i64]) -> String {
        let axes: Vec<i64> = (2..2 + starts.len() as i64).collect();
        let (starts, ends, axes) = (
            self.integers(starts),
            self.integers(ends),
            self.integers(&axes),
        );
        self.op("Slice", &[value, &starts, &ends, &axes])
    }

    /// [C_in, C_out/g, k…] → [C_out, C_in/g, k…], every spatial axis reversed.
    fn convolution_weight(&mut self, weight: &str, shape: &[i64], group: i64) -> String {
        let spatial: Vec<i64> = (2..shape.len() as i64).collect();
        let (inputs, outputs) = (shape[0], shape[1]);
        let mut kernel = if group == 1 {
            let order: Vec<i64> = [1, 0].into_iter().chain(spatial.iter().copied()).collect();
            self.transpose(weight, &order)
        } else {
            let tail = &shape[2..];
            let grouped: Vec<i64> = [group, inputs / group, outputs]
                .into_iter()
                .chain(tail.iter().copied())
                .collect();
            let grouped = self.reshape(weight, &grouped);
            let order: Vec<i64> = [0, 2, 1]
                .into_iter()
                .chain(spatial.iter().map(|a| a + 1))
                .collect();
            let swapped = self.transpose(&grouped, &order);
            let flat: Vec<i64> = [outputs * group, inputs / group]
                .into_iter()
                .chain(tail.iter().copied())
                .collect();
            self.reshape(&swapped, &flat)
        };
        for axis in spatial {
            let size = shape[axis as usize];
            if size > 1 {
                let reversed: Vec<i64> = (0..size).rev().collect();
                kernel = self.gather(&kernel, axis, &reversed);
            }
        }
        kernel
    }
}
