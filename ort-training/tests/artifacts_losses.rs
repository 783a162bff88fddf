//! Every loss with every optimizer, and the settings of both, against references in double precision written here.
#![cfg(feature = "artifacts")]

mod artifacts_support;

use std::f64::consts::PI;

use artifacts_support::check::{gradients, parameters};
use artifacts_support::model::{Attr, Model};
use artifacts_support::session::Tensor;
use artifacts_support::training::Training;
use artifacts_support::{Rng, require_artifacts};
use ort_training::artifacts::{
    AdamW, AdamWVariant, ArtifactsBuilder, BceWithLogits, CrossEntropy, Loss, Optimizer, Reduction,
};

const BATCH: usize = 5;
const FEATURES: usize = 3;
const OUTPUTS: usize = 4;

/// y = tanh(x·w)·v + b, small enough for differences of every parameter.
fn model() -> Model {
    let mut rng = Rng(61);
    Model::new(17)
        .input("x", &[-1, FEATURES as i64])
        .weight("w", &[3, 6], &rng.values(18, -1.0, 1.0))
        .node("MatMul", &["x", "w"], &["h"])
        .node("Tanh", &["h"], &["t"])
        .weight("v", &[6, 4], &rng.values(24, -1.0, 1.0))
        .weight("b", &[4], &rng.values(4, -1.0, 1.0))
        .node("Gemm", &["t", "v", "b"], &["y"])
        .output("y", &[-1, OUTPUTS as i64])
}

/// The same in double, on parameters w, v, b.
fn forward(x: &[f64], p: &[Vec<f64>]) -> Vec<f64> {
    let (w, v, b) = (&p[0], &p[1], &p[2]);
    let mut y = Vec::new();
    for row in x.chunks(FEATURES) {
        let t: Vec<f64> = (0..6)
            .map(|j| {
                row.iter()
                    .enumerate()
                    .map(|(i, x)| x * w[i * 6 + j])
                    .sum::<f64>()
                    .tanh()
            })
            .collect();
        y.extend((0..OUTPUTS).map(|k| {
            b[k] + t
                .iter()
                .enumerate()
                .map(|(j, t)| t * v[j * 4 + k])
                .sum::<f64>()
        }));
    }
    y
}

fn log_softmax(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
    row.iter().map(|v| v - max - sum.ln()).collect()
}

/// Cross-entropy as PyTorch defines it.
fn cross_entropy(y: &[f64], labels: &[i64], settings: &CrossEntropy) -> f64 {
    let weights = settings.class_weights.clone().unwrap_or(vec![1.0; OUTPUTS]);
    let smoothing = f64::from(settings.label_smoothing);
    let (mut total, mut spread, mut count) = (0.0, 0.0, 0.0);
    for (row, &label) in y.chunks(OUTPUTS).zip(labels) {
        if Some(label) == settings.ignore_index {
            continue;
        }
        let log = log_softmax(row);
        let weight = f64::from(weights[label as usize]);
        total -= weight * log[label as usize];
        spread -= log
            .iter()
            .zip(&weights)
            .map(|(l, &w)| l * f64::from(w))
            .sum::<f64>();
        count += weight;
    }
    let sum = (1.0 - smoothing) * total + smoothing / OUTPUTS as f64 * spread;
    if settings.reduction == Reduction::Mean {
        sum / count
    } else {
        sum
    }
}

fn bce(y: &[f64], target: &[f64], settings: &BceWithLogits) -> f64 {
    let weights = settings.pos_weight.clone().unwrap_or(vec![1.0]);
    let elements = y.iter().zip(target).enumerate().map(|(i, (&y, &t))| {
        let p = f64::from(weights[i % weights.len()]);
        let log_sigmoid = |v: f64| -((-v).exp().ln_1p());
        -(p * t * log_sigmoid(y) + (1.0 - t) * log_sigmoid(-y))
    });
    let sum: f64 = elements.sum();
    if settings.reduction == Reduction::Mean {
        sum / y.len() as f64
    } else {
        sum
    }
}

type Reference64 = Box<dyn Fn(&[f64]) -> f64>;

struct Case {
    name: &'static str,
    loss: Loss,
    target: Tensor,
    reference: Reference64,
}

