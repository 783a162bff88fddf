//! Convolution and pooling.

use crate::artifacts_support::Rng;
use crate::artifacts_support::check::check;
use crate::artifacts_support::model::{Attr, Model};
use crate::{close, input_like, same_forward, through};

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
