//! What ends the process inside ONNX Runtime and cannot be seen beforehand: the smallest input for each reason.
//!
//! docs/hazards.md describes them under these names. A hazard that is none any more fails the test.

use ort_training::artifacts::onnx::{ModelProto, NodeProto, TensorProto, data_type};
use prost::Message;

use crate::random::Random;
use crate::runner::{Folder, Stages};
use crate::training::{Artifacts, TRAINING};

/// Input `index` of the suite is the one of this name.
pub const NAMES: [&str; 1] = ["gradient-shape"];

pub fn run(index: u64, folder: &Folder) -> Stages {
    match NAMES[index as usize] {
        "gradient-shape" => gradient_shape(folder),
        other => panic!("no hazard {other:?}"),
    }
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
