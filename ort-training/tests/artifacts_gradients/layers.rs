//! Products, reductions, normalizations and recurrent layers.

use crate::artifacts_support::Rng;
use crate::artifacts_support::check::{check, check_with};
use crate::artifacts_support::model::{Attr, Model};
use crate::artifacts_support::session::Tensor;
use crate::{close, input_like, same_forward, through};
use ort_training::artifacts::BatchNorm;

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
fn einsums() {
    // Equation, shapes of both operands and of the output.
    type Case<'a> = (&'a str, &'a [i64], &'a [i64], &'a [i64]);
    let cases: [Case; 12] = [
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
