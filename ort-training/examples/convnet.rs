//! Trains a residual network on the CPU or on a CUDA device, and shows what it takes: losses, time of a step, memory.
//!
//! The network is put together in code, as an ONNX model, and its training artifacts are made from it. Two sizes: a small
//! one for the handwritten digits, whose losses on a device are compared with the CPU's, and ResNet-18 on images of noise,
//! for timing.
//!
//! `cargo run --release --features artifacts --example convnet -- --help` lists the options.

#[path = "digits/data.rs"]
#[allow(dead_code, reason = "the digits example uses more of it")]
pub mod data;
#[path = "convnet/network.rs"]
pub mod network;
#[path = "convnet/options.rs"]
pub mod options;
#[path = "digits/random.rs"]
pub mod random;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ort_training::artifacts::{ArtifactsBuilder, Loss, Optimizer};
use ort_training::{
    AsValue, CudaAllocator, CudaDevice, CudaOptions, CudnnConvAlgoSearch, Environment, MemoryMeter,
    SessionOptions, Tensor, TrainingSession,
};

use network::Network;
use options::Options;
use random::Random;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How far a device's loss may lie from the CPU's, relative to it: sums in another order, over the steps of the run.
const TOLERANCE: f32 = 2e-2;

fn main() -> ExitCode {
    let options = match Options::parse() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("convnet: {error} (--help lists the options)");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("convnet: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole run.
pub fn run(options: &Options) -> Result<()> {
    let network = options.network;
    let env = Environment::builder("convnet").build()?;
    std::fs::create_dir_all(&options.out)?;
    let artifacts = options.out.join(network.name());
    ArtifactsBuilder::from_bytes(network.model(1))
        .loss(Loss::cross_entropy())
        .optimizer(Optimizer::adamw())
        .build()?
        .write_to(&artifacts)?;
    let batches = Batches::new(network, options.batch_size)?;
    println!(
        "{}: batches of {}, {} steps",
        network.name(),
        options.batch_size,
        options.steps
    );

    let Some(number) = options.cuda else {
        let mut session = open(&env, &artifacts, None)?;
        let (losses, step) = train(&mut session, &batches, options.steps, |_| Ok(()))?;
        return show("the CPU", &losses, step);
    };
    let device = CudaDevice::open(number)?;
    println!("{}", device.name()?);
    // No algorithm is chosen by timing while results are compared; timed runs choose the fastest.
    let cuda = match options.compare {
        true => CudaOptions::device(number)
            .use_tf32(false)
            .cudnn_conv_algo_search(CudnnConvAlgoSearch::Heuristic),
        false => CudaOptions::device(number),
    };
    let mut meter = MemoryMeter::start(device)?;
    let mut session = open(&env, &artifacts, Some(&cuda))?;
    let (losses, host_step) = train(&mut session, &batches, options.steps, |_| {
        meter.sample().map(|_| ())
    })?;
    show("host inputs", &losses, host_step)?;
    if options.memory {
        println!(
            "result: {}: device memory: {}",
            network.name(),
            meter.report()
        );
    }
    drop(session);

    let memory = CudaAllocator::new(&env, &cuda)?;
    let there = batches.on_device(&memory)?;
    let mut session = open(&env, &artifacts, Some(&cuda))?;
    let (device_losses, device_step) = train(&mut session, &there, options.steps, |_| Ok(()))?;
    show("device inputs", &device_losses, device_step)?;
    println!(
        "result: {}: batch {}: step with host inputs {:.3} ms, with device inputs {:.3} ms, ratio {:.3}",
        network.name(),
        options.batch_size,
        milliseconds(host_step),
        milliseconds(device_step),
        host_step.as_secs_f64() / device_step.as_secs_f64()
    );
    if options.compare {
        let mut on_cpu = open(&env, &artifacts, None)?;
        let (expected, _) = train(&mut on_cpu, &batches, options.steps, |_| Ok(()))?;
        let furthest = compare(&expected, &losses)?.max(compare(&expected, &device_losses)?);
        println!(
            "result: {}: all {} losses within {furthest:.1e} of the CPU's, relative",
            network.name(),
            expected.len()
        );
    }
    Ok(())
}

fn open(
    env: &Environment,
    artifacts: &Path,
    cuda: Option<&CudaOptions>,
) -> ort_training::Result<TrainingSession> {
    let mut builder = TrainingSession::builder(env).options(SessionOptions::new()?);
    if let Some(cuda) = cuda {
        builder = builder.cuda(cuda.clone())?;
    }
    let mut session = builder.artifacts(artifacts)?.build()?;
    session.set_learning_rate(1e-3)?;
    Ok(session)
}

/// Images and labels of some steps, which are gone round.
struct Batches<V>(Vec<(V, Tensor<i64>)>);

impl Batches<Tensor<f32>> {
    fn new(network: Network, batch_size: usize) -> Result<Self> {
        let shape = network.input(batch_size);
        let pixels: usize = shape[1..].iter().product();
        let (images, labels) = match network {
            Network::Digits => {
                let digits = data::Digits::load();
                (digits.images, digits.labels)
            }
            Network::ResNet18 => {
                let mut random = Random::new(7, 7);
                let count = 2 * batch_size;
                let images = (0..count * pixels).map(|_| random.uniform(1.0)).collect();
                let labels = (0..count as i64).map(|at| at * 37 % 1000).collect();
                (images, labels)
            }
        };
        let batches = images
            .chunks_exact(batch_size * pixels)
            .zip(labels.chunks_exact(batch_size))
            .map(|(images, labels)| {
                Ok((
                    Tensor::from_slice(shape, images)?,
                    Tensor::from_slice([batch_size], labels)?,
                ))
            })
            .collect::<Result<Vec<_>>>()?;
        match batches.is_empty() {
            false => Ok(Self(batches)),
            true => Err(format!("--batch-size: {batch_size} is more than there are images").into()),
        }
    }

    fn on_device(&self, memory: &CudaAllocator) -> Result<Batches<DeviceImages>> {
        let batches = self.0.iter().map(|(images, labels)| {
            Ok((
                memory.tensor_from(images.shape(), images.data())?,
                // Labels are few, and on the host they are checked before every step.
                Tensor::from_slice(labels.shape(), labels.data())?,
            ))
        });
        Ok(Batches(batches.collect::<Result<_>>()?))
    }
}

type DeviceImages = ort_training::DeviceTensor<'static, f32>;

/// Trains, and returns the losses and the median time of a step (the first tenth, and at least five steps, warm up).
fn train<V: AsValue>(
    session: &mut TrainingSession,
    batches: &Batches<V>,
    steps: usize,
    mut each: impl FnMut(usize) -> ort_training::Result<()>,
) -> ort_training::Result<(Vec<f32>, Duration)> {
    let mut losses = Vec::with_capacity(steps);
    let mut times = Vec::with_capacity(steps);
    for step in 0..steps {
        let (images, labels) = &batches.0[step % batches.0.len()];
        let started = Instant::now();
        losses.push(session.train_step(&[images, labels])?.loss()?);
        session.optimizer_step()?;
        session.lazy_reset_grad()?;
        times.push(started.elapsed());
        each(step)?;
    }
    let warm = (steps / 10).max(5).min(steps - 1);
    let mut times = times.split_off(warm);
    times.sort();
    Ok((losses, times[times.len() / 2]))
}

fn show(what: &str, losses: &[f32], step: Duration) -> Result<()> {
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    println!(
        "{what:<14} loss {first:.4} to {last:.4}, {:.3} ms a step",
        milliseconds(step)
    );
    match last.is_finite() && last < first {
        true => Ok(()),
        false => Err(format!("{what}: the loss did not fall: {first} to {last}").into()),
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn compare(expected: &[f32], found: &[f32]) -> Result<f32> {
    let mut furthest = 0f32;
    for (step, (expected, found)) in expected.iter().zip(found).enumerate() {
        let apart = (expected - found).abs() / expected.abs().max(0.1);
        if apart.is_nan() || apart > TOLERANCE {
            return Err(format!("step {step}: loss {found}, on the CPU {expected}").into());
        }
        furthest = furthest.max(apart);
    }
    Ok(furthest)
}
