//! Gradients of single operators and small networks against central finite differences.
//!
//! The training model computes in single precision. The differences are those of the evaluation model, in double
//! where ONNX Runtime's CPU kernels have it (tolerance 2e-6 of the parameter's largest gradient), else in single with
//! a fourth-order formula (tolerance 5e-4).
#![cfg(feature = "artifacts")]

mod artifacts_support;

use artifacts_support::Rng;
use artifacts_support::check::{Arithmetic, Checked, check, check_with};
use artifacts_support::model::{Attr, Model};
use artifacts_support::session::Tensor;
use ort_training::artifacts::BatchNorm;

#[track_caller]
fn close(what: &str, checked: &Checked) {
    let tolerance = match checked.arithmetic {
        Arithmetic::Double => 2e-6,
        Arithmetic::Single => 5e-4,
    };
    println!(
        "{what}: {:.1e} ({:?}), forward {:.1e}",
        checked.worst, checked.arithmetic, checked.forward
    );
    assert!(
        checked.worst < tolerance,
        "{what}: gradients differ by {:.2e} of the largest ({:?} differences)",
        checked.worst,
        checked.arithmetic
    );
}

/// The training form computes what the evaluation form computes.
#[track_caller]
fn same_forward(what: &str, checked: &Checked) {
    assert!(
        checked.forward < 1e-6,
        "{what}: the rewritten form differs by {:.2e}",
        checked.forward
    );
}

/// A parameter `w` of shape `dims` through the nodes that `build` adds, to the output `y`.
fn through(
    dims: &[i64],
    output: &[i64],
    low: f64,
    high: f64,
    build: impl FnOnce(Model) -> Model,
) -> Model {
    let mut rng = Rng(dims.iter().sum::<i64>() as u64 + 11);
    let count = dims.iter().product::<i64>() as usize;
    // The input joins the parameter, so that the gradient is not that of a constant.
    let model = Model::new(17)
        .input("x", dims)
        .weight("w", dims, &rng.values(count, low, high))
        .node("Mul", &["x", "w"], &["h"]);
    build(model).output("y", output)
}

fn input_like(dims: &[i64], seed: u64) -> Tensor {
    let count = dims.iter().product::<i64>() as usize;
    Tensor::f32(dims, &Rng(seed).values(count, 0.5, 1.5))
}

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

#[test]
fn matrices() {
    let mut rng = Rng(23);
    let a = rng.values(12, -1.0, 1.0);
    let model = Model::new(17)
        .input("x", &[5, 4])
        .weight("w", &[4, 3], &a)
        .weight("b", &[3], &[0.1, 0.2, 0.3])
        .node("Gemm", &["x", "w", "b"], &["h"])
        .weight("v", &[3, 2], &rng.values(6, -1.0, 1.0))
        .node("MatMul", &["h", "v"], &["y"])
        .output("y", &[5, 2]);
    close(
        "Gemm, MatMul",
        &check(&model.bytes(), &[("x", input_like(&[5, 4], 5))], 3),
    );
    for (trans_a, trans_b) in [(0, 1), (1, 0), (1, 1)] {
        let (x, w): (&[i64], &[i64]) = (
            if trans_a == 1 { &[4, 5] } else { &[5, 4] },
            if trans_b == 1 { &[3, 4] } else { &[4, 3] },
        );
        let attributes = [
            ("transA", Attr::Int(trans_a)),
            ("transB", Attr::Int(trans_b)),
            ("alpha", Attr::Float(0.7)),
            ("beta", Attr::Float(1.3)),
        ];
        let model = Model::new(17)
            .input("x", x)
            .weight("w", w, &a)
            .weight("b", &[1, 3], &[0.1, 0.2, 0.3])
            .node_with("Gemm", &["x", "w", "b"], &["y"], &attributes)
            .output("y", &[5, 3]);
        close(
            "Gemm, transposed",
            &check(&model.bytes(), &[("x", input_like(x, 5))], 3),
        );
    }
    let model = Model::new(17)
        .input("x", &[2, 3, 4, 5])
        .weight("w", &[3, 5, 2], &rng.values(30, -1.0, 1.0))
        .node("MatMul", &["x", "w"], &["y"])
        .output("y", &[2, 3, 4, 2]);
    close(
        "MatMul, batched",
        &check(&model.bytes(), &[("x", input_like(&[2, 3, 4, 5], 5))], 3),
    );
}

#[test]
fn convolutions() {
    struct Case<'a> {
        name: &'a str,
        x: &'a [i64],
        w: &'a [i64],
        y: &'a [i64],
        attributes: &'a [(&'a str, Attr<'a>)],
    }
    let cases = [
        Case {
            name: "1-D",
            x: &[2, 3, 8],
            w: &[4, 3, 3],
            y: &[2, 4, 8],
            attributes: &[("pads", Attr::Ints(&[1, 1]))],
        },
        Case {
            name: "2-D",
            x: &[2, 2, 5, 6],
            w: &[3, 2, 3, 2],
            y: &[2, 3, 3, 5],
            attributes: &[],
        },
        Case {
            name: "grouped",
            x: &[1, 4, 5, 5],
            w: &[6, 2, 3, 3],
            y: &[1, 6, 3, 3],
            attributes: &[("group", Attr::Int(2))],
        },
        Case {
            name: "depthwise, strided",
            x: &[1, 3, 6, 6],
            w: &[3, 1, 3, 3],
            y: &[1, 3, 3, 3],
            attributes: &[
                ("group", Attr::Int(3)),
                ("strides", Attr::Ints(&[2, 2])),
                ("pads", Attr::Ints(&[1, 1, 1, 1])),
            ],
        },
        Case {
            name: "dilated",
            x: &[1, 2, 7, 7],
            w: &[2, 2, 3, 3],
            y: &[1, 2, 3, 3],
            attributes: &[("dilations", Attr::Ints(&[2, 2]))],
        },
        Case {
            name: "3-D",
            x: &[1, 2, 3, 4, 4],
            w: &[2, 2, 2, 2, 2],
            y: &[1, 2, 2, 3, 3],
            attributes: &[],
        },
    ];
    for case in cases {
        let mut rng = Rng(31);
        let bias = rng.values(case.w[0] as usize, -1.0, 1.0);
        let weight = rng.values(case.w.iter().product::<i64>() as usize, -1.0, 1.0);
        let scale = rng.values(case.x[1] as usize, 0.5, 1.5);
        let mut scale_dims = vec![1; case.x.len() - 1];
        scale_dims[0] = case.x[1];
        let model = Model::new(17)
            .input("x", case.x)
            .weight("s", &scale_dims, &scale)
            .node("Mul", &["x", "s"], &["h"])
            .weight("w", case.w, &weight)
            .weight("b", &[case.w[0]], &bias)
            .node_with("Conv", &["h", "w", "b"], &["y"], case.attributes)
            .output("y", case.y);
        close(
            case.name,
            &check(&model.bytes(), &[("x", input_like(case.x, 5))], 3),
        );
    }
}

