//! Reductions and sums of several operands.

use super::super::error::Result;
use super::{Outcome, Scope};

impl Scope<'_, '_> {
    pub(super) fn sum_or_mean(&mut self) -> Result<Outcome> {
        let inputs = self.source.input.clone();
        let mut total = inputs[0].clone();
        for input in &inputs[1..] {
            total = self.op("Add", &[&total, input]);
        }
        if self.source.op() == "Mean" && inputs.len() > 1 {
            let share = self.number(&inputs[0], 1.0 / inputs.len() as f64);
            total = self.op("Mul", &[&total, &share]);
        }
        self.finish(&total);
        Ok(Outcome::Done("Add"))
    }

    pub(super) fn reduction(&mut self) -> Result<Outcome> {
        let x = self.x();
        let given = match self.input(1).map(str::to_owned) {
            Some(name) => match self.constant(&name).as_ref().and_then(|v| v.ints()) {
                Some(axes) => Some(axes.to_vec()),
                None => return Ok(Outcome::Refuse("its axes are not constant".to_owned())),
            },
            None => self.source.ints("axes").map(<[i64]>::to_vec),
        };
        let axes = match given {
            Some(axes) if !axes.is_empty() => axes,
            _ if self.source.int("noop_with_empty_axes") == Some(1) => {
                return Ok(Outcome::Refuse("it reduces no axis".to_owned()));
            }
            _ => match self.rank(&x) {
                Some(rank) => (0..rank as i64).collect(),
                None => return Ok(Outcome::Refuse("its input's rank is not known".to_owned())),
            },
        };
        let keep = self.source.int("keepdims") != Some(0);
        let y = match self.source.op() {
            "ReduceL1" => {
                let magnitude = self.op("Abs", &[&x]);
                self.reduce("ReduceSum", &magnitude, &axes, keep)
            }
            // ONNX Runtime's gradient is wrong only for the form that drops the axes, in some operator sets.
            "ReduceL2" | "ReduceLogSumExp" if keep => return Ok(Outcome::Keep),
            "ReduceL2" | "ReduceLogSumExp" => {
                let kept = self.reduce(self.source.op(), &x, &axes, true);
                self.squeeze(&kept, &axes)
            }
            "ReduceSumSquare" => {
                let square = self.square(&x);
                self.reduce("ReduceSum", &square, &axes, keep)
            }
            "ReduceLogSum" => {
                let sum = self.reduce("ReduceSum", &x, &axes, keep);
                self.op("Log", &[&sum])
            }
            _ => {
                let negated = self.op("Neg", &[&x]);
                let maximum = self.reduce("ReduceMax", &negated, &axes, keep);
                self.op("Neg", &[&maximum])
            }
        };
        self.finish(&y);
        Ok(Outcome::Done("other reductions"))
    }
}
