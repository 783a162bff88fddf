//! Labels that are no class never reach ONNX Runtime, whose loss would read out of bounds.

mod support;

use ort_training::Tensor;
use support::{digits_batch, refused, session};

#[test]
fn labels_out_of_range_are_refused_by_every_kind_of_step() {
    let mut session = session("digits");
    for label in [10, 1 << 40, i64::MAX, -2, i64::MIN] {
        let (images, _) = digits_batch(2, 1);
        let labels = Tensor::from_vec([2], vec![3, label]).unwrap();
        let found = format!("{label} at position 1");
        let words = ["labels", "from 0 to 9", &found];
        refused(session.train_step(&[&images, &labels]), &words);
        refused(session.eval_step(&[&images, &labels]), &words);
        let mut step = session
            .bind_train_step(vec![images.into(), labels.into()])
            .unwrap();
        refused(session.train_step_bound(&mut step), &words);
        assert!(step.outputs().is_empty());
        step.input_mut::<i64>(1).unwrap()[1] = 4;
        session.train_step_bound(&mut step).unwrap();
        assert!(step.outputs().loss().unwrap().is_finite());
    }
}

#[test]
fn the_label_that_the_loss_ignores_passes() {
    let mut session = session("digits");
    let (images, _) = digits_batch(2, 1);
    let one = Tensor::from_vec([2], vec![3i64, -1]).unwrap();
    assert!(
        session
            .train_step(&[&images, &one])
            .unwrap()
            .loss()
            .unwrap()
            .is_finite()
    );
}