fn cases() -> Vec<Case> {
    let mut rng = Rng(67);
    let labels: Vec<i64> = vec![2, 0, 3, 3, 1];
    let real = rng.values(BATCH * OUTPUTS, -1.0, 1.0);
    let binary: Vec<f64> = (0..BATCH * OUTPUTS)
        .map(|_| (rng.next() % 2) as f64)
        .collect();
    let mut cases = Vec::new();
    let classes = [
        ("cross-entropy", CrossEntropy::default()),
        (
            "cross-entropy, sum",
            CrossEntropy {
                reduction: Reduction::Sum,
                ..CrossEntropy::default()
            },
        ),
        (
            "cross-entropy, ignoring",
            CrossEntropy {
                ignore_index: Some(3),
                ..CrossEntropy::default()
            },
        ),
        (
            "cross-entropy, weighted",
            CrossEntropy {
                class_weights: Some(vec![0.5, 1.0, 2.0, 0.7]),
                ..CrossEntropy::default()
            },
        ),
        (
            "cross-entropy, smoothed",
            CrossEntropy {
                label_smoothing: 0.1,
                ..CrossEntropy::default()
            },
        ),
        (
            "cross-entropy, smoothed and ignoring",
            CrossEntropy {
                label_smoothing: 0.2,
                ignore_index: Some(0),
                ..CrossEntropy::default()
            },
        ),
        (
            "cross-entropy, everything",
            CrossEntropy {
                label_smoothing: 0.2,
                ignore_index: Some(3),
                class_weights: Some(vec![0.5, 1.0, 2.0, 0.7]),
                ..CrossEntropy::default()
            },
        ),
        (
            "cross-entropy, weighted and smoothed sum",
            CrossEntropy {
                label_smoothing: 0.3,
                class_weights: Some(vec![0.5, 1.0, 2.0, 0.7]),
                reduction: Reduction::Sum,
                ..CrossEntropy::default()
            },
        ),
    ];
    for (name, settings) in classes {
        let labels = labels.clone();
        cases.push(Case {
            name,
            loss: Loss::CrossEntropy(settings.clone()),
            target: Tensor::i64(&[BATCH as i64], &labels),
            reference: Box::new(move |y| cross_entropy(y, &labels, &settings)),
        });
    }
    for (name, settings) in [
        ("BCE", BceWithLogits::default()),
        (
            "BCE, sum",
            BceWithLogits {
                reduction: Reduction::Sum,
                ..BceWithLogits::default()
            },
        ),
        (
            "BCE, one weight",
            BceWithLogits {
                pos_weight: Some(vec![2.5]),
                ..BceWithLogits::default()
            },
        ),
        (
            "BCE, weights",
            BceWithLogits {
                pos_weight: Some(vec![2.5, 0.5, 1.0, 3.0]),
                ..BceWithLogits::default()
            },
        ),
    ] {
        let target = binary.clone();
        cases.push(Case {
            name,
            loss: Loss::BceWithLogits(settings.clone()),
            target: Tensor::f32(&[BATCH as i64, OUTPUTS as i64], &binary),
            reference: Box::new(move |y| bce(y, &target, &settings)),
        });
    }
    for reduction in [Reduction::Mean, Reduction::Sum] {
        let divisor = if reduction == Reduction::Mean {
            (BATCH * OUTPUTS) as f64
        } else {
            1.0
        };
        let target = Tensor::f32(&[BATCH as i64, OUTPUTS as i64], &real);
        let values = target.values();
        let other = values.clone();
        cases.push(Case {
            name: "MSE",
            loss: Loss::Mse(reduction),
            target: target.clone(),
            reference: Box::new(move |y| {
                y.iter()
                    .zip(&values)
                    .map(|(y, t)| (y - t).powi(2))
                    .sum::<f64>()
                    / divisor
            }),
        });
        cases.push(Case {
            name: "L1",
            loss: Loss::L1(reduction),
            target,
            reference: Box::new(move |y| {
                y.iter()
                    .zip(&other)
                    .map(|(y, t)| (y - t).abs())
                    .sum::<f64>()
                    / divisor
            }),
        });
    }
    // Poisson: mean(exp(y) - t·y), as a model of its own.
    let positive = rng.values(BATCH * OUTPUTS, 0.0, 3.0);
    let target = Tensor::f32(&[BATCH as i64, OUTPUTS as i64], &positive);
    let values = target.values();
    let custom = Model::new(17)
        .input("y", &[-1, OUTPUTS as i64])
        .input("counts", &[-1, OUTPUTS as i64])
        .node("Exp", &["y"], &["h"])
        .node("Mul", &["y", "counts"], &["t"])
        .node("Sub", &["h", "t"], &["difference"])
        .node_with(
            "ReduceMean",
            &["difference"],
            &["poisson"],
            &[("keepdims", Attr::Int(0))],
        )
        .output("poisson", &[]);
    cases.push(Case {
        name: "custom",
        loss: Loss::custom(custom.bytes()).expect("a loss model"),
        target,
        reference: Box::new(move |y| {
            y.iter()
                .zip(&values)
                .map(|(y, t)| y.exp() - t * y)
                .sum::<f64>()
                / y.len() as f64
        }),
    });
    cases
}

