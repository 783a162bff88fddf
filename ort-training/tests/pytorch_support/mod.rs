//! Models from PyTorch, and what training them there gave: `fixtures/pytorch`, made by `ci/pytorch-fixtures`.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use ort_training::artifacts::{
    AdamW, AdamWVariant, ArtifactsBuilder, CrossEntropy, Loss, Optimizer,
};
use ort_training::{AsValue, Environment, IoInfo, Tensor, TrainingSession, Value};
use safetensors::tensor::{Dtype, SafeTensors};

pub fn folder(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/pytorch")
        .join(model)
}

/// A tensor of a file.
#[derive(Clone, Debug)]
pub enum Stored {
    F32(Vec<usize>, Vec<f32>),
    I64(Vec<usize>, Vec<i64>),
    F64(Vec<f64>),
}

impl Stored {
    pub fn floats(&self) -> &[f32] {
        match self {
            Self::F32(_, values) => values,
            other => panic!("no float32: {other:?}"),
        }
    }

    pub fn value(&self) -> Value {
        match self {
            Self::F32(shape, values) => Tensor::from_slice(shape, values).unwrap().into_value(),
            Self::I64(shape, values) => Tensor::from_slice(shape, values).unwrap().into_value(),
            Self::F64(_) => panic!("no model here takes float64"),
        }
    }
}

/// The tensors and metadata of a safetensors file.
pub struct File {
    pub tensors: BTreeMap<String, Stored>,
    pub metadata: HashMap<String, String>,
}

impl File {
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.tensors().into_iter().map(|(name, view)| {
            let shape = view.shape().to_vec();
            let data = view.data();
            let stored = match view.dtype() {
                Dtype::F32 => Stored::F32(shape, numbers(data, f32::from_le_bytes)),
                Dtype::I64 => Stored::I64(shape, numbers(data, i64::from_le_bytes)),
                Dtype::F64 => Stored::F64(numbers(data, f64::from_le_bytes)),
                other => panic!("{name}: {other}"),
            };
            (name, stored)
        });
        Self {
            tensors: tensors.collect(),
            metadata: header.metadata().clone().unwrap_or_default(),
        }
    }

    pub fn number(&self, key: &str) -> f64 {
        self.metadata[key].parse().unwrap()
    }
}

fn numbers<T, const N: usize>(data: &[u8], convert: fn([u8; N]) -> T) -> Vec<T> {
    data.chunks_exact(N)
        .map(|bytes| convert(bytes.try_into().unwrap()))
        .collect()
}

/// A model, and how PyTorch trained it.
pub struct Trained {
    pub name: &'static str,
    pub file: File,
    pub losses: Vec<f64>,
}

impl Trained {
    pub fn read(name: &'static str) -> Self {
        let file = File::read(&folder(name).join("training.safetensors"));
        let losses = match &file.tensors["losses"] {
            Stored::F64(losses) => losses.clone(),
            other => panic!("{other:?}"),
        };
        assert!(losses.len() >= 4, "{name}: {losses:?}");
        Self { name, file, losses }
    }

    fn class_axis(&self) -> i64 {
        let loss: serde_json::Value = serde_json::from_str(&self.file.metadata["loss"]).unwrap();
        assert_eq!(loss["kind"], "cross_entropy");
        assert_eq!(loss["output"], "logits");
        loss["class_axis"].as_i64().unwrap()
    }

    pub fn artifacts(&self) -> ArtifactsBuilder {
        self.artifacts_of(&folder(self.name).join("model.onnx"))
    }

    /// Artifacts of this file, to be trained as PyTorch trained the model.
    pub fn artifacts_of(&self, model: &Path) -> ArtifactsBuilder {
        let optimizer = match self.file.metadata["optimizer"].as_str() {
            "sgd" => Optimizer::Sgd,
            "adamw" => Optimizer::AdamW(AdamW {
                eps: self.file.number("eps") as f32,
                weight_decay: self.file.number("weight_decay") as f32,
                variant: AdamWVariant::Torch,
                ..AdamW::default()
            }),
            other => panic!("{other}"),
        };
        ArtifactsBuilder::from_path(model)
            .loss(Loss::CrossEntropy(CrossEntropy {
                class_axis: self.class_axis(),
                ..CrossEntropy::default()
            }))
            .optimizer(optimizer)
            .extra_outputs(["logits"])
    }

    /// A session on artifacts that are made for it, at PyTorch's learning rate.
    pub fn session(&self) -> TrainingSession {
        let mut session = start(self.artifacts());
        let rate = self.file.number("lr") as f32;
        session.set_learning_rate(rate).unwrap();
        session
    }

    /// A batch, by the names of a step's inputs.
    pub fn batch(&self, step: usize, inputs: &[IoInfo]) -> Vec<Value> {
        inputs
            .iter()
            .map(|input| {
                let own = format!("batch.{step}.input.{}", input.name());
                let target = format!("batch.{step}.target");
                let tensors = &self.file.tensors;
                tensors
                    .get(&own)
                    .unwrap_or_else(|| &tensors[&target])
                    .value()
            })
            .collect()
    }

    /// Takes the steps that PyTorch took; the losses.
    pub fn train(&self, session: &mut TrainingSession) -> Vec<f32> {
        (0..self.losses.len())
            .map(|step| {
                let batch = self.batch(step, session.train_inputs());
                self::step(session, &batch)
            })
            .collect()
    }
}

pub fn start(artifacts: ArtifactsBuilder) -> TrainingSession {
    let bytes = artifacts.build().unwrap().into_bytes().unwrap();
    let env = Environment::shared().unwrap();
    bytes.session(&env).unwrap().build().unwrap()
}

/// One step of training; its loss.
pub fn step(session: &mut TrainingSession, batch: &[Value]) -> f32 {
    let loss = session.train_step(&views(batch)).unwrap().loss().unwrap();
    session.optimizer_step().unwrap();
    session.lazy_reset_grad().unwrap();
    loss
}

pub fn views(values: &[Value]) -> Vec<&dyn AsValue> {
    values.iter().map(|value| value as &dyn AsValue).collect()
}

/// The largest difference of two lists.
pub fn furthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    // A NaN is as far as can be.
    apart.fold(0.0, |most, next| if next <= most { most } else { next })
}
