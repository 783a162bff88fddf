//! Mutated models for inference: those of the fixtures, and some with operators that none of these has.

use std::fs;

use crate::artifacts_support::Rng;
use crate::artifacts_support::model::{Attr, Model};
use crate::random::Random;
use crate::runner::{Folder, Stages};
use crate::support::fixture;
use crate::{model, training};

pub fn run(index: u64, folder: &Folder) -> Stages {
    let mut random = Random::new("inference_models", index);
    let bytes = model::mutate(&base(&mut random), &mut random);
    folder.keep("model.onnx", &bytes);
    training::infer(&bytes, &mut random)
}

/// A model in order.
pub fn base(random: &mut Random) -> Vec<u8> {
    let forward = |name: &str| fs::read(fixture(name).join("forward.onnx")).unwrap();
    match random.below(6) {
        0 => forward("regression"),
        1 => forward("dropout"),
        2 => forward("digits_sgd"),
        3 => picture().bytes(),
        4 => words().bytes(),
        _ => shapes().bytes(),
    }
}

/// Convolution, pooling, normalisation.
pub fn picture() -> Model {
    let mut rng = Rng(1);
    Model::new(17)
        .input("x", &[-1, 1, 8, 8])
        .weight("kernel", &[2, 1, 3, 3], &rng.values(18, -1.0, 1.0))
        .weight("bias", &[2], &rng.values(2, -1.0, 1.0))
        .node_with(
            "Conv",
            &["x", "kernel", "bias"],
            &["conv"],
            &[
                ("kernel_shape", Attr::Ints(&[3, 3])),
                ("pads", Attr::Ints(&[1, 1, 1, 1])),
                ("strides", Attr::Ints(&[1, 1])),
                ("dilations", Attr::Ints(&[1, 1])),
                ("group", Attr::Int(1)),
            ],
        )
        .weight("mean", &[2], &rng.values(2, -1.0, 1.0))
        .weight("variance", &[2], &rng.values(2, 0.5, 1.0))
        .node_with(
            "BatchNormalization",
            &["conv", "bias", "bias", "mean", "variance"],
            &["norm"],
            &[("epsilon", Attr::Float(1e-5))],
        )
        .node("Relu", &["norm"], &["relu"])
        .node_with(
            "MaxPool",
            &["relu"],
            &["pool"],
            &[
                ("kernel_shape", Attr::Ints(&[2, 2])),
                ("strides", Attr::Ints(&[2, 2])),
                ("pads", Attr::Ints(&[0, 0, 0, 0])),
            ],
        )
        .node_with(
            "AveragePool",
            &["pool"],
            &["average"],
            &[
                ("kernel_shape", Attr::Ints(&[2, 2])),
                ("strides", Attr::Ints(&[2, 2])),
                ("ceil_mode", Attr::Int(1)),
            ],
        )
        .node_with(
            "Flatten",
            &["average"],
            &["flat"],
            &[("axis", Attr::Int(1))],
        )
        .weight("dense", &[8, 3], &rng.values(24, -1.0, 1.0))
        .node_with(
            "Gemm",
            &["flat", "dense"],
            &["scores"],
            &[("alpha", Attr::Float(1.0)), ("transB", Attr::Int(0))],
        )
        .node_with("Softmax", &["scores"], &["y"], &[("axis", Attr::Int(-1))])
        .output("y", &[-1, 3])
}

/// Embedding, recurrence, attention-like products.
pub fn words() -> Model {
    let mut rng = Rng(2);
    Model::new(17)
        .input_of("ids", 7, &[-1, 3])
        .weight("table", &[5, 4], &rng.values(20, -1.0, 1.0))
        .node_with(
            "Gather",
            &["table", "ids"],
            &["embedded"],
            &[("axis", Attr::Int(0))],
        )
        .weight("gain", &[4], &rng.values(4, 0.5, 1.0))
        .node_with(
            "LayerNormalization",
            &["embedded", "gain"],
            &["norm"],
            &[("axis", Attr::Int(-1)), ("epsilon", Attr::Float(1e-5))],
        )
        .node_with(
            "Transpose",
            &["norm"],
            &["turned"],
            &[("perm", Attr::Ints(&[0, 2, 1]))],
        )
        .node("MatMul", &["norm", "turned"], &["products"])
        .node_with(
            "Softmax",
            &["products"],
            &["weights"],
            &[("axis", Attr::Int(2))],
        )
        .node("MatMul", &["weights", "norm"], &["mixed"])
        .weight("w", &[1, 8, 4], &rng.values(32, -1.0, 1.0))
        .weight("r", &[1, 8, 2], &rng.values(16, -1.0, 1.0))
        .node_with(
            "LSTM",
            &["mixed", "w", "r"],
            &["states", "last"],
            &[("hidden_size", Attr::Int(2))],
        )
        .integers("axes", &[0])
        .node_with("Squeeze", &["last", "axes"], &["squeezed"], &[])
        .node_with(
            "ReduceMean",
            &["squeezed"],
            &["y"],
            &[("axes", Attr::Ints(&[1]))],
        )
        .output("y", &[-1, 1])
}

/// Operators that compute shapes and indices.
pub fn shapes() -> Model {
    Model::new(17)
        .input("x", &[-1, 6])
        .integers("shape", &[0, 2, 3])
        .node("Reshape", &["x", "shape"], &["cubes"])
        .integers("starts", &[0])
        .integers("ends", &[2])
        .integers("axes", &[2])
        .integers("steps", &[1])
        .node(
            "Slice",
            &["cubes", "starts", "ends", "axes", "steps"],
            &["sliced"],
        )
        .integers("pads", &[0, 0, 1, 0, 0, 1])
        .node_with(
            "Pad",
            &["sliced", "pads"],
            &["padded"],
            &[("mode", Attr::Text("constant"))],
        )
        .integers("repeats", &[1, 2, 1])
        .node("Tile", &["padded", "repeats"], &["tiled"])
        .integers("k", &[2])
        .node_with(
            "TopK",
            &["tiled", "k"],
            &["top", "places"],
            &[("axis", Attr::Int(-1))],
        )
        .node_with(
            "GatherElements",
            &["tiled", "places"],
            &["gathered"],
            &[("axis", Attr::Int(2))],
        )
        .node_with(
            "Concat",
            &["top", "gathered"],
            &["joined"],
            &[("axis", Attr::Int(1))],
        )
        .integers("splits", &[4, 4])
        .node_with(
            "Split",
            &["joined", "splits"],
            &["left", "right"],
            &[("axis", Attr::Int(1))],
        )
        .integers("sizes", &[2, 4, 2])
        .node("Expand", &["left", "sizes"], &["wide"])
        .node_with("CumSum", &["wide", "axis"], &["sums"], &[])
        .integers("axis", &[1])
        .node("Mul", &["sums", "right"], &["product"])
        .node("Shape", &["product"], &["known"])
        .node_with("ConstantOfShape", &["known"], &["zeros"], &[])
        .node("Sub", &["product", "zeros"], &["y"])
        .output("y", &[-1, 4, 2])
}