#[test]
fn transposed_convolutions() {
    type Case<'a> = (&'a str, &'a [i64], &'a [i64], &'a [(&'a str, Attr<'a>)]);
    let cases: [Case; 10] = [
        (
            "tiling, 1-D",
            &[2, 3, 4],
            &[3, 2, 3],
            &[("strides", Attr::Ints(&[3]))],
        ),
        (
            "tiling, 3-D",
            &[1, 2, 2, 3, 2],
            &[2, 2, 2, 1, 3],
            &[("strides", Attr::Ints(&[2, 1, 3]))],
        ),
        ("plain", &[2, 2, 4, 3], &[2, 3, 3, 2], &[]),
        (
            "strided",
            &[1, 2, 4, 3],
            &[2, 3, 2, 2],
            &[("strides", Attr::Ints(&[2, 2]))],
        ),
        (
            "strided, padded, output padding",
            &[1, 2, 4, 4],
            &[2, 2, 3, 3],
            &[
                ("strides", Attr::Ints(&[2, 3])),
                ("pads", Attr::Ints(&[1, 0, 1, 2])),
                ("output_padding", Attr::Ints(&[1, 1])),
            ],
        ),
        (
            "grouped",
            &[1, 4, 3, 3],
            &[4, 3, 3, 3],
            &[("group", Attr::Int(2)), ("strides", Attr::Ints(&[2, 2]))],
        ),
        (
            "dilated",
            &[1, 2, 4, 4],
            &[2, 2, 3, 2],
            &[
                ("dilations", Attr::Ints(&[2, 3])),
                ("strides", Attr::Ints(&[1, 2])),
            ],
        ),
        (
            "cropped",
            &[1, 1, 5, 5],
            &[1, 2, 2, 2],
            &[
                ("pads", Attr::Ints(&[2, 2, 2, 1])),
                ("strides", Attr::Ints(&[2, 2])),
            ],
        ),
        (
            "1-D",
            &[2, 2, 5],
            &[2, 3, 4],
            &[("strides", Attr::Ints(&[2])), ("pads", Attr::Ints(&[1, 1]))],
        ),
        (
            "same",
            &[1, 2, 4, 4],
            &[2, 2, 3, 3],
            &[
                ("strides", Attr::Ints(&[2, 2])),
                ("auto_pad", Attr::Text("SAME_UPPER")),
            ],
        ),
    ];
    for (name, x, w, attributes) in cases {
        let mut rng = Rng(37);
        let outputs = w[1] * if name == "grouped" { 2 } else { 1 };
        let weight = rng.values(w.iter().product::<i64>() as usize, -1.0, 1.0);
        let free: Vec<i64> = x
            .iter()
            .enumerate()
            .map(|(i, _)| if i == 1 { outputs } else { -1 })
            .collect();
        // Once with sizes that the model says, once with all but the channels left open.
        for open in [false, true] {
            let shape: Vec<i64> = if open {
                x.iter()
                    .enumerate()
                    .map(|(i, &d)| if i == 1 { d } else { -1 })
                    .collect()
            } else {
                x.to_vec()
            };
            let model = Model::new(17)
                .input("x", &shape)
                .weight("s", &[1], &[1.3])
                .node("Mul", &["x", "s"], &["h"])
                .weight("w", w, &weight)
                .weight("b", &[outputs], &rng.values(outputs as usize, -1.0, 1.0))
                .node_with("ConvTranspose", &["h", "w", "b"], &["y"], attributes)
                .output("y", &free);
            let checked = check(&model.bytes(), &[("x", input_like(x, 5))], 3);
            let what = format!("ConvTranspose, {name}, open {open}");
            close(&what, &checked);
            same_forward(&what, &checked);
            assert_eq!(checked.report.rewrites.len(), 1);
        }
    }
}

#[test]
fn pooling() {
    type Case<'a> = (&'a str, &'a [(&'a str, Attr<'a>)], &'a [i64]);
    let cases: [Case; 5] = [
        (
            "MaxPool",
            &[
                ("kernel_shape", Attr::Ints(&[2, 2])),
                ("strides", Attr::Ints(&[2, 2])),
            ],
            &[1, 2, 3, 3],
        ),
        (
            "MaxPool",
            &[
                ("kernel_shape", Attr::Ints(&[3, 3])),
                ("strides", Attr::Ints(&[2, 2])),
                ("pads", Attr::Ints(&[1, 1, 1, 1])),
            ],
            &[1, 2, 3, 3],
        ),
        (
            "AveragePool",
            &[
                ("kernel_shape", Attr::Ints(&[2, 3])),
                ("strides", Attr::Ints(&[2, 1])),
            ],
            &[1, 2, 3, 4],
        ),
        (
            "AveragePool",
            &[
                ("kernel_shape", Attr::Ints(&[3, 3])),
                ("pads", Attr::Ints(&[1, 1, 1, 1])),
                ("count_include_pad", Attr::Int(1)),
            ],
            &[1, 2, 6, 6],
        ),
        ("GlobalAveragePool", &[], &[1, 2, 1, 1]),
    ];
    for (op_type, attributes, y) in cases {
        let model = through(&[1, 2, 6, 6], y, -1.0, 1.0, |m| {
            m.node_with(op_type, &["h"], &["y"], attributes)
        });
        close(
            op_type,
            &check(&model.bytes(), &[("x", input_like(&[1, 2, 6, 6], 5))], 3),
        );
    }
    let attributes = [
        ("kernel_shape", Attr::Ints(&[3, 3])),
        ("pads", Attr::Ints(&[1, 1, 1, 1])),
        ("strides", Attr::Ints(&[2, 2])),
    ];
    let model = through(&[1, 2, 6, 6], &[1, 2, 3, 3], -1.0, 1.0, |m| {
        m.node_with("AveragePool", &["h"], &["y"], &attributes)
    });
    close(
        "AveragePool, padding not counted",
        &check(&model.bytes(), &[("x", input_like(&[1, 2, 6, 6], 5))], 3),
    );
    let model = through(&[1, 2, 6, 6], &[1, 2, 1, 1], -1.0, 1.0, |m| {
        m.node("GlobalMaxPool", &["h"], &["y"])
    });
    close(
        "GlobalMaxPool",
        &check(&model.bytes(), &[("x", input_like(&[1, 2, 6, 6], 5))], 3),
    );
}

