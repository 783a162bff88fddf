//! What moves, picks and resizes.

use crate::artifacts_support::Rng;
use crate::artifacts_support::check::check;
use crate::artifacts_support::model::{Attr, Model};
use crate::{close, input_like, same_forward, through};

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

fn scatter_elements(model: Model, reduction: Option<&str>) -> Model {
    let mut attributes = vec![("axis", Attr::Int(1))];
    attributes.extend(reduction.map(|r| ("reduction", Attr::Text(r))));
    // With a reduction, a place may be written twice.
    let places: &[i64] = if reduction.is_some() {
        &[1, 1, 0, 2, 2, 0]
    } else {
        &[1, 0, 0, 2, 2, 1]
    };
    model
        .integers("flat", places)
        .integers("s", &[3, 2])
        .node("Reshape", &["flat", "s"], &["i"])
        .weight("u", &[3, 2], &Rng(9).values(6, -1.0, 1.0))
        .node_with("ScatterElements", &["h", "i", "u"], &["y"], &attributes)
}

#[test]
fn corners_of_definitions() {
    type Build = fn(Model) -> Model;
    // Name, operator set, shape of x, shape of y, nodes.
    type Case<'a> = (&'a str, i64, &'a [i64], &'a [i64], Build);
    let cases: [Case; 38] = [
        ("GatherND, batched", 17, &[2, 3, 4], &[2, 2], |m| {
            m.integers("flat", &[2, 1, 0, 3, 1, 1, 2, 0])
                .integers("s", &[2, 2, 2])
                .node("Reshape", &["flat", "s"], &["i"])
                .node_with(
                    "GatherND",
                    &["h", "i"],
                    &["y"],
                    &[("batch_dims", Attr::Int(1))],
                )
        }),
        ("TopK, smallest of columns", 17, &[5, 2], &[2, 2], |m| {
            m.integers("k", &[2]).node_with(
                "TopK",
                &["h", "k"],
                &["y", "i"],
                &[("axis", Attr::Int(0)), ("largest", Attr::Int(0))],
            )
        }),
        ("ScatterElements", 17, &[3, 3], &[3, 3], |m| {
            scatter_elements(m, None)
        }),
        ("ScatterElements, adding", 17, &[3, 3], &[3, 3], |m| {
            scatter_elements(m, Some("add"))
        }),
        ("ScatterND, adding", 17, &[3, 4], &[3, 4], |m| {
            m.integers("flat", &[2, 0, 2])
                .integers("s", &[3, 1])
                .node("Reshape", &["flat", "s"], &["i"])
                .weight("u", &[3, 4], &Rng(9).values(12, -1.0, 1.0))
                .node_with(
                    "ScatterND",
                    &["h", "i", "u"],
                    &["y"],
                    &[("reduction", Attr::Text("add"))],
                )
        }),
        ("Transpose, reversing", 17, &[2, 3, 4], &[4, 3, 2], |m| {
            m.node("Transpose", &["h"], &["y"])
        }),
        ("Slice without axes", 17, &[3, 4], &[2, 4], |m| {
            m.integers("from", &[1]).integers("to", &[3]).node(
                "Slice",
                &["h", "from", "to"],
                &["y"],
            )
        }),
        ("Concat with a constant", 17, &[2, 3], &[3, 3], |m| {
            m.weight("c", &[1, 3], &[1.0, 2.0, 3.0])
                .node("Identity", &["c"], &["d"])
                .node_with("Concat", &["h", "d"], &["y"], &[("axis", Attr::Int(0))])
        }),
        ("Pow by exponents", 17, &[2, 3], &[2, 3], |m| {
            m.weight("e", &[3], &[2.0, 3.0, 1.0])
                .node("Pow", &["h", "e"], &["y"])
        }),
        ("Expand to a computed shape", 17, &[1, 3], &[4, 3], |m| {
            m.input("like", &[4, 3])
                .node("Shape", &["like"], &["s"])
                .node("Expand", &["h", "s"], &["y"])
        }),
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
        let mut inputs = vec![("x", input_like(x, 5))];
        if name == "Expand to a computed shape" {
            inputs.push(("like", input_like(&[4, 3], 6)));
        }
        let checked = check(&model.bytes(), &inputs, 3);
        close(name, &checked);
        same_forward(name, &checked);
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
