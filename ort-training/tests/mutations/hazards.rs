//! What ends the process inside ONNX Runtime and cannot be seen beforehand: the smallest input for each reason.
//!
//! docs/hazards.md describes them under these names. A hazard that is none any more fails the test.

use ort_training::artifacts::onnx::{ModelProto, NodeProto, TensorProto, data_type};
use ort_training::{AsValue, InferenceSession, Tensor};
use prost::Message;

use crate::artifacts_support::model::{Attr, Model, info};
use crate::random::Random;
use crate::runner::{Folder, Stages};
use crate::support::{env, one_thread};
use crate::training::{Artifacts, TRAINING};

type Hazard = (&'static str, fn(&Folder) -> Stages);

/// Input `index` of the suite is the one of this place.
pub const ALL: [Hazard; 6] = [
    ("gradient-shape", gradient_shape),
    ("class-labels", class_labels),
    ("integer-division", |folder| integer_division("Div", folder)),
    ("integer-division", |folder| integer_division("Mod", folder)),
    ("lstm-input", lstm_input),
    ("conv-transpose-rank", conv_transpose_rank),
];

pub fn run(index: u64, folder: &Folder) -> Stages {
    ALL[index as usize].1(folder)
}

/// Runs a model. What is fed fits what it says about its inputs.
fn infer(model: &Model, inputs: &[&dyn AsValue], folder: &Folder) -> Stages {
    folder.keep("model.onnx", &model.bytes());
    let session = InferenceSession::builder(&env())
        .options(one_thread())
        .model_bytes(model.bytes())
        .build();
    match session.and_then(|session| session.run(inputs).map(drop)) {
        Ok(()) => vec!["ran"],
        Err(error) => panic!("an error in words, which is no hazard: {error}"),
    }
}

/// A label that is no class, of a model that does not say how many classes there are.
fn class_labels(folder: &Folder) -> Stages {
    let model = Model::new(17)
        .input("scores", &[-1, -1])
        .input_of("labels", data_type::INT64, &[-1])
        .node("SoftmaxCrossEntropyLoss", &["scores", "labels"], &["loss"])
        .output("loss", &[]);
    let scores = Tensor::filled([1, 3], 0.5f32).unwrap();
    let labels = Tensor::filled([1], 1i64 << 40).unwrap();
    infer(&model, &[&scores, &labels], folder)
}

/// Division of integers by 0.
fn integer_division(operator: &str, folder: &Folder) -> Stages {
    let model = Model::new(17)
        .input_of("a", data_type::INT64, &[-1])
        .input_of("b", data_type::INT64, &[-1])
        .node(operator, &["a", "b"], &["c"]);
    let mut model = model;
    model
        .graph()
        .output
        .push(info("c", data_type::INT64, &[-1]));
    let (one, zero) = (
        Tensor::filled([2], 1i64).unwrap(),
        Tensor::filled([2], 0i64).unwrap(),
    );
    infer(&model, &[&one, &zero], folder)
}

/// More features than the weights of an LSTM have, of a model that does not say how many its input has.
fn lstm_input(folder: &Folder) -> Stages {
    let model = Model::new(17)
        .input("x", &[-1, -1, -1])
        .weight("w", &[1, 8, 1], &[0.5; 8])
        .weight("r", &[1, 8, 2], &[0.5; 16])
        .node_with(
            "LSTM",
            &["x", "w", "r"],
            &["y"],
            &[("hidden_size", Attr::Int(2))],
        )
        .output("y", &[-1, 1, -1, 2]);
    let x = Tensor::filled([1, 1, 1 << 24], 0.5f32).unwrap();
    infer(&model, &[&x], folder)
}

/// Weights of ConvTranspose without a kernel, as shape inference only finds.
fn conv_transpose_rank(folder: &Folder) -> Stages {
    let model = Model::new(17)
        .input("x", &[1, 2, 8])
        .scalar("scalar", 0.5)
        .node("Identity", &["scalar"], &["w"])
        .node("ConvTranspose", &["x", "w"], &["y"])
        .output("y", &[1, 2, 8]);
    let x = Tensor::filled([1, 2, 8], 0.5f32).unwrap();
    infer(&model, &[&x], folder)
}

/// A gradient that is larger than its parameter, as only a run shows: the model states no shape for it.
fn gradient_shape(folder: &Folder) -> Stages {
    let mut artifacts = Artifacts::of_fixture("linear1");
    artifacts.models[TRAINING] = changed(&artifacts.models[TRAINING], |model| {
        let graph = model.graph.as_mut().expect("a graph");
        let accumulator = graph
            .node
            .iter()
            .position(|node| node.op_type.as_deref() == Some("InPlaceAccumulatorV2"))
            .expect("a training model");
        graph.node[accumulator].input[1] = "large".into();
        graph.initializer.push(TensorProto {
            name: Some("length".into()),
            data_type: Some(data_type::INT64),
            dims: vec![1],
            int64_data: vec![1 << 26],
            ..TensorProto::default()
        });
        let large = NodeProto {
            op_type: Some("ConstantOfShape".into()),
            input: vec!["length".into()],
            output: vec!["large".into()],
            ..NodeProto::default()
        };
        graph.node.insert(accumulator, large);
    });
    folder.keep("training_model.onnx", &artifacts.models[TRAINING]);
    artifacts.train(&mut Random::new("hazards", 1), folder.path())
}

fn changed(model: &[u8], change: impl FnOnce(&mut ModelProto)) -> Vec<u8> {
    let mut model = ModelProto::decode(model).expect("the fixtures are models");
    change(&mut model);
    model.encode_to_vec()
}