#[test]
fn softmax_and_reductions() {
    let dims = [2, 3, 4];
    for (op_type, axis) in [("Softmax", 1), ("Softmax", -1), ("LogSoftmax", 2)] {
        let model = through(&dims, &dims, -2.0, 2.0, |m| {
            m.node_with(op_type, &["h"], &["y"], &[("axis", Attr::Int(axis))])
        });
        close(
            op_type,
            &check(&model.bytes(), &[("x", input_like(&dims, 5))], 3),
        );
    }
    for op_type in [
        "ReduceMean",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMin",
    ] {
        for (axes, keep, y) in [
            (&[1][..], 1, &[2, 1, 4][..]),
            (&[0, 2], 0, &[3]),
            (&[-1], 0, &[2, 3]),
        ] {
            let attributes = [("axes", Attr::Ints(axes)), ("keepdims", Attr::Int(keep))];
            let model = through(&dims, y, 0.5, 2.0, |m| {
                m.node_with(op_type, &["h"], &["y"], &attributes)
            });
            let checked = check(&model.bytes(), &[("x", input_like(&dims, 5))], 3);
            close(op_type, &checked);
            same_forward(op_type, &checked);
        }
    }
    for (axes, keep, y) in [(&[1][..], 1, &[2, 1, 4][..]), (&[0, 2], 0, &[3])] {
        let model = through(&dims, y, 0.5, 2.0, |m| {
            m.integers("axes", axes).node_with(
                "ReduceSum",
                &["h", "axes"],
                &["y"],
                &[("keepdims", Attr::Int(keep))],
            )
        });
        close(
            "ReduceSum",
            &check(&model.bytes(), &[("x", input_like(&dims, 5))], 3),
        );
    }
}

#[test]
fn reductions_of_operator_set_18() {
    for op_type in [
        "ReduceMean",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceMin",
        "ReduceMax",
        "ReduceLogSumExp",
    ] {
        let mut model = through(&[2, 3, 4], &[2, 4], 0.5, 2.0, |m| {
            m.integers("axes", &[1]).node_with(
                op_type,
                &["h", "axes"],
                &["y"],
                &[("keepdims", Attr::Int(0))],
            )
        });
        model.proto.opset_import[0].version = Some(18);
        let checked = check(&model.bytes(), &[("x", input_like(&[2, 3, 4], 5))], 3);
        close(op_type, &checked);
        same_forward(op_type, &checked);
    }
}

#[test]
fn shapes_and_indices() {
    let dims = [2, 3, 4];
    type Build = fn(Model) -> Model;
    let cases: [(&str, &[i64], Build); 14] = [
        ("Reshape", &[6, 4], |m| {
            m.integers("s", &[6, -1])
                .node("Reshape", &["h", "s"], &["y"])
        }),
        ("Transpose", &[4, 2, 3], |m| {
            m.node_with(
                "Transpose",
                &["h"],
                &["y"],
                &[("perm", Attr::Ints(&[2, 0, 1]))],
            )
        }),
        ("Flatten", &[2, 12], |m| m.node("Flatten", &["h"], &["y"])),
        ("Unsqueeze", &[2, 1, 3, 4], |m| {
            m.integers("a", &[1]).node("Unsqueeze", &["h", "a"], &["y"])
        }),
        ("Squeeze", &[2, 3, 4], |m| {
            m.integers("a", &[1])
                .node("Unsqueeze", &["h", "a"], &["u"])
                .node("Squeeze", &["u", "a"], &["y"])
        }),
        ("Slice", &[2, 2, 2], |m| {
            m.integers("from", &[1, 3])
                .integers("to", &[3, -5])
                .integers("axes", &[1, 2])
                .integers("steps", &[1, -2])
                .node("Slice", &["h", "from", "to", "axes", "steps"], &["y"])
        }),
        ("Split, Concat", &[2, 3, 4], |m| {
            m.integers("parts", &[1, 3])
                .node_with(
                    "Split",
                    &["h", "parts"],
                    &["a", "b"],
                    &[("axis", Attr::Int(2))],
                )
                .node_with("Concat", &["b", "a"], &["y"], &[("axis", Attr::Int(2))])
        }),
        ("Expand", &[5, 2, 3, 4], |m| {
            m.integers("s", &[5, 2, 3, 4])
                .node("Expand", &["h", "s"], &["y"])
        }),
        ("Tile", &[4, 3, 8], |m| {
            m.integers("r", &[2, 1, 2])
                .node("Tile", &["h", "r"], &["y"])
        }),
        ("Gather", &[2, 4, 4], |m| {
            m.integers("i", &[2, 0, 2, 1]).node_with(
                "Gather",
                &["h", "i"],
                &["y"],
                &[("axis", Attr::Int(1))],
            )
        }),
        ("Pad", &[3, 3, 7], |m| {
            m.integers("p", &[1, 0, 1, 0, 0, 2])
                .node("Pad", &["h", "p"], &["y"])
        }),
        ("Pad, reflecting", &[2, 5, 7], |m| {
            m.integers("p", &[0, 1, 2, 0, 1, 1]).node_with(
                "Pad",
                &["h", "p"],
                &["y"],
                &[("mode", Attr::Text("reflect"))],
            )
        }),
        ("Pad, edge", &[2, 5, 7], |m| {
            m.integers("p", &[0, 1, 2, 0, 1, 1]).node_with(
                "Pad",
                &["h", "p"],
                &["y"],
                &[("mode", Attr::Text("edge"))],
            )
        }),
        ("Trilu", &[2, 3, 4], |m| {
            m.node_with("Trilu", &["h"], &["y"], &[("upper", Attr::Int(0))])
        }),
    ];
    for (name, y, build) in cases {
        let model = through(&dims, y, -1.0, 1.0, build);
        let checked = check(&model.bytes(), &[("x", input_like(&dims, 5))], 3);
        close(name, &checked);
        same_forward(name, &checked);
    }
    for (op_type, mode, y) in [
        ("DepthToSpace", "DCR", [1, 2, 4, 6]),
        ("DepthToSpace", "CRD", [1, 2, 4, 6]),
        ("SpaceToDepth", "", [1, 32, 1, 1]),
    ] {
        let dims: &[i64] = &[1, 8, 2, if op_type == "DepthToSpace" { 3 } else { 2 }];
        let mut attributes = vec![("blocksize", Attr::Int(2))];
        if !mode.is_empty() {
            attributes.push(("mode", Attr::Text(mode)));
        }
        let model = through(dims, &y, -1.0, 1.0, |m| {
            m.node_with(op_type, &["h"], &["y"], &attributes)
        });
        let checked = check(&model.bytes(), &[("x", input_like(dims, 5))], 3);
        close(op_type, &checked);
        same_forward(op_type, &checked);
    }
}