fn x() -> Tensor {
    Tensor::f32(
        &[BATCH as i64, FEATURES as i64],
        &Rng(71).values(BATCH * FEATURES, -1.0, 1.0),
    )
}

/// The reference's gradient by central differences, for all parameters in one row.
fn differences(p: &[Vec<f64>], loss: &dyn Fn(&[Vec<f64>]) -> f64) -> Vec<Vec<f64>> {
    let mut p = p.to_vec();
    let h = 1e-5;
    (0..p.len())
        .map(|k| {
            (0..p[k].len())
                .map(|i| {
                    let original = p[k][i];
                    p[k][i] = original + h;
                    let up = loss(&p);
                    p[k][i] = original - h;
                    let down = loss(&p);
                    p[k][i] = original;
                    (up - down) / (2.0 * h)
                })
                .collect()
        })
        .collect()
}

fn start() -> Vec<Vec<f64>> {
    let names: Vec<String> = ["w", "v", "b"].map(str::to_owned).to_vec();
    parameters(&model().bytes(), &names)
        .iter()
        .map(|(_, t)| t.values())
        .collect()
}

#[test]
fn values_and_gradients_of_losses() {
    require_artifacts();
    let model = model().bytes();
    for case in cases() {
        let artifacts = ArtifactsBuilder::from_bytes(model.clone())
            .loss(case.loss.clone())
            .build()
            .unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let report = artifacts.report().clone();
        assert_eq!(report.trainable, ["w", "v", "b"], "{}", case.name);
        let target = report.inputs[1].clone();
        let inputs = [("x".to_owned(), x()), (target, case.target.clone())];
        let (results, found) = gradients(
            &artifacts.into_bytes().expect("bytes"),
            &report,
            &model,
            &inputs,
        );
        let loss = |p: &[Vec<f64>]| (case.reference)(&forward(&x().values(), p));
        let expected = loss(&start());
        let value = results[0].values()[0];
        assert!(
            (value - expected).abs() < 2e-6 * expected.abs().max(1.0),
            "{}: {value} for {expected}",
            case.name
        );
        for ((name, found), expected) in found.iter().zip(differences(&start(), &loss)) {
            let largest = expected.iter().fold(1e-6_f64, |m, v| m.max(v.abs()));
            for (f, e) in found.iter().zip(&expected) {
                assert!(
                    (f - e).abs() < 1e-5 * largest,
                    "{}, {name}: {f} for {e}",
                    case.name
                );
            }
        }
    }
}

/// The stable form of binary cross-entropy at scores that overflow the textbook's, and at 0, where its parts have
/// corners.
#[test]
fn bce_far_out_and_at_zero() {
    require_artifacts();
    let scores = [0.0, -0.0, 100.0, -100.0, 1e4, -1e4, 30.0, 1e-3];
    let target = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.5, 0.25];
    let model = Model::new(17)
        .input("x", &[8])
        .weight("w", &[8], &scores)
        .node("Mul", &["x", "w"], &["y"])
        .output("y", &[8])
        .bytes();
    let loss = Loss::BceWithLogits(BceWithLogits {
        reduction: Reduction::Sum,
        ..BceWithLogits::default()
    });
    let artifacts = ArtifactsBuilder::from_bytes(model.clone())
        .loss(loss)
        .build()
        .expect("artifacts");
    let report = artifacts.report().clone();
    let inputs = [
        ("x".to_owned(), Tensor::f32(&[8], &[1.0; 8])),
        ("target".to_owned(), Tensor::f32(&[8], &target)),
    ];
    let (results, found) = gradients(
        &artifacts.into_bytes().expect("bytes"),
        &report,
        &model,
        &inputs,
    );
    let expected: f64 = scores
        .iter()
        .zip(target)
        .map(|(&y, t)| y.max(0.0) - y * t + (-y.abs()).exp().ln_1p())
        .sum();
    assert!((results[0].values()[0] - expected).abs() < 1e-6 * expected);
    for ((&y, t), found) in scores.iter().zip(target).zip(&found[0].1) {
        let expected = 1.0 / (1.0 + (-y).exp()) - t;
        assert!(
            (found - expected).abs() < 1e-6,
            "at {y}: {found} for {expected}"
        );
    }
}

