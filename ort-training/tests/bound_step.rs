//! The bound step: the same numbers as the plain one, and no allocation on the Rust side.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ort_training::{StepBinding, Tensor, TrainingSession};
use support::{digits_batch, refused, session};

/// Counts what this thread allocates through Rust's allocator; ONNX Runtime has C++'s.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: by the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the contract of this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn plain_step(session: &mut TrainingSession, images: &Tensor<f32>, labels: &Tensor<i64>) -> u32 {
    let loss = session
        .train_step(&[images, labels])
        .unwrap()
        .loss()
        .unwrap();
    session.optimizer_step().unwrap();
    session.lazy_reset_grad().unwrap();
    loss.to_bits()
}

fn bind(session: &TrainingSession) -> StepBinding<'static> {
    let (images, labels) = digits_batch(8, 0);
    session
        .bind_train_step(vec![images.into(), labels.into()])
        .unwrap()
}

fn bound_step(session: &mut TrainingSession, binding: &mut StepBinding) -> u32 {
    session.train_step_bound(binding).unwrap();
    let loss = binding.outputs().loss().unwrap();
    session.optimizer_step().unwrap();
    session.lazy_reset_grad().unwrap();
    loss.to_bits()
}

#[test]
fn the_same_losses_as_the_plain_step() {
    let (mut plain, mut bound) = (session("digits"), session("digits"));
    let mut binding = bind(&bound);
    for step in 0..20 {
        let (images, labels) = digits_batch(8, step);
        binding
            .input_mut::<f32>(0)
            .unwrap()
            .copy_from_slice(images.data());
        binding
            .input_mut::<i64>(1)
            .unwrap()
            .copy_from_slice(labels.data());
        assert_eq!(
            bound_step(&mut bound, &mut binding),
            plain_step(&mut plain, &images, &labels),
            "step {step}"
        );
    }
}

#[test]
fn nothing_is_allocated_in_the_steady_state() {
    let mut session = session("digits");
    assert!(
        allocations(|| drop(vec![0u8; 10])) > 0,
        "the counter counts"
    );
    let mut binding = bind(&session);
    bound_step(&mut session, &mut binding);
    let count = allocations(|| {
        for _ in 0..100 {
            binding.input_mut::<f32>(0).unwrap()[0] += 1.0;
            bound_step(&mut session, &mut binding);
        }
    });
    assert_eq!(count, 0);
}

#[test]
fn outputs_are_written_in_place() {
    let mut session = session("digits");
    let mut binding = bind(&session);
    assert!(binding.outputs().is_empty(), "no step was taken");
    bound_step(&mut session, &mut binding);
    let place = |binding: &StepBinding| binding.outputs()[1].data::<f32>().unwrap().as_ptr();
    let before = place(&binding);
    bound_step(&mut session, &mut binding);
    assert_eq!(before, place(&binding));
}

#[test]
fn what_does_not_fit_is_refused() {
    let (mut first, mut second) = (session("digits"), session("digits"));
    let (images, _) = digits_batch(8, 0);
    refused(
        first.bind_train_step(vec![images.into()]),
        &["2 inputs", "found 1"],
    );
    let mut binding = bind(&first);
    refused(binding.input_mut::<f64>(0), &["float64", "float32"]);
    refused(binding.input_mut::<f32>(2), &["bound input 2"]);
    refused(second.train_step_bound(&mut binding), &["this session"]);
    refused(first.eval_step_bound(&mut binding), &["kind of step"]);
    first.train_step_bound(&mut binding).unwrap();
}