#[test]
fn embedding() {
    use ort_training::artifacts::onnx::data_type::INT64;
    let model = Model::new(17)
        .input_of("tokens", INT64, &[2, 3])
        .weight("table", &[5, 4], &Rng(3).values(20, -1.0, 1.0))
        .node("Gather", &["table", "tokens"], &["e"])
        .node("Tanh", &["e"], &["y"])
        .output("y", &[2, 3, 4]);
    let tokens = Tensor::i64(&[2, 3], &[4, 0, 4, 2, 1, 4]);
    close(
        "Gather of rows, some repeated",
        &check(&model.bytes(), &[("tokens", tokens)], 3),
    );
}

#[test]
fn normalizations() {
    let dims = [2, 4, 3, 3];
    let mut rng = Rng(41);
    let (scale, bias) = (rng.values(4, 0.5, 1.5), rng.values(4, -1.0, 1.0));
    let with_scale = |m: Model, op_type: &str, attributes: &[(&str, Attr)]| {
        m.weight("scale", &[4], &scale)
            .weight("bias", &[4], &bias)
            .node_with(op_type, &["h", "scale", "bias"], &["y"], attributes)
    };
    let model = through(&dims, &dims, -1.0, 1.0, |m| {
        with_scale(m, "InstanceNormalization", &[])
    });
    let checked = check(&model.bytes(), &[("x", input_like(&dims, 5))], 3);
    close("InstanceNormalization", &checked);
    same_forward("InstanceNormalization", &checked);

    // Else the operator itself would round to single precision.
    let double_inside = ("stash_type", Attr::Int(11));
    let mut model = through(&dims, &dims, -1.0, 1.0, |m| {
        with_scale(
            m,
            "GroupNormalization",
            &[
                ("num_groups", Attr::Int(2)),
                ("epsilon", Attr::Float(1e-3)),
                double_inside,
            ],
        )
    });
    model.proto.opset_import[0].version = Some(21);
    let checked = check(&model.bytes(), &[("x", input_like(&dims, 5))], 3);
    close("GroupNormalization", &checked);
    same_forward("GroupNormalization", &checked);

    for p in [1, 2] {
        let attributes = [("axis", Attr::Int(1)), ("p", Attr::Int(p))];
        let model = through(&dims, &dims, 0.5, 1.0, |m| {
            m.node_with("LpNormalization", &["h"], &["y"], &attributes)
        });
        let checked = check(&model.bytes(), &[("x", input_like(&dims, 5))], 3);
        close("LpNormalization", &checked);
        same_forward("LpNormalization", &checked);
    }
    let model = through(&dims, &dims, -1.0, 1.0, |m| {
        m.node("MeanVarianceNormalization", &["h"], &["y"])
    });
    let checked = check(&model.bytes(), &[("x", input_like(&dims, 5))], 3);
    close("MeanVarianceNormalization", &checked);
    same_forward("MeanVarianceNormalization", &checked);

    let model = through(&[2, 3, 5], &[2, 3, 5], -1.0, 1.0, |m| {
        m.weight("scale", &[5], &rng.values(5, 0.5, 1.5))
            .weight("bias", &[5], &rng.values(5, -1.0, 1.0))
            .node("LayerNormalization", &["h", "scale", "bias"], &["y"])
    });
    close(
        "LayerNormalization",
        &check(&model.bytes(), &[("x", input_like(&[2, 3, 5], 5))], 3),
    );
}

/// Batch normalization by the running statistics: the evaluation model's own form, so the differences apply to it.
#[test]
fn frozen_batch_normalization() {
    for dims in [&[3, 4][..], &[2, 4, 3, 3]] {
        let mut rng = Rng(43);
        let mut numbers = |low, high| rng.values(4, low, high);
        let (scale, bias, mean, var) = (
            numbers(0.5, 1.5),
            numbers(-1.0, 1.0),
            numbers(-1.0, 1.0),
            numbers(0.5, 2.0),
        );
        let model = through(dims, dims, -1.0, 1.0, |m| {
            m.weight("scale", &[4], &scale)
                .weight("bias", &[4], &bias)
                .weight("mean", &[4], &mean)
                .weight("var", &[4], &var)
                .node(
                    "BatchNormalization",
                    &["h", "scale", "bias", "mean", "var"],
                    &["y"],
                )
        });
        let checked = check_with(
            &model.bytes(),
            &[("x", input_like(dims, 5))],
            3,
            |builder| builder.batch_norm(BatchNorm::Frozen),
        );
        close("BatchNormalization, frozen", &checked);
        same_forward("BatchNormalization, frozen", &checked);
        assert_eq!(checked.report.frozen, ["mean", "var"]);
    }
}

