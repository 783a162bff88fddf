//! Elementwise functions by their definitions.

use super::super::onnx::attribute;
use super::{Outcome, Scope};

impl Scope<'_, '_> {
    /// `None` for operators that are not here.
    pub(super) fn activation(&mut self) -> Option<Outcome> {
        let x = self.x();
        let (y, form) = match self.source.op() {
            "HardSigmoid" => {
                let (alpha, beta) = (self.float("alpha", 0.2), self.float("beta", 0.5));
                (self.hard_sigmoid(&x, alpha, beta), "Clip of a line")
            }
            "HardSwish" => {
                let gate = self.hard_sigmoid(&x, 1.0 / 6.0, 0.5);
                (self.op("Mul", &[&x, &gate]), "x times a Clip of a line")
            }
            "Elu" => {
                let alpha = self.float("alpha", 1.0);
                (self.elu(&x, 1.0, alpha, 1.0), "Relu and Exp")
            }
            "Selu" => {
                let alpha = self.float("alpha", 1.673_263_2);
                let gamma = self.float("gamma", 1.050_701);
                (self.elu(&x, gamma, alpha, 1.0), "Relu and Exp")
            }
            "Celu" => {
                let alpha = self.float("alpha", 1.0);
                (self.elu(&x, 1.0, alpha, alpha), "Relu and Exp")
            }
            "Softplus" => (self.softplus(&x), "Abs, Exp and Log"),
            "Softsign" => {
                let magnitude = self.op("Abs", &[&x]);
                let one = self.number(&x, 1.0);
                let divisor = self.op("Add", &[&magnitude, &one]);
                (self.op("Div", &[&x, &divisor]), "x / (1 + Abs(x))")
            }
            "Mish" => {
                let softplus = self.softplus(&x);
                let gate = self.op("Tanh", &[&softplus]);
                (self.op("Mul", &[&x, &gate]), "x times Tanh of a softplus")
            }
            "ThresholdedRelu" => {
                let alpha = self.float("alpha", 1.0);
                let threshold = self.number(&x, alpha);
                let above = self.op("Greater", &[&x, &threshold]);
                let gate = self.op_with(
                    "Cast",
                    &[&above],
                    [attribute::int("to", self.elem_type(&x).into())],
                );
                (self.op("Mul", &[&x, &gate]), "x times a constant gate")
            }
            "PRelu" => {
                let slope = self.input(1)?.to_owned();
                // x = Relu(x) - Relu(-x)
                let positive = self.op("Relu", &[&x]);
                let negated = self.op("Neg", &[&x]);
                let negative = self.op("Relu", &[&negated]);
                let scaled = self.op("Mul", &[&negative, &slope]);
                (self.op("Sub", &[&positive, &scaled]), "Relu on both sides")
            }
            "Gelu" => match self.source.string("approximate") {
                Some("tanh") => (self.gelu_tanh(&x), "Tanh of a polynomial"),
                _ => (self.gelu_erf(&x), "Erf"),
            },
            "Tan" => {
                let (sine, cosine) = (self.op("Sin", &[&x]), self.op("Cos", &[&x]));
                (self.op("Div", &[&sine, &cosine]), "Sin / Cos")
            }
            "Sinh" | "Cosh" => {
                let negated = self.op("Neg", &[&x]);
                let (up, down) = (self.op("Exp", &[&x]), self.op("Exp", &[&negated]));
                let op_type = if self.source.op() == "Sinh" {
                    "Sub"
                } else {
                    "Add"
                };
                let both = self.op(op_type, &[&up, &down]);
                let half = self.number(&x, 0.5);
                (self.op("Mul", &[&both, &half]), "two Exp")
            }
            "Shrink" => {
                let (bias, lambda) = (self.float("bias", 0.0), self.float("lambd", 0.5));
                let [bias, high, low] = [bias, lambda, -lambda].map(|v| self.number(&x, v));
                let above = self.op("Greater", &[&x, &high]);
                let below = self.op("Less", &[&x, &low]);
                let elem_type = i64::from(self.elem_type(&x));
                let [above, below] = [above, below]
                    .map(|v| self.op_with("Cast", &[&v], [attribute::int("to", elem_type)]));
                let (outside, side) = (
                    self.op("Add", &[&above, &below]),
                    self.op("Sub", &[&above, &below]),
                );
                let shift = self.op("Mul", &[&side, &bias]);
                let kept = self.op("Mul", &[&x, &outside]);
                (self.op("Sub", &[&kept, &shift]), "x times a constant gate")
            }
            "CastLike" => {
                let to = i64::from(self.elem_type(self.input(1)?));
                (
                    self.op_with("Cast", &[&x], [attribute::int("to", to)]),
                    "Cast",
                )
            }
            "Asin" => (self.asin(&x), "Atan of a quotient"),
            "Acos" => {
                let asin = self.asin(&x);
                let right_angle = self.number(&x, std::f64::consts::FRAC_PI_2);
                (self.op("Sub", &[&right_angle, &asin]), "Atan of a quotient")
            }
            "Asinh" => {
                // s·log(s·x + √(x² + 1)) with the sign s, a constant as far as the gradient goes (also at 0): no
                // difference of large numbers for negative x.
                let zero = self.number(&x, 0.0);
                let positive = self.op("Greater", &[&x, &zero]);
                let gate = self.op_with(
                    "Cast",
                    &[&positive],
                    [attribute::int("to", self.elem_type(&x).into())],
                );
                let (two, one) = (self.number(&x, 2.0), self.number(&x, 1.0));
                let double = self.op("Mul", &[&gate, &two]);
                let sign = self.op("Sub", &[&double, &one]);
                let magnitude = self.op("Mul", &[&sign, &x]);
                let logarithm = self.log_of_sum_with_root(&magnitude, 1.0);
                (self.op("Mul", &[&sign, &logarithm]), "Log and Sqrt")
            }
            "Acosh" => (self.log_of_sum_with_root(&x, -1.0), "Log and Sqrt"),
            "Atanh" => {
                let (one, half) = (self.number(&x, 1.0), self.number(&x, 0.5));
                let (above, below) = (self.op("Add", &[&one, &x]), self.op("Sub", &[&one, &x]));
                let quotient = self.op("Div", &[&above, &below]);
                let logarithm = self.op("Log", &[&quotient]);
                (self.op("Mul", &[&logarithm, &half]), "Log of a quotient")
            }
            _ => return None,
        };
        self.finish(&y);
        Some(Outcome::Done(form))
    }

