//! Elementwise functions and arithmetic.

use crate::artifacts_support::Rng;
use crate::artifacts_support::check::{check, check_with};
use crate::artifacts_support::model::{Attr, Model};
use crate::artifacts_support::session::Tensor;
use crate::{close, input_like, same_forward, through};

#[test]
fn elementwise() {
    // Operator, range of the operand, away from where it has no derivative.
    let operators = [
        ("Relu", 0.2, 2.0),
        ("Tanh", -2.0, 2.0),
        ("Sigmoid", -3.0, 3.0),
        ("Erf", -2.0, 2.0),
        ("Exp", -1.0, 1.0),
        ("Log", 0.5, 3.0),
        ("Sqrt", 0.5, 3.0),
        ("Sin", -3.0, 3.0),
        ("Cos", -3.0, 3.0),
        ("Abs", 0.2, 2.0),
        ("Neg", -1.0, 1.0),
        ("Reciprocal", 0.5, 2.0),
        ("Atan", -2.0, 2.0),
        ("LeakyRelu", -2.0, -0.2),
        ("Identity", -1.0, 1.0),
        ("Softplus", -3.0, 3.0),
        ("Softsign", 0.1, 3.0),
        ("Elu", -2.0, -0.1),
        ("Selu", -2.0, -0.1),
        ("Celu", -2.0, -0.1),
        ("HardSigmoid", -1.0, 1.0),
        ("HardSwish", -2.0, 2.0),
        ("Tan", -0.7, 0.7),
        ("Sinh", -2.0, 2.0),
        ("Cosh", -2.0, 2.0),
        ("ThresholdedRelu", 3.0, 5.0),
    ];
    for (op_type, low, high) in operators {
        let dims = [2, 6];
        let model = through(&dims, &dims, low, high, |m| m.node(op_type, &["h"], &["y"]));
        let checked = check(&model.bytes(), &[("x", input_like(&dims, 5))], 3);
        close(op_type, &checked);
        same_forward(op_type, &checked);
    }
}

#[test]
fn activations_with_settings() {
    let dims = [2, 3, 4];
    let cases: [(&str, &[(&str, Attr)]); 6] = [
        ("Elu", &[("alpha", Attr::Float(0.7))]),
        ("Celu", &[("alpha", Attr::Float(1.7))]),
        (
            "Selu",
            &[("alpha", Attr::Float(1.2)), ("gamma", Attr::Float(0.9))],
        ),
        (
            "HardSigmoid",
            &[("alpha", Attr::Float(0.15)), ("beta", Attr::Float(0.4))],
        ),
        ("LeakyRelu", &[("alpha", Attr::Float(0.3))]),
        ("ThresholdedRelu", &[("alpha", Attr::Float(0.1))]),
    ];
    for (op_type, attributes) in cases {
        for (low, high) in [(0.3, 1.0), (-1.0, -0.3)] {
            let model = through(&dims, &dims, low, high, |m| {
                m.node_with(op_type, &["h"], &["y"], attributes)
            });
            let checked = check(&model.bytes(), &[("x", input_like(&dims, 5))], 3);
            close(op_type, &checked);
            same_forward(op_type, &checked);
        }
    }
    let model = through(&dims, &dims, -1.0, 1.0, |m| {
        m.weight("slope", &[3, 1], &[0.1, 0.2, 0.3])
            .node("PRelu", &["h", "slope"], &["y"])
    });
    let checked = check(&model.bytes(), &[("x", input_like(&dims, 5))], 3);
    close("PRelu", &checked);
    same_forward("PRelu", &checked);
}

#[test]
fn newer_activations() {
    for (op_type, attributes) in [
        ("Gelu", &[][..]),
        ("Gelu", &[("approximate", Attr::Text("tanh"))][..]),
        ("Mish", &[][..]),
    ] {
        let mut model = through(&[2, 6], &[2, 6], -2.0, 2.0, |m| {
            m.node_with(op_type, &["h"], &["y"], attributes)
        });
        model.proto.opset_import[0].version = Some(20);
        let checked = check(&model.bytes(), &[("x", input_like(&[2, 6], 5))], 3);
        close(op_type, &checked);
        same_forward(op_type, &checked);
    }
}