#[test]
fn resizes() {
    let x: &[i64] = &[1, 2, 4, 5];
    let modes: [(&str, &[(&str, Attr)]); 9] = [
        (
            "nearest",
            &[
                ("coordinate_transformation_mode", Attr::Text("asymmetric")),
                ("nearest_mode", Attr::Text("floor")),
            ],
        ),
        ("nearest", &[]),
        ("nearest", &[("nearest_mode", Attr::Text("ceil"))]),
        (
            "nearest",
            &[(
                "coordinate_transformation_mode",
                Attr::Text("align_corners"),
            )],
        ),
        ("linear", &[]),
        (
            "linear",
            &[(
                "coordinate_transformation_mode",
                Attr::Text("align_corners"),
            )],
        ),
        (
            "linear",
            &[("coordinate_transformation_mode", Attr::Text("asymmetric"))],
        ),
        ("cubic", &[]),
        (
            "cubic",
            &[
                ("exclude_outside", Attr::Int(1)),
                (
                    "coordinate_transformation_mode",
                    Attr::Text("pytorch_half_pixel"),
                ),
            ],
        ),
    ];
    for (mode, settings) in modes {
        for sizes in [[1, 2, 8, 10], [1, 2, 7, 5], [1, 2, 3, 12]] {
            let attributes: Vec<(&str, Attr)> = settings
                .iter()
                .map(|(name, value)| {
                    let value = match value {
                        Attr::Text(text) => Attr::Text(text),
                        Attr::Int(number) => Attr::Int(*number),
                        _ => unreachable!("texts and numbers above"),
                    };
                    (*name, value)
                })
                .chain([("mode", Attr::Text(mode))])
                .collect();
            let model = through(x, &sizes, -1.0, 1.0, |m| {
                m.integers("sizes", &sizes).node_with(
                    "Resize",
                    &["h", "", "", "sizes"],
                    &["y"],
                    &attributes,
                )
            });
            let checked = check(&model.bytes(), &[("x", input_like(x, 5))], 3);
            let what = format!("Resize, {mode} to {sizes:?}");
            close(&what, &checked);
            same_forward(&what, &checked);
        }
    }
    // Repeated by whole numbers, for sizes that the model leaves open.
    for (coordinates, rounding) in [
        ("asymmetric", "floor"),
        ("half_pixel", "round_prefer_floor"),
        ("pytorch_half_pixel", "round_prefer_ceil"),
    ] {
        for open in [false, true] {
            let dims: Vec<i64> = if open {
                vec![-1, 2, -1, -1]
            } else {
                x.to_vec()
            };
            let model = Model::new(17)
                .input("x", &dims)
                .weight("w", x, &Rng(2).values(40, -1.0, 1.0))
                .node("Mul", &["x", "w"], &["h"])
                .weight("scales", &[4], &[1.0, 1.0, 2.0, 3.0])
                .node_with(
                    "Resize",
                    &["h", "", "scales"],
                    &["y"],
                    &[
                        ("mode", Attr::Text("nearest")),
                        ("coordinate_transformation_mode", Attr::Text(coordinates)),
                        ("nearest_mode", Attr::Text(rounding)),
                    ],
                )
                .output("y", &[-1, 2, -1, -1]);
            let checked = check(&model.bytes(), &[("x", input_like(x, 5))], 3);
            let what = format!("Resize, nearest by {coordinates} and {rounding}, open {open}");
            close(&what, &checked);
            same_forward(&what, &checked);
            assert_eq!(checked.report.rewrites[0].form, "Expand and Reshape");
        }
    }
    // By scales, and in one and three dimensions.
    for (dims, scales, y) in [
        (&[1, 2, 5][..], &[1.0, 1.0, 2.0][..], &[1, 2, 10][..]),
        (
            &[1, 1, 3, 4, 2],
            &[1.0, 1.0, 2.0, 1.5, 2.0],
            &[1, 1, 6, 6, 4],
        ),
        (&[1, 1, 4, 4], &[1.0, 1.0, 2.6, 0.6], &[1, 1, 10, 2]),
    ] {
        let scales: Vec<f64> = scales.to_vec();
        let model = through(dims, y, -1.0, 1.0, |m| {
            m.weight("scales", &[scales.len() as i64], &scales)
                .node_with(
                    "Resize",
                    &["h", "", "scales"],
                    &["y"],
                    &[("mode", Attr::Text("linear"))],
                )
        });
        let checked = check(&model.bytes(), &[("x", input_like(dims, 5))], 3);
        close("Resize, linear by scales", &checked);
        same_forward("Resize, linear by scales", &checked);
        assert!(!checked.report.trainable.contains(&"scales".to_owned()));
    }
}

#[test]
fn recurrent() {
    let mut rng = Rng(47);
    let cases = [
        ("LSTM", 4, "forward", 0),
        ("LSTM", 4, "reverse", 0),
        ("LSTM", 4, "bidirectional", 0),
        ("GRU", 3, "forward", 1),
        ("GRU", 3, "forward", 0),
        ("GRU", 3, "reverse", 1),
        ("GRU", 3, "bidirectional", 1),
    ];
    for (op_type, gates, direction, linear) in cases {
        let directions = if direction == "bidirectional" { 2 } else { 1 };
        let (hidden, features) = (3, 2);
        let mut numbers = |count: i64| rng.values(count as usize, -0.7, 0.7);
        let mut attributes = vec![
            ("hidden_size", Attr::Int(hidden)),
            ("direction", Attr::Text(direction)),
        ];
        if op_type == "GRU" {
            attributes.push(("linear_before_reset", Attr::Int(linear)));
        }
        let model = Model::new(14)
            .input("x", &[4, 2, features])
            .weight("s", &[features], &[0.8, 1.2])
            .node("Mul", &["x", "s"], &["h"])
            .weight(
                "w",
                &[directions, gates * hidden, features],
                &numbers(directions * gates * hidden * features),
            )
            .weight(
                "r",
                &[directions, gates * hidden, hidden],
                &numbers(directions * gates * hidden * hidden),
            )
            .weight(
                "b",
                &[directions, 2 * gates * hidden],
                &numbers(directions * 2 * gates * hidden),
            )
            .node_with(op_type, &["h", "w", "r", "b"], &["y"], &attributes)
            .output("y", &[4, directions, 2, hidden]);
        let what = format!("{op_type}, {direction}, linear before reset {linear}");
        close(
            &what,
            &check(
                &model.bytes(),
                &[("x", input_like(&[4, 2, features], 5))],
                3,
            ),
        );
    }
}

#[test]
fn padding_and_rounding_of_windows() {
    type Attributes<'a> = &'a [(&'a str, Attr<'a>)];
    let x = [1, 2, 7, 6];
    let same = |mode| {
        [
            ("kernel_shape", Attr::Ints(&[3, 2])),
            ("strides", Attr::Ints(&[2, 2])),
            ("auto_pad", Attr::Text(mode)),
        ]
    };
    for mode in ["SAME_UPPER", "SAME_LOWER", "VALID"] {
        let attributes = same(mode);
        let y: &[i64] = if mode == "VALID" {
            &[1, 3, 3, 3]
        } else {
            &[1, 3, 4, 3]
        };
        let model = through(&x, y, -1.0, 1.0, |m| {
            m.weight("k", &[3, 2, 3, 2], &Rng(3).values(36, -1.0, 1.0))
                .node_with("Conv", &["h", "k"], &["y"], &attributes)
        });
        close(
            &format!("Conv, {mode}"),
            &check(&model.bytes(), &[("x", input_like(&x, 5))], 3),
        );
        for op_type in ["MaxPool", "AveragePool"] {
            let y: &[i64] = if mode == "VALID" {
                &[1, 2, 3, 3]
            } else {
                &[1, 2, 4, 3]
            };
            let model = through(&x, y, -1.0, 1.0, |m| {
                m.node_with(op_type, &["h"], &["y"], &attributes)
            });
            close(
                &format!("{op_type}, {mode}"),
                &check(&model.bytes(), &[("x", input_like(&x, 5))], 3),
            );
        }
    }
    let ceiling: Attributes = &[
        ("kernel_shape", Attr::Ints(&[2, 3])),
        ("strides", Attr::Ints(&[2, 2])),
        ("ceil_mode", Attr::Int(1)),
    ];
    let dilated: Attributes = &[
        ("kernel_shape", Attr::Ints(&[2, 2])),
        ("dilations", Attr::Ints(&[2, 3])),
    ];
    for (op_type, opset, name, attributes, y) in [
        ("MaxPool", 17, "ceil_mode", ceiling, [1, 2, 4, 3]),
        ("MaxPool", 17, "dilations", dilated, [1, 2, 5, 3]),
        ("AveragePool", 17, "ceil_mode", ceiling, [1, 2, 4, 3]),
        ("AveragePool", 19, "dilations", dilated, [1, 2, 5, 3]),
    ] {
        let mut model = through(&x, &y, -1.0, 1.0, |m| {
            m.node_with(op_type, &["h"], &["y"], attributes)
        });
        model.proto.opset_import[0].version = Some(opset);
        close(
            &format!("{op_type}, {name}"),
            &check(&model.bytes(), &[("x", input_like(&x, 5))], 3),
        );
    }
    for op_type in ["MaxPool", "AveragePool"] {
        for (dims, kernel, y) in [
            (&[2, 2, 7][..], &[3][..], &[2, 2, 5][..]),
            (&[1, 2, 3, 4, 3], &[2, 2, 2], &[1, 2, 2, 3, 2]),
        ] {
            let model = through(dims, y, -1.0, 1.0, |m| {
                m.node_with(
                    op_type,
                    &["h"],
                    &["y"],
                    &[("kernel_shape", Attr::Ints(kernel))],
                )
            });
            close(
                &format!("{op_type} of {dims:?}"),
                &check(&model.bytes(), &[("x", input_like(dims, 5))], 3),
            );
        }
    }
}