/// Scores whose classes are not on axis 1.
#[test]
fn cross_entropy_of_sequences_and_images() {
    require_artifacts();
    for (axis, dims) in [(-1, [2, 3, 4]), (2, [2, 3, 4]), (1, [2, 4, 3])] {
        let scores = Rng(73).values(24, -2.0, 2.0);
        let model = Model::new(17)
            .input("x", &dims)
            .weight("w", &dims, &scores)
            .node("Mul", &["x", "w"], &["y"])
            .output("y", &dims)
            .bytes();
        let labels = [1, 3, 0, 2, 2, 1];
        let loss = Loss::CrossEntropy(CrossEntropy {
            class_axis: axis,
            ..CrossEntropy::default()
        });
        let artifacts = ArtifactsBuilder::from_bytes(model.clone())
            .loss(loss)
            .build()
            .expect("artifacts");
        let report = artifacts.report().clone();
        let inputs = [
            ("x".to_owned(), Tensor::f32(&dims, &[1.0; 24])),
            ("labels".to_owned(), Tensor::i64(&[2, 3], &labels)),
        ];
        let (results, _) = gradients(
            &artifacts.into_bytes().expect("bytes"),
            &report,
            &model,
            &inputs,
        );
        let mut expected = 0.0;
        for (i, &label) in labels.iter().enumerate() {
            let (n, position) = (i / 3, i % 3);
            let row: Vec<f64> = (0..4)
                .map(|c| {
                    scores[if axis == 1 {
                        n * 12 + c * 3 + position
                    } else {
                        n * 12 + position * 4 + c
                    }]
                })
                .collect();
            expected -= log_softmax(&row)[label as usize] / 6.0;
        }
        assert!(
            (results[0].values()[0] - expected).abs() < 1e-5,
            "axis {axis}"
        );
    }
}

/// The reference's optimizers, on one flat row of parameters.
struct Reference {
    optimizer: Optimizer,
    clip: Option<f32>,
    step: i32,
    moments: Vec<(f64, f64)>,
}

impl Reference {
    fn update(&mut self, p: &mut [Vec<f64>], gradients: &[Vec<f64>], rate: f64) {
        self.step += 1;
        let norm = gradients
            .iter()
            .flatten()
            .map(|g| g * g)
            .sum::<f64>()
            .sqrt();
        let scale = match self.clip {
            Some(limit) if norm > f64::from(limit) => f64::from(limit) / (norm + 1e-6),
            _ => 1.0,
        };
        let flat: Vec<f64> = gradients.iter().flatten().map(|g| g * scale).collect();
        self.moments.resize(flat.len(), (0.0, 0.0));
        for ((value, g), moments) in p.iter_mut().flatten().zip(flat).zip(&mut self.moments) {
            let Optimizer::AdamW(adamw) = &self.optimizer else {
                *value -= rate * g;
                continue;
            };
            let (b1, b2) = (f64::from(adamw.betas.0), f64::from(adamw.betas.1));
            let (eps, decay) = (f64::from(adamw.eps), f64::from(adamw.weight_decay));
            *moments = (
                b1 * moments.0 + (1.0 - b1) * g,
                b2 * moments.1 + (1.0 - b2) * g * g,
            );
            let (c1, c2) = if adamw.bias_correction {
                (1.0 - b1.powi(self.step), 1.0 - b2.powi(self.step))
            } else {
                (1.0, 1.0)
            };
            match adamw.variant {
                AdamWVariant::Torch => {
                    *value *= 1.0 - rate * decay;
                    *value -= rate / c1 * moments.0 / ((moments.1 / c2).sqrt() + eps);
                }
                AdamWVariant::HuggingFace => {
                    *value -= rate * c2.sqrt() / c1 * moments.0 / (moments.1.sqrt() + eps);
                    *value *= 1.0 - rate * decay;
                }
            }
        }
    }
}