    fn float(&self, name: &str, default: f64) -> f64 {
        self.source.float(name).map_or(default, f64::from)
    }

    fn hard_sigmoid(&mut self, x: &str, alpha: f64, beta: f64) -> String {
        let (alpha, beta) = (self.number(x, alpha), self.number(x, beta));
        let (zero, one) = (self.number(x, 0.0), self.number(x, 1.0));
        let scaled = self.op("Mul", &[x, &alpha]);
        let line = self.op("Add", &[&scaled, &beta]);
        self.op("Clip", &[&line, &zero, &one])
    }

    /// γ·(Relu(x) + α·(exp(-Relu(-x)/β) - 1)): the exponent is never positive.
    fn elu(&mut self, x: &str, gamma: f64, alpha: f64, beta: f64) -> String {
        let positive = self.op("Relu", &[x]);
        let negated = self.op("Neg", &[x]);
        let magnitude = self.op("Relu", &[&negated]);
        let mut exponent = self.op("Neg", &[&magnitude]);
        if beta != 1.0 {
            let beta = self.number(x, beta);
            exponent = self.op("Div", &[&exponent, &beta]);
        }
        let exponential = self.op("Exp", &[&exponent]);
        let one = self.number(x, 1.0);
        let mut negative = self.op("Sub", &[&exponential, &one]);
        if alpha != 1.0 {
            let alpha = self.number(x, alpha);
            negative = self.op("Mul", &[&negative, &alpha]);
        }
        let sum = self.op("Add", &[&positive, &negative]);
        if gamma == 1.0 {
            return sum;
        }
        let gamma = self.number(x, gamma);
        self.op("Mul", &[&sum, &gamma])
    }

    /// (x + |x|)/2 + log(1 + exp(-|x|)).
    fn softplus(&mut self, x: &str) -> String {
        let magnitude = self.op("Abs", &[x]);
        let negated = self.op("Neg", &[&magnitude]);
        let exponential = self.op("Exp", &[&negated]);
        let (one, half) = (self.number(x, 1.0), self.number(x, 0.5));
        let plus_one = self.op("Add", &[&exponential, &one]);
        let tail = self.op("Log", &[&plus_one]);
        let sum = self.op("Add", &[&magnitude, x]);
        let positive = self.op("Mul", &[&sum, &half]);
        self.op("Add", &[&positive, &tail])
    }

    /// atan(x / √((1 - x)(1 + x))).
    fn asin(&mut self, x: &str) -> String {
        let one = self.number(x, 1.0);
        let (below, above) = (self.op("Sub", &[&one, x]), self.op("Add", &[&one, x]));
        let product = self.op("Mul", &[&below, &above]);
        let root = self.op("Sqrt", &[&product]);
        let quotient = self.op("Div", &[x, &root]);
        self.op("Atan", &[&quotient])
    }

    /// log(x + √(x² + c)).
    fn log_of_sum_with_root(&mut self, x: &str, c: f64) -> String {
        let square = self.square(x);
        let c = self.number(x, c);
        let shifted = self.op("Add", &[&square, &c]);
        let root = self.op("Sqrt", &[&shifted]);
        let sum = self.op("Add", &[x, &root]);
        self.op("Log", &[&sum])
    }

    fn gelu_erf(&mut self, x: &str) -> String {
        let root = self.number(x, std::f64::consts::FRAC_1_SQRT_2);
        let scaled = self.op("Mul", &[x, &root]);
        let erf = self.op("Erf", &[&scaled]);
        self.half_of_x_times_one_plus(x, &erf)
    }

    fn gelu_tanh(&mut self, x: &str) -> String {
        let square = self.op("Mul", &[x, x]);
        let cube = self.op("Mul", &[&square, x]);
        let cubic = self.number(x, 0.044715);
        let scaled = self.op("Mul", &[&cube, &cubic]);
        let sum = self.op("Add", &[x, &scaled]);
        let root = self.number(x, (2.0 / std::f64::consts::PI).sqrt());
        let argument = self.op("Mul", &[&sum, &root]);
        let tanh = self.op("Tanh", &[&argument]);
        self.half_of_x_times_one_plus(x, &tanh)
    }

    fn half_of_x_times_one_plus(&mut self, x: &str, value: &str) -> String {
        let (one, half) = (self.number(x, 1.0), self.number(x, 0.5));
        let plus_one = self.op("Add", &[value, &one]);
        let product = self.op("Mul", &[x, &plus_one]);
        self.op("Mul", &[&product, &half])
    }

    pub(super) fn square(&mut self, x: &str) -> String {
        self.op("Mul", &[x, x])
    }
}