#[test]
fn corners_of_definitions() {
    type Build = fn(Model) -> Model;
    // Name, operator set, shape of x, shape of y, nodes.
    type Case<'a> = (&'a str, i64, &'a [i64], &'a [i64], Build);
    let cases: [Case; 28] = [
        ("A parameter used twice", 17, &[2, 3], &[2, 3], |m| {
            m.node("Tanh", &["w"], &["t"])
                .node("Add", &["h", "t"], &["y"])
        }),
        ("Pad, axes", 18, &[2, 3, 4], &[2, 5, 4], |m| {
            m.scalar("zero", 0.5)
                .integers("p", &[0, 2])
                .integers("axes", &[-2])
                .node("Pad", &["h", "p", "zero", "axes"], &["y"])
        }),
        ("Softmax, flattening", 12, &[2, 3, 2], &[2, 3, 2], |m| {
            m.node_with("Softmax", &["h"], &["y"], &[("axis", Attr::Int(1))])
        }),
        ("LogSoftmax, flattening", 12, &[2, 3, 2], &[2, 3, 2], |m| {
            m.node_with("LogSoftmax", &["h"], &["y"], &[("axis", Attr::Int(1))])
        }),
        ("Gather, negative", 17, &[3, 4], &[3, 2], |m| {
            m.integers("i", &[-1, -3]).node_with(
                "Gather",
                &["h", "i"],
                &["y"],
                &[("axis", Attr::Int(-1))],
            )
        }),
        ("Squeeze, all", 17, &[1, 3, 1], &[3], |m| {
            m.node("Squeeze", &["h"], &["y"])
        }),
        ("Split, equal", 17, &[4, 3], &[2, 3], |m| {
            m.node_with("Split", &["h"], &["a", "b"], &[("axis", Attr::Int(0))])
                .node("Mul", &["a", "b"], &["y"])
        }),
        ("Split, num_outputs", 18, &[4, 3], &[2, 3], |m| {
            m.node_with(
                "Split",
                &["h"],
                &["a", "b"],
                &[("axis", Attr::Int(0)), ("num_outputs", Attr::Int(2))],
            )
            .node("Mul", &["a", "b"], &["y"])
        }),
        ("Split, one part unused", 17, &[4, 3], &[2, 3], |m| {
            m.node_with("Split", &["h"], &["y", "unused"], &[("axis", Attr::Int(0))])
        }),
        ("Clip, open above", 17, &[2, 3], &[2, 3], |m| {
            m.scalar("low", 0.1).node("Clip", &["h", "low"], &["y"])
        }),
        ("Clip, open below", 17, &[2, 3], &[2, 3], |m| {
            m.scalar("high", 0.1)
                .node("Clip", &["h", "", "high"], &["y"])
        }),
        (
            "LayerNormalization over two axes",
            17,
            &[2, 3, 4],
            &[2, 3, 4],
            |m| {
                m.weight("g", &[3, 4], &Rng(2).values(12, 0.5, 1.5))
                    .weight("b", &[3, 4], &Rng(3).values(12, 0.5, 1.5))
                    .node_with(
                        "LayerNormalization",
                        &["h", "g", "b"],
                        &["y"],
                        &[("axis", Attr::Int(1))],
                    )
            },
        ),
        (
            "LayerNormalization without bias",
            17,
            &[2, 3, 4],
            &[2, 3, 4],
            |m| {
                m.weight("g", &[4], &Rng(2).values(4, 0.5, 1.5)).node(
                    "LayerNormalization",
                    &["h", "g"],
                    &["y"],
                )
            },
        ),
        ("MatMul, vector right", 17, &[3, 4], &[3], |m| {
            m.weight("v", &[4], &[0.1, 0.2, 0.3, 0.4])
                .node("MatMul", &["h", "v"], &["y"])
        }),
        ("MatMul, vector left", 17, &[3, 4], &[4], |m| {
            m.weight("v", &[3], &[0.1, 0.2, 0.3])
                .node("MatMul", &["v", "h"], &["y"])
        }),
        ("MatMul, broadcast left", 17, &[4, 5], &[2, 3, 5], |m| {
            m.weight("v", &[2, 3, 4], &Rng(1).values(24, -1.0, 1.0))
                .node("MatMul", &["v", "h"], &["y"])
        }),
        ("Gemm without C", 17, &[3, 4], &[3, 2], |m| {
            m.weight("v", &[4, 2], &Rng(1).values(8, -1.0, 1.0))
                .node("Gemm", &["h", "v"], &["y"])
        }),
        ("Gemm, C of one row", 17, &[3, 4], &[3, 2], |m| {
            m.weight("v", &[4, 2], &Rng(1).values(8, -1.0, 1.0))
                .weight("c", &[3, 1], &[0.1, 0.2, 0.3])
                .node("Gemm", &["h", "v", "c"], &["y"])
        }),
        ("ReduceMean over all", 17, &[2, 3], &[1, 1], |m| {
            m.node("ReduceMean", &["h"], &["y"])
        }),
        ("ReduceSum over all, no axes kept", 17, &[2, 3], &[], |m| {
            m.node_with("ReduceSum", &["h"], &["y"], &[("keepdims", Attr::Int(0))])
        }),
        ("Flatten from 0", 17, &[2, 3], &[1, 6], |m| {
            m.node_with("Flatten", &["h"], &["y"], &[("axis", Attr::Int(0))])
        }),
        ("Concat of itself", 17, &[2, 3], &[2, 6], |m| {
            m.node_with("Concat", &["h", "h"], &["y"], &[("axis", Attr::Int(-1))])
        }),
        ("Expand of ones", 17, &[1, 3, 1], &[2, 3, 4], |m| {
            m.integers("s", &[2, 1, 4])
                .node("Expand", &["h", "s"], &["y"])
        }),
        ("Max of three", 17, &[2, 3], &[2, 3], |m| {
            m.weight("a", &[2, 3], &Rng(6).values(6, -1.0, 1.0))
                .weight("b", &[3], &Rng(7).values(3, -1.0, 1.0))
                .node("Max", &["h", "a", "b"], &["y"])
        }),
        ("GatherND", 17, &[3, 4], &[2], |m| {
            m.integers("flat", &[2, 1, 0, 3])
                .integers("s", &[2, 2])
                .node("Reshape", &["flat", "s"], &["i"])
                .node("GatherND", &["h", "i"], &["y"])
        }),
        ("GatherElements", 17, &[2, 3], &[2, 2], |m| {
            m.integers("flat", &[2, 1, 0, 0])
                .integers("s", &[2, 2])
                .node("Reshape", &["flat", "s"], &["i"])
                .node_with(
                    "GatherElements",
                    &["h", "i"],
                    &["y"],
                    &[("axis", Attr::Int(1))],
                )
        }),
        ("TopK", 17, &[2, 5], &[2, 2], |m| {
            m.integers("k", &[2]).node("TopK", &["h", "k"], &["y", "i"])
        }),
        ("ScatterND", 17, &[3, 4], &[3, 4], |m| {
            m.integers("flat", &[2, 0])
                .integers("s", &[2, 1])
                .node("Reshape", &["flat", "s"], &["i"])
                .weight("u", &[2, 4], &Rng(9).values(8, -1.0, 1.0))
                .node("ScatterND", &["h", "i", "u"], &["y"])
        }),
    ];
    for (name, opset, x, y, build) in cases {
        println!("{name}");
        let mut model = through(x, y, -1.0, 1.0, build);
        model.proto.opset_import[0].version = Some(opset);
        let checked = check(&model.bytes(), &[("x", input_like(x, 5))], 3);
        close(name, &checked);
        same_forward(name, &checked);
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
fn cumulative_sums() {
    for (exclusive, reverse) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let attributes = [
            ("exclusive", Attr::Int(exclusive)),
            ("reverse", Attr::Int(reverse)),
        ];
        for axis in [0, 1, -1] {
            let model = through(&[2, 3, 4], &[2, 3, 4], -1.0, 1.0, |m| {
                m.integers("axis", &[axis])
                    .node_with("CumSum", &["h", "axis"], &["y"], &attributes)
            });
            let checked = check(&model.bytes(), &[("x", input_like(&[2, 3, 4], 5))], 3);
            close("CumSum", &checked);
            same_forward("CumSum", &checked);
        }
    }
}