#[test]
fn inverse_functions() {
    let cases = [
        ("Asin", -0.6, 0.6),
        ("Acos", -0.6, 0.6),
        ("Asinh", -2.0, 2.0),
        ("Acosh", 3.5, 5.0),
        ("Atanh", -0.5, 0.5),
    ];
    for (op_type, low, high) in cases {
        let model = through(&[2, 6], &[2, 6], low, high, |m| {
            m.node(op_type, &["h"], &["y"])
        });
        let checked = check(&model.bytes(), &[("x", input_like(&[2, 6], 5))], 3);
        close(op_type, &checked);
        same_forward(op_type, &checked);
    }
}

#[test]
fn shrinking_and_casting() {
    for (low, high) in [(0.7, 2.0), (-2.0, -0.7), (-0.15, 0.15)] {
        let model = through(&[2, 6], &[2, 6], low, high, |m| {
            m.node_with(
                "Shrink",
                &["h"],
                &["s"],
                &[("lambd", Attr::Float(0.3)), ("bias", Attr::Float(0.2))],
            )
            .node("CastLike", &["s", "x"], &["c"])
            // Without a double kernel: that of Shrink rounds to single inside.
            .node("Atan", &["c"], &["y"])
        });
        let checked = check(&model.bytes(), &[("x", input_like(&[2, 6], 5))], 3);
        close("Shrink, CastLike", &checked);
        same_forward("Shrink, CastLike", &checked);
    }
}

#[test]
fn arithmetic_with_broadcasting() {
    for op_type in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"] {
        for shape in [&[2, 3, 4][..], &[4], &[3, 1], &[1, 3, 4]] {
            let count = shape.iter().product::<i64>() as usize;
            let values = Rng(17).values(count, 1.6, 3.0);
            let model = through(&[2, 3, 4], &[2, 3, 4], 0.5, 1.0, |m| {
                m.weight("v", shape, &values)
                    .node(op_type, &["h", "v"], &["y"])
            });
            close(
                op_type,
                &check(&model.bytes(), &[("x", input_like(&[2, 3, 4], 5))], 3),
            );
        }
    }
    let model = through(&[2, 6], &[2, 6], 0.5, 2.0, |m| {
        m.scalar("two", 2.5).node("Pow", &["h", "two"], &["y"])
    });
    close(
        "Pow",
        &check(&model.bytes(), &[("x", input_like(&[2, 6], 5))], 3),
    );
    let model = through(&[2, 6], &[2, 6], -2.0, 2.0, |m| {
        m.scalar("low", -0.4)
            .scalar("high", 0.7)
            .node("Clip", &["h", "low", "high"], &["y"])
    });
    close(
        "Clip",
        &check(&model.bytes(), &[("x", input_like(&[2, 6], 5))], 3),
    );
}

#[test]
fn where_with_broadcasting() {
    let mask = |m: Model| {
        m.scalar("zero", 0.0)
            .input("c", &[2, 3, 4])
            .node("Greater", &["c", "zero"], &["mask"])
    };
    let c = Tensor::f32(&[2, 3, 4], &Rng(3).values(24, -1.0, 1.0));
    for shape in [&[2, 3, 4][..], &[4], &[3, 1], &[]] {
        let count = shape.iter().product::<i64>() as usize;
        let values = Rng(17).values(count.max(1), 1.6, 3.0);
        for order in [["mask", "h", "v"], ["mask", "v", "h"]] {
            let model = through(&[2, 3, 4], &[2, 3, 4], 0.5, 1.0, |m| {
                mask(m)
                    .weight("v", shape, &values)
                    .node("Where", &order, &["y"])
            });
            let inputs = [("x", input_like(&[2, 3, 4], 5)), ("c", c.clone())];
            let checked = check_with(&model.bytes(), &inputs, 3, |builder| {
                builder.requires_grad(["w", "v"])
            });
            close("Where", &checked);
        }
    }
}
