//! The optimizer's graph: one step for all trainable parameters.

use super::error::{ArtifactsError, Result};
use super::names::Names;
use super::onnx::{
    Dimension, GraphProto, ModelProto, OperatorSetIdProto, SequenceType, TypeProto, TypeValue,
    ValueInfoProto, attribute, data_type, node, tensor_info,
};

const MICROSOFT: &str = "com.microsoft";

/// The optimizer of the training session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Optimizer {
    /// AdamW (`AdamWOptimizer` of ONNX Runtime).
    AdamW(AdamW),
    /// Plain stochastic gradient descent (`SGDOptimizerV2` of ONNX Runtime).
    Sgd,
}

/// AdamW's settings; the default is that of ONNX Runtime's Python generator.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first and second moment, each in \[0, 1).
    pub betas: (f32, f32),
    /// Added to the root of the second moment; not negative.
    pub eps: f32,
    /// Decoupled weight decay, times the learning rate per step; not negative.
    pub weight_decay: f32,
    /// Divide the moments by `1 - beta^step`; has to be on for [`AdamWVariant::Torch`].
    pub bias_correction: bool,
    /// Which of the two published orders of operations.
    pub variant: AdamWVariant,
}

/// Orders of operations of AdamW. They differ in how the bias correction enters and when the weights decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdamWVariant {
    /// PyTorch's: weights decay before the update; `eps` is added after bias correction.
    Torch,
    /// Hugging Face Transformers': weights decay after the update; `eps` is added before. The default, as in the
    /// Python generator.
    HuggingFace,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            betas: (0.9, 0.999),
            eps: 1e-6,
            weight_decay: 0.0,
            bias_correction: true,
            variant: AdamWVariant::HuggingFace,
        }
    }
}

impl Optimizer {
    /// AdamW with the default settings.
    pub fn adamw() -> Self {
        Self::AdamW(AdamW::default())
    }

    pub(crate) fn check(&self, clip_grad_norm: Option<f32>) -> Result<()> {
        let fail = |text: String| Err(ArtifactsError::Optimizer(text));
        if let Some(norm) = clip_grad_norm.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
            return fail(format!(
                "the largest gradient norm must be positive and finite, not {norm}"
            ));
        }
        if let Self::AdamW(adamw) = self {
            for (name, beta) in [("beta1", adamw.betas.0), ("beta2", adamw.betas.1)] {
                if !(0.0..1.0).contains(&beta) {
                    return fail(format!("AdamW's {name} must be in [0, 1), not {beta}"));
                }
            }
            if adamw.variant == AdamWVariant::Torch && !adamw.bias_correction {
                return fail(
                    "ONNX Runtime has PyTorch's AdamW only with bias correction".to_owned(),
                );
            }
            for (name, value) in [("eps", adamw.eps), ("weight_decay", adamw.weight_decay)] {
                if !(value.is_finite() && value >= 0.0) {
                    return fail(format!(
                        "AdamW's {name} must be finite and not negative, not {value}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The optimizer model. `names` goes on counting where the training model stopped.
    pub(crate) fn model(
        &self,
        opset: i64,
        names: &mut Names,
        clip_grad_norm: Option<f32>,
    ) -> ModelProto {
        let mut graph = GraphProto {
            name: Some("graph".to_owned()),
            ..GraphProto::default()
        };
        graph.input.push(tensor_info(
            "learning_rate",
            data_type::FLOAT,
            Some(vec![Dimension::fixed(1)]),
        ));
        graph.input.push(tensor_info(
            "step",
            data_type::INT64,
            Some(vec![Dimension::fixed(1)]),
        ));
        for name in ["params", "gradients", "first_order_moments"] {
            graph.input.push(float_sequence(name));
        }
        let mut gradients = "gradients".to_owned();
        if let Some(norm) = clip_grad_norm {
            let clipped = names.fresh("clip_grad_norm_output");
            graph.node.push(
                node(
                    "InplaceClipGradNorm",
                    names.fresh("InplaceClipGradNorm"),
                    &[&gradients],
                    &[&clipped],
                )
                .in_domain(MICROSOFT)
                .with(attribute::float("max_norm", norm)),
            );
            graph.value_info.push(float_sequence(&clipped));
            gradients = clipped;
        }
        let flag = match self {
            Self::AdamW(adamw) => {
                graph.input.push(float_sequence("second_order_moments"));
                let flag = names.fresh("adamw.updated_flag");
                let inputs = [
                    "learning_rate",
                    "step",
                    "params",
                    &gradients,
                    "first_order_moments",
                    "second_order_moments",
                ];
                let mode = match adamw.variant {
                    AdamWVariant::Torch => 0,
                    AdamWVariant::HuggingFace => 1,
                };
                graph.node.push(
                    node(
                        "AdamWOptimizer",
                        names.fresh("AdamWOptimizer"),
                        &inputs,
                        &[&flag],
                    )
                    .in_domain(MICROSOFT)
                    .with(attribute::int("adam_mode", mode))
                    .with(attribute::float("alpha", adamw.betas.0))
                    .with(attribute::float("beta", adamw.betas.1))
                    .with(attribute::int("correct_bias", adamw.bias_correction.into()))
                    .with(attribute::float("epsilon", adamw.eps))
                    .with(attribute::float("weight_decay", adamw.weight_decay)),
                );
                flag
            }
            Self::Sgd => {
                let flag = names.fresh("update_completed");
                let inputs = ["learning_rate", "params", &gradients];
                graph.node.push(
                    node(
                        "SGDOptimizerV2",
                        names.fresh("SGDOptimizerV2"),
                        &inputs,
                        &[&flag],
                    )
                    .in_domain(MICROSOFT),
                );
                flag
            }
        };
        graph.output.push(tensor_info(
            &flag,
            data_type::BOOL,
            Some(vec![Dimension::fixed(1)]),
        ));
        ModelProto {
            ir_version: Some(8),
            producer_name: Some("orttraining".to_owned()),
            opset_import: vec![
                OperatorSetIdProto {
                    domain: Some(MICROSOFT.to_owned()),
                    version: Some(1),
                },
                OperatorSetIdProto {
                    domain: Some(String::new()),
                    version: Some(opset),
                },
            ],
            graph: Some(graph),
            ..ModelProto::default()
        }
    }
}

fn float_sequence(name: &str) -> ValueInfoProto {
    let element = tensor_info("", data_type::FLOAT, None).r#type;
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto {
            value: Some(TypeValue::Sequence(Box::new(SequenceType {
                elem_type: element.map(Box::new),
            }))),
            denotation: None,
        }),
        ..ValueInfoProto::default()
    }
}