/// Sizes that the model leaves open, where ONNX Runtime's own gradients of pooling read what the model says.
#[test]
fn pooling_of_open_sizes() {
    type Attributes<'a> = &'a [(&'a str, Attr<'a>)];
    let volume: &[i64] = &[1, 2, 5, 4, 6];
    let image: &[i64] = &[2, 3, 7, 6];
    let cases: [(&str, &[i64], Attributes); 9] = [
        (
            "AveragePool",
            volume,
            &[("kernel_shape", Attr::Ints(&[2, 3, 2]))],
        ),
        (
            "AveragePool",
            volume,
            &[
                ("kernel_shape", Attr::Ints(&[3, 2, 3])),
                ("strides", Attr::Ints(&[2, 2, 1])),
                ("pads", Attr::Ints(&[1, 0, 1, 1, 1, 1])),
            ],
        ),
        (
            "AveragePool",
            volume,
            &[
                ("kernel_shape", Attr::Ints(&[3, 2, 3])),
                ("pads", Attr::Ints(&[1, 1, 1, 1, 0, 1])),
                ("count_include_pad", Attr::Int(1)),
            ],
        ),
        (
            "AveragePool",
            volume,
            &[
                ("kernel_shape", Attr::Ints(&[2, 2, 2])),
                ("auto_pad", Attr::Text("SAME_UPPER")),
            ],
        ),
        (
            "AveragePool",
            image,
            &[
                ("kernel_shape", Attr::Ints(&[2, 2])),
                ("strides", Attr::Ints(&[2, 2])),
            ],
        ),
        (
            "AveragePool",
            image,
            &[
                ("kernel_shape", Attr::Ints(&[3, 3])),
                ("strides", Attr::Ints(&[2, 2])),
                ("pads", Attr::Ints(&[1, 1, 1, 1])),
            ],
        ),
        (
            "MaxPool",
            image,
            &[
                ("kernel_shape", Attr::Ints(&[2, 2])),
                ("strides", Attr::Ints(&[2, 2])),
            ],
        ),
        (
            "MaxPool",
            image,
            &[
                ("kernel_shape", Attr::Ints(&[3, 3])),
                ("pads", Attr::Ints(&[1, 1, 1, 1])),
            ],
        ),
        (
            "MaxPool",
            volume,
            &[
                ("kernel_shape", Attr::Ints(&[2, 2, 2])),
                ("dilations", Attr::Ints(&[1, 2, 1])),
            ],
        ),
    ];
    for (op_type, x, attributes) in cases {
        for open in [0, 1, 2] {
            // Everything known, all but the batch, only the channels.
            let dims: Vec<i64> = x
                .iter()
                .enumerate()
                .map(|(i, &d)| {
                    if (open > 0 && i == 0) || (open > 1 && i > 1) {
                        -1
                    } else {
                        d
                    }
                })
                .collect();
            let model = Model::new(17)
                .input("x", &dims)
                .weight(
                    "w",
                    &[x[1]]
                        .into_iter()
                        .chain(x[2..].iter().map(|_| 1))
                        .collect::<Vec<_>>(),
                    &Rng(3).values(x[1] as usize, 0.5, 1.5),
                )
                .node("Mul", &["x", "w"], &["h"])
                .node_with(op_type, &["h"], &["y"], attributes)
                .output("y", &vec![-1; x.len()]);
            let checked = check(&model.bytes(), &[("x", input_like(x, 5))], 3);
            let what = format!("{op_type} of {dims:?}");
            close(&what, &checked);
            same_forward(&what, &checked);
        }
    }
}