#[test]
fn every_loss_with_every_optimizer() {
    require_artifacts();
    let custom = AdamW {
        betas: (0.8, 0.95),
        eps: 1e-3,
        weight_decay: 0.1,
        bias_correction: true,
        variant: AdamWVariant::Torch,
    };
    let optimizers = [
        (Optimizer::adamw(), None),
        (Optimizer::AdamW(custom.clone()), None),
        (
            Optimizer::AdamW(AdamW {
                variant: AdamWVariant::HuggingFace,
                ..custom.clone()
            }),
            None,
        ),
        (
            Optimizer::AdamW(AdamW {
                bias_correction: false,
                variant: AdamWVariant::HuggingFace,
                ..custom
            }),
            Some(0.5),
        ),
        (Optimizer::Sgd, None),
        (Optimizer::Sgd, Some(0.2)),
    ];
    let rate = 0.05;
    for case in cases() {
        for (optimizer, clip) in &optimizers {
            let mut builder = ArtifactsBuilder::from_bytes(model().bytes())
                .loss(case.loss.clone())
                .optimizer(optimizer.clone());
            if let Some(norm) = clip {
                builder = builder.clip_grad_norm(*norm);
            }
            let artifacts = builder
                .build()
                .expect("artifacts")
                .into_bytes()
                .expect("bytes");
            let training = Training::new(artifacts).expect("a session");
            let mut reference = Reference {
                optimizer: optimizer.clone(),
                clip: *clip,
                step: 0,
                moments: Vec::new(),
            };
            let mut p = start();
            let loss = |p: &[Vec<f64>]| (case.reference)(&forward(&x().values(), p));
            for step in 0..4 {
                let mut inputs = [x(), case.target.clone()];
                let value = training.train(&mut inputs).expect("a step")[0].values()[0];
                let expected = loss(&p);
                assert!(
                    (value - expected).abs() < 2e-5 * expected.abs().max(1.0),
                    "{}, {optimizer:?}, step {step}: {value} for {expected}",
                    case.name
                );
                training.step(rate).expect("a step");
                let gradients = differences(&p, &loss);
                reference.update(&mut p, &gradients, rate.into());
            }
            for (name, expected) in ["w", "v", "b"].iter().zip(&p) {
                for (f, e) in training
                    .parameter(name)
                    .expect("a parameter")
                    .values()
                    .iter()
                    .zip(expected)
                {
                    assert!(
                        (f - e).abs() < 5e-5,
                        "{}, {optimizer:?}, {name}: {f} for {e}",
                        case.name
                    );
                }
            }
        }
    }
}

/// The caller's own gradient drives training: here that of a loss that no operator computes, mean(cos(π·y)).
#[test]
fn gradient_from_the_caller() {
    require_artifacts();
    let artifacts = ArtifactsBuilder::from_bytes(model().bytes())
        .loss(Loss::OutputGradient)
        .optimizer(Optimizer::Sgd)
        .build()
        .expect("artifacts");
    assert_eq!(artifacts.report().inputs, ["x", "y.gradient"]);
    assert_eq!(artifacts.report().eval_outputs, ["y"]);
    let training = Training::new(artifacts.into_bytes().expect("bytes")).expect("a session");
    let mut p = start();
    let count = (BATCH * OUTPUTS) as f64;
    let loss = |p: &[Vec<f64>]| {
        forward(&x().values(), p)
            .iter()
            .map(|y| (PI * y).cos())
            .sum::<f64>()
            / count
    };
    for _ in 0..5 {
        let y = training
            .evaluate(&mut [x()])
            .expect("an evaluation")
            .remove(0);
        let gradient: Vec<f64> = y
            .values()
            .iter()
            .map(|y| -PI * (PI * y).sin() / count)
            .collect();
        training
            .train(&mut [x(), Tensor::f32(&y.dims, &gradient)])
            .expect("a step");
        training.step(0.1).expect("a step");
        let gradients = differences(&p, &loss);
        p.iter_mut()
            .flatten()
            .zip(gradients.into_iter().flatten())
            .for_each(|(p, g)| *p -= 0.1 * g);
    }
    for (name, expected) in ["w", "v", "b"].iter().zip(&p) {
        for (f, e) in training
            .parameter(name)
            .expect("a parameter")
            .values()
            .iter()
            .zip(expected)
        {
            assert!((f - e).abs() < 1e-5, "{name}: {f} for {e}");
        }
    }
}
