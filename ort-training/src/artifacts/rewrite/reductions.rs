//! Reductions and sums of several operands.

use super::super::error::Result;
use super::super::onnx::{attribute, data_type};
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

    /// A cumulative sum is a product with a triangular matrix of ones.
    pub(super) fn cumulative_sum(&mut self) -> Result<Outcome> {
        let x = self.x();
        let Some(rank) = self.rank(&x).map(|r| r as i64) else {
            return Ok(Outcome::Refuse("its input's rank is not known".to_owned()));
        };
        let axis = self
            .input(1)
            .and_then(|name| self.constant(name))
            .and_then(|v| v.ints().map(|v| v[0]));
        let Some(axis) = axis.map(|a| if a < 0 { a + rank } else { a }) else {
            return Ok(Outcome::Refuse("its axis is not constant".to_owned()));
        };
        let Some(size) = self.known_dim(&x, axis as usize) else {
            return Ok(Outcome::Refuse(format!(
                "the size of axis {axis} is not known"
            )));
        };
        let exclusive = self.source.int("exclusive") == Some(1);
        let reverse = self.source.int("reverse") == Some(1);
        let counts = |from: i64, to: i64| {
            let (from, to) = if reverse { (to, from) } else { (from, to) };
            from < to || (from == to && !exclusive)
        };
        let matrix: Vec<f64> = (0..size)
            .flat_map(|from| (0..size).map(move |to| (from, to)))
            .map(|(from, to)| f64::from(u8::from(counts(from, to))))
            .collect();
        let matrix = self.numbers(&x, &[size, size], &matrix);
        let mut order: Vec<i64> = (0..rank).collect();
        order.swap(axis as usize, rank as usize - 1);
        let last = if axis == rank - 1 {
            x.clone()
        } else {
            self.transpose(&x, &order)
        };
        let mut sums = self.op("MatMul", &[&last, &matrix]);
        if axis != rank - 1 {
            sums = self.transpose(&sums, &order);
        }
        self.finish(&sums);
        Ok(Outcome::Done("MatMul with a triangular matrix"))
    }

    /// -w_t·x_t at the target t, averaged by the weights or summed.
    pub(super) fn negative_log_likelihood(&mut self) -> Result<Outcome> {
        let (x, target) = (self.x(), self.source.input[1].clone());
        let ignored = self.source.int("ignore_index");
        let reduction = self.source.string("reduction").unwrap_or("mean").to_owned();
        let mut index = target.clone();
        let mut weight = self.input(2).map(|weights| weights.to_owned());
        let mut counts = None;
        if let Some(ignored) = ignored {
            let mut constant = self.integer(ignored);
            let mut zero = self.integer(0);
            if self.elem_type(&target) == data_type::INT32 {
                for value in [&mut constant, &mut zero] {
                    *value = self.op_with(
                        "Cast",
                        &[value.as_str()],
                        [attribute::int("to", data_type::INT32.into())],
                    );
                }
            }
            let is_ignored = self.op("Equal", &[&target, &constant]);
            let counted = self.op("Not", &[&is_ignored]);
            counts = Some(self.op_with(
                "Cast",
                &[&counted],
                [attribute::int("to", self.elem_type(&x).into())],
            ));
            index = self.op("Where", &[&is_ignored, &zero, &target]);
        }
        if let Some(weights) = &weight {
            weight = Some(self.op("Gather", &[weights, &index]));
        }
        // The weight of each example, where they differ.
        let share = match (weight, counts) {
            (Some(weight), Some(counts)) => Some(self.op("Mul", &[&weight, &counts])),
            (weight, counts) => weight.or(counts),
        };
        let place = self.unsqueeze(&index, &[1]);
        let picked = self.op_with("GatherElements", &[&x, &place], [attribute::int("axis", 1)]);
        let picked = self.squeeze(&picked, &[1]);
        let mut loss = self.op("Neg", &[&picked]);
        if let Some(share) = &share {
            loss = self.op("Mul", &[&loss, share]);
        }
        let scalar = [attribute::int("keepdims", 0)];
        let y = match (reduction.as_str(), share) {
            ("none", _) => loss,
            ("sum", _) => self.op_with("ReduceSum", &[&loss], scalar),
            (_, None) => self.op_with("ReduceMean", &[&loss], scalar),
            (_, Some(share)) => {
                let total = self.op_with("ReduceSum", &[&loss], scalar.clone());
                let divisor = self.op_with("ReduceSum", &[&share], scalar);
                self.op("Div", &[&total, &divisor])
            }
        };
        self.finish(&y);
        Ok(Outcome::Done("GatherElements of the targets"))
    }
}