#[test]
fn global_pooling_of_open_sizes() {
    for op_type in ["GlobalAveragePool", "GlobalMaxPool"] {
        let model = Model::new(17)
            .input("x", &[-1, 2, -1, -1])
            .weight("w", &[2, 1, 1], &[0.7, 1.2])
            .node("Mul", &["x", "w"], &["h"])
            .node(op_type, &["h"], &["y"])
            .output("y", &[-1, 2, 1, 1]);
        close(
            op_type,
            &check(&model.bytes(), &[("x", input_like(&[3, 2, 4, 5], 5))], 3),
        );
    }
}

/// What PyTorch writes for a resizing to the size of another value, with the batch left open.
#[test]
fn resizing_to_the_size_of_another_value() {
    let (x, skip): (&[i64], &[i64]) = (&[2, 3, 4, 5], &[2, 2, 8, 7]);
    let model = Model::new(17)
        .input("x", &[-1, 3, 4, 5])
        .input("skip", &[-1, 2, 8, 7])
        .weight("w", &[3, 1, 1], &[0.7, -0.4, 1.1])
        .node("Mul", &["x", "w"], &["m"])
        .node("Tanh", &["m"], &["t"])
        .node("Shape", &["t"], &["shape"])
        .node("Shape", &["skip"], &["skip.shape"])
        .integers("from0", &[0])
        .integers("to2", &[2])
        .integers("to4", &[4])
        .node("Slice", &["shape", "from0", "to2", "from0"], &["head"])
        .node("Slice", &["skip.shape", "to2", "to4", "from0"], &["tail"])
        .node_with(
            "Concat",
            &["head", "tail"],
            &["sizes"],
            &[("axis", Attr::Int(0))],
        )
        .node_with(
            "Resize",
            &["t", "", "", "sizes"],
            &["r"],
            &[("mode", Attr::Text("linear"))],
        )
        .node_with("Concat", &["r", "skip"], &["y"], &[("axis", Attr::Int(1))])
        .output("y", &[-1, 5, 8, 7]);
    let inputs = [("x", input_like(x, 5)), ("skip", input_like(skip, 6))];
    let checked = check(&model.bytes(), &inputs, 3);
    close("Resize to the size of another value", &checked);
    same_forward("Resize to the size of another value", &checked);
    assert_eq!(checked.report.rewrites.len(), 1);
}

#[test]
fn einsums() {
    // Equation, shapes of both operands and of the output.
    let cases: [(&str, &[i64], &[i64], &[i64]); 12] = [
        ("ij,jk->ik", &[3, 4], &[4, 2], &[3, 2]),
        ("ij,jk", &[3, 4], &[4, 2], &[3, 2]),
        (
            "bhid,bhjd->bhij",
            &[2, 2, 3, 4],
            &[2, 2, 5, 4],
            &[2, 2, 3, 5],
        ),
        (
            "bhij,bjhd->bihd",
            &[2, 2, 3, 4],
            &[2, 4, 2, 3],
            &[2, 3, 2, 3],
        ),
        ("bi,bj->bij", &[2, 3], &[2, 4], &[2, 3, 4]),
        ("bi,bi->b", &[2, 3], &[2, 3], &[2]),
        ("i,j->ji", &[3], &[4], &[4, 3]),
        ("bcij,cd->bdij", &[2, 3, 2, 2], &[3, 4], &[2, 4, 2, 2]),
        ("abc,bcd->ad", &[2, 3, 4], &[3, 4, 2], &[2, 2]),
        ("abc,cd->d", &[2, 3, 4], &[4, 2], &[2]),
        ("bij,bij->", &[2, 3, 2], &[2, 3, 2], &[]),
        (
            "nctkv,kvw->nctw",
            &[2, 2, 3, 2, 3],
            &[2, 3, 4],
            &[2, 2, 3, 4],
        ),
    ];
    for (equation, a, b, y) in cases {
        println!("{equation}");
        let count = b.iter().product::<i64>() as usize;
        let model = through(a, y, -1.0, 1.0, |m| {
            m.weight("v", b, &Rng(9).values(count, -1.0, 1.0))
                .node_with(
                    "Einsum",
                    &["h", "v"],
                    &["y"],
                    &[("equation", Attr::Text(equation))],
                )
        });
        let checked = check(&model.bytes(), &[("x", input_like(a, 5))], 3);
        close(equation, &checked);
        same_forward(equation, &checked);
    }
    for (equation, y) in [
        ("abc->ac", &[2, 4][..]),
        ("abc->cba", &[4, 3, 2]),
        ("abc->", &[]),
    ] {
        let model = through(&[2, 3, 4], y, -1.0, 1.0, |m| {
            m.node_with(
                "Einsum",
                &["h"],
                &["y"],
                &[("equation", Attr::Text(equation))],
            )
        });
        let checked = check(&model.bytes(), &[("x", input_like(&[2, 3, 4], 5))], 3);
        close(equation, &checked);
        same_forward(equation, &checked);
    }
}

#[test]
fn negative_log_likelihood() {
    use ort_training::artifacts::onnx::data_type::INT64;
    let targets = [2, 0, 1, 2, 1, 0];
    for (x, t) in [(&[6, 3][..], &[6][..]), (&[2, 3, 3], &[2, 3])] {
        for weighted in [false, true] {
            for (reduction, ignored) in [
                ("mean", None),
                ("mean", Some(1)),
                ("sum", Some(0)),
                ("none", None),
            ] {
                let mut attributes = vec![("reduction", Attr::Text(reduction))];
                attributes.extend(ignored.map(|i| ("ignore_index", Attr::Int(i))));
                let y: &[i64] = if reduction == "none" { t } else { &[] };
                let model = through(x, y, -1.0, 1.0, |m| {
                    let m = m
                        .input_of("t", INT64, t)
                        .weight("class", &[3], &[0.5, 2.0, 1.2]);
                    let inputs: &[&str] = if weighted {
                        &["h", "t", "class"]
                    } else {
                        &["h", "t"]
                    };
                    m.node_with("NegativeLogLikelihoodLoss", inputs, &["y"], &attributes)
                });
                let inputs = [("x", input_like(x, 5)), ("t", Tensor::i64(t, &targets))];
                let checked = check_with(&model.bytes(), &inputs, 3, |b| b.requires_grad(["w"]));
                close("NegativeLogLikelihoodLoss", &checked);
                same_forward("NegativeLogLikelihoodLoss", &checked);
            }
        }
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
