//! Normalizations by their definitions.

use super::super::error::Result;
use super::{Outcome, Scope};

impl Scope<'_, '_> {
    /// (x - mean)·scale/√(var + ε) + bias with constant statistics.
    pub(super) fn frozen_batch_normalization(&mut self) -> Result<Outcome> {
        let x = self.x();
        let Some(rank) = self.rank(&x).filter(|&r| r >= 2) else {
            return Ok(Outcome::Refuse("its input's rank is not known".to_owned()));
        };
        let epsilon = self.source.float("epsilon").map_or(1e-5, f64::from);
        let inputs: Vec<String> = self.source.input[1..].to_vec();
        let mut shape = vec![1; rank];
        shape[1] = -1;
        let [scale, bias, mean, var] = [0, 1, 2, 3].map(|i| {
            if rank == 2 {
                inputs[i].clone()
            } else {
                self.reshape(&inputs[i], &shape[1..])
            }
        });
        let epsilon = self.number(&x, epsilon);
        let sum = self.op("Add", &[&var, &epsilon]);
        let deviation = self.op("Sqrt", &[&sum]);
        let centred = self.op("Sub", &[&x, &mean]);
        let normal = self.op("Div", &[&centred, &deviation]);
        let scaled = self.op("Mul", &[&normal, &scale]);
        let y = self.op("Add", &[&scaled, &bias]);
        self.finish(&y);
        Ok(Outcome::Done("an affine map by its running statistics"))
    }

    /// Mean 0 and variance 1 over `axes`.
    fn standardize(&mut self, x: &str, axes: &[i64], epsilon: f64) -> String {
        let mean = self.reduce("ReduceMean", x, axes, true);
        let centred = self.op("Sub", &[x, &mean]);
        let square = self.square(&centred);
        let variance = self.reduce("ReduceMean", &square, axes, true);
        let epsilon = self.number(x, epsilon);
        let sum = self.op("Add", &[&variance, &epsilon]);
        let deviation = self.op("Sqrt", &[&sum]);
        self.op("Div", &[&centred, &deviation])
    }

    /// y = normal·scale + bias, both given per channel (axis 1).
    fn scale_channels(&mut self, normal: &str, scale: &str, bias: &str, rank: usize) {
        let mut shape = vec![1; rank - 1];
        shape[0] = -1;
        let (scale, bias) = (self.reshape(scale, &shape), self.reshape(bias, &shape));
        let scaled = self.op("Mul", &[normal, &scale]);
        let y = self.op("Add", &[&scaled, &bias]);
        self.finish(&y);
    }

    /// ONNX Runtime's gradient wants a bias.
    pub(super) fn layer_normalization_without_bias(&mut self) -> Result<Outcome> {
        if self.input(2).is_some() {
            return Ok(Outcome::Keep);
        }
        let scale = self.source.input[1].clone();
        let Some(shape) = self.fixed_shape(&scale) else {
            return Ok(Outcome::Refuse(
                "it has no bias, and the shape of its scale is not known".to_owned(),
            ));
        };
        let zeros = vec![0.0; shape.iter().product::<i64>() as usize];
        let bias = self.numbers(&scale, &shape, &zeros);
        let mut normalization = self.source.clone();
        normalization.input.truncate(2);
        normalization.input.push(bias);
        self.nodes.push(normalization);
        Ok(Outcome::Done("the same with a bias of zeros"))
    }

    pub(super) fn instance_normalization(&mut self) -> Result<Outcome> {
        let x = self.x();
        let Some(rank) = self.rank(&x).filter(|&r| r >= 3) else {
            return Ok(Outcome::Refuse("its input's rank is not known".to_owned()));
        };
        let epsilon = self.source.float("epsilon").map_or(1e-5, f64::from);
        let axes: Vec<i64> = (2..rank as i64).collect();
        let (scale, bias) = (self.source.input[1].clone(), self.source.input[2].clone());
        let normal = self.standardize(&x, &axes, epsilon);
        self.scale_channels(&normal, &scale, &bias, rank);
        Ok(Outcome::Done("its definition, with ReduceMean"))
    }

    pub(super) fn group_normalization(&mut self) -> Result<Outcome> {
        let x = self.x();
        let (Some(rank), Some(groups)) = (
            self.rank(&x).filter(|&r| r >= 3),
            self.source.int("num_groups"),
        ) else {
            return Ok(Outcome::Refuse(
                "its input's rank or its number of groups is not known".to_owned(),
            ));
        };
        let Some(channels) = self.known_dim(&x, 1) else {
            return Ok(Outcome::Refuse(
                "its number of channels is not known".to_owned(),
            ));
        };
        let epsilon = self.source.float("epsilon").map_or(1e-5, f64::from);
        let (mut scale, mut bias) = (self.source.input[1].clone(), self.source.input[2].clone());
        let shape = self.op("Shape", &[&x]);
        let grouped = self.reshape(&x, &[0, groups, -1]);
        let normal = self.standardize(&grouped, &[2], epsilon);
        let normal = self.op("Reshape", &[&normal, &shape]);
        if self.opset() < 21 && groups != channels {
            // Up to operator set 20 there is a scale for each group.
            for value in [&mut scale, &mut bias] {
                let repeated: Vec<i64> = (0..channels).map(|c| c / (channels / groups)).collect();
                *value = self.gather(value, 0, &repeated);
            }
        }
        self.scale_channels(&normal, &scale, &bias, rank);
        Ok(Outcome::Done("its definition, with ReduceMean over groups"))
    }

    pub(super) fn lp_normalization(&mut self) -> Result<Outcome> {
        let x = self.x();
        let axis = self.source.int("axis").unwrap_or(-1);
        let norm = match self.source.int("p").unwrap_or(2) {
            1 => {
                let magnitude = self.op("Abs", &[&x]);
                self.reduce("ReduceSum", &magnitude, &[axis], true)
            }
            _ => {
                let square = self.square(&x);
                let sum = self.reduce("ReduceSum", &square, &[axis], true);
                self.op("Sqrt", &[&sum])
            }
        };
        let y = self.op("Div", &[&x, &norm]);
        self.finish(&y);
        Ok(Outcome::Done("x over its norm"))
    }

    pub(super) fn mean_variance_normalization(&mut self) -> Result<Outcome> {
        let x = self.x();
        let axes = self
            .source
            .ints("axes")
            .map_or(vec![0, 2, 3], <[i64]>::to_vec);
        // ONNX's definition adds 1e-9 to the deviation, not to the variance.
        let mean = self.reduce("ReduceMean", &x, &axes, true);
        let centred = self.op("Sub", &[&x, &mean]);
        let square = self.square(&centred);
        let variance = self.reduce("ReduceMean", &square, &axes, true);
        let deviation = self.op("Sqrt", &[&variance]);
        let epsilon = self.number(&x, 1e-9);
        let divisor = self.op("Add", &[&deviation, &epsilon]);
        let y = self.op("Div", &[&centred, &divisor]);
        self.finish(&y);
        Ok(Outcome::Done("its definition, with ReduceMean"))
    }
}
