//! Everything that a training session does, with whatever models and checkpoint.

use std::fs;
use std::path::Path;

use ort_training::{
    AsValue, Checkpoint, ElementType, InferenceSession, OptimizerState, Outputs, ParameterSet,
    TrainingSession, Value,
};

use crate::random::Random;
use crate::runner::{Folder, Stages};
use crate::support::{env, fixture, one_thread};
use crate::{feed, model};

/// Three files and the checkpoint that belongs to them.
pub struct Artifacts {
    pub models: [Vec<u8>; 3],
    pub checkpoint: Vec<u8>,
}

pub const TRAINING: usize = 0;
pub const EVALUATION: usize = 1;
pub const OPTIMIZER: usize = 2;
const FILES: [&str; 3] = [
    "training_model.onnx",
    "eval_model.onnx",
    "optimizer_model.onnx",
];

impl Artifacts {
    pub fn of_fixture(name: &str) -> Self {
        let read = |file: &str| fs::read(fixture(name).join(file)).unwrap();
        Self {
            models: FILES.map(read),
            checkpoint: read("checkpoint"),
        }
    }

    /// Builds a session from them and does everything with it.
    pub fn train(&self, random: &mut Random, folder: &Path) -> Stages {
        let Ok(checkpoint) = Checkpoint::from_bytes(&self.checkpoint) else {
            return vec!["refused"];
        };
        let builder = TrainingSession::builder(&env())
            .options(one_thread())
            .checkpoint(checkpoint);
        let [training, evaluation, optimizer] = &self.models;
        let session = if random.one_in(8) {
            let path = |file: usize| folder.join(FILES[file]);
            for (file, bytes) in self.models.iter().enumerate() {
                fs::write(path(file), bytes).unwrap();
            }
            builder
                .training_model(path(TRAINING))
                .eval_model(path(EVALUATION))
                .optimizer_model(path(OPTIMIZER))
                .build()
        } else {
            builder
                .training_model_bytes(training.as_slice())
                .eval_model_bytes(evaluation.as_slice())
                .optimizer_model_bytes(optimizer.as_slice())
                .build()
        };
        match session {
            Ok(session) => everything(session, random, folder),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                vec!["refused"]
            }
        }
    }
}

pub fn of_model(which: usize, suite: &str, index: u64, folder: &Folder) -> Stages {
    let mut random = Random::new(suite, index);
    let fixtures = ["linear1", "regression", "dropout", "digits_sgd"];
    let mut artifacts = Artifacts::of_fixture(random.pick::<&str>(&fixtures));
    artifacts.models[which] = model::mutate(&artifacts.models[which], &mut random);
    for (file, bytes) in FILES.iter().zip(&artifacts.models) {
        folder.keep(file, bytes);
    }
    folder.keep("checkpoint", &artifacts.checkpoint);
    artifacts.train(&mut random, folder.path())
}

fn views(values: &[Value]) -> Vec<&dyn AsValue> {
    values.iter().map(|value| value as &dyn AsValue).collect()
}

/// Reads all that there is to read of a step's outputs.
pub fn look_at(outputs: &Outputs) {
    assert_eq!(outputs.len(), outputs.names().len());
    let _ = outputs.loss();
    for name in outputs.names() {
        look_at_value(outputs.get(name).unwrap());
    }
}

fn look_at_value(value: &Value) {
    let Ok(shape) = value.shape() else {
        return;
    };
    let count: usize = shape.iter().product();
    assert_eq!(value.element_count().unwrap(), count);
    match value.element_type().unwrap() {
        ElementType::Float32 => {
            let sum: f32 = value.data::<f32>().unwrap().iter().sum();
            std::hint::black_box(sum);
            assert_eq!(value.data::<f32>().unwrap().len(), count);
        }
        ElementType::Int64 => {
            let sum = value.data::<i64>().unwrap().iter().fold(0i64, |a, b| a ^ b);
            std::hint::black_box(sum);
        }
        ElementType::String => assert_eq!(value.strings().unwrap().len(), count),
        _ => {}
    }
}

pub fn everything(mut session: TrainingSession, random: &mut Random, folder: &Path) -> Stages {
    let mut stages = vec!["built"];
    let inputs = feed::inputs(session.train_inputs(), random);
    if session.checkpoint().is_nominal() {
        fill(&mut session);
    }
    let step = |session: &mut TrainingSession| match &inputs {
        Some(inputs) => match session.train_step(&views(inputs)) {
            Ok(outputs) => {
                look_at(&outputs);
                true
            }
            Err(_) => false,
        },
        None => false,
    };
    if step(&mut session) {
        stages.push("trained");
    }
    if session.set_learning_rate(0.01).is_ok() && session.optimizer_step().is_ok() {
        stages.push("optimized");
    }
    let _ = session.lazy_reset_grad();
    let _ = session.register_linear_lr_scheduler(1, 3, 0.1);
    let _ = session.scheduler_step();
    step(&mut session);
    let wanted = session.eval_inputs().map(<[_]>::to_vec).ok();
    if let Some(inputs) = wanted.and_then(|inputs| feed::inputs(&inputs, random)) {
        if let Ok(outputs) = session.eval_step(&views(&inputs)) {
            look_at(&outputs);
            stages.push("evaluated");
        }
    }
    let bound = feed::inputs(session.train_inputs(), random)
        .map(|inputs| session.bind_train_step(inputs.into_iter().map(Into::into).collect()));
    if let Some(Ok(mut bound)) = bound {
        for _ in 0..2 {
            if session.train_step_bound(&mut bound).is_ok() {
                look_at(bound.outputs());
            }
        }
    }
    for set in [ParameterSet::All, ParameterSet::Trainable] {
        if let Ok(buffer) = session.parameters_buffer(set) {
            session.copy_buffer_to_parameters(&buffer, set).unwrap();
        }
    }
    let outputs: Vec<String> = session
        .eval_outputs()
        .map(|outputs| outputs.iter().map(|info| info.name().to_owned()).collect())
        .unwrap_or_default();
    let exported = folder.join("exported.onnx");
    let _ = fs::remove_file(&exported);
    let names: Vec<&str> = outputs.iter().map(String::as_str).collect();
    if session.export_for_inference(&exported, &names).is_ok() {
        stages.push("exported");
        let model = fs::read(&exported).unwrap();
        if infer(&model, random).contains(&"ran") {
            stages.push("inferred");
        }
    }
    let saved = folder.join("saved");
    if session
        .save_checkpoint(&saved, OptimizerState::Include)
        .is_ok()
    {
        Checkpoint::load(&saved).unwrap();
    }
    let mut checkpoint = session.into_checkpoint();
    let _ = checkpoint.set_property("note", "after");
    stages
}

/// Fills a nominal checkpoint.
fn fill(session: &mut TrainingSession) {
    let count = session.parameter_count(ParameterSet::All).ok();
    if let Some(count) = count.filter(|count| *count < 1 << 20) {
        let _ = session.copy_buffer_to_parameters(&vec![0.25; count], ParameterSet::All);
    }
}

/// Loads and runs a model.
pub fn infer(model: &[u8], random: &mut Random) -> Stages {
    let session = InferenceSession::builder(&env())
        .options(one_thread())
        .model_bytes(model)
        .build();
    let Ok(session) = session else {
        return vec!["refused"];
    };
    let mut stages = vec!["built"];
    let outputs = feed::inputs(session.inputs(), random).map(|inputs| session.run(&views(&inputs)));
    if let Some(Ok(outputs)) = outputs {
        look_at(&outputs);
        stages.push("ran");
    }
    stages
}
