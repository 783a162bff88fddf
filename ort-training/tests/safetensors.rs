//! Weights from and to safetensors files.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use ort_training::{Strictness, Tensor, TrainingSession};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use support::{digits_batch, session};

fn train(session: &mut TrainingSession, steps: usize) {
    let (images, labels) = digits_batch(16, 1);
    for _ in 0..steps {
        session.train_step(&[&images, &labels]).unwrap();
        session.optimizer_step().unwrap();
        session.lazy_reset_grad().unwrap();
    }
}

fn logits(session: &TrainingSession) -> Vec<f32> {
    let (images, labels) = digits_batch(7, 3);
    let outputs = session.eval_step(&[&images, &labels]).unwrap();
    outputs
        .get("logits")
        .unwrap()
        .data::<f32>()
        .unwrap()
        .to_vec()
}

/// A file with the tensors of `from` after `change`.
fn changed(
    from: &Path,
    to: &Path,
    change: impl FnOnce(&mut BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>),
) {
    let bytes = fs::read(from).unwrap();
    let mut tensors: BTreeMap<_, _> = SafeTensors::deserialize(&bytes)
        .unwrap()
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            (
                name,
                (view.dtype(), view.shape().to_vec(), view.data().to_vec()),
            )
        })
        .collect();
    change(&mut tensors);
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    fs::write(to, serialize(views, None).unwrap()).unwrap();
}

#[test]
fn weights_go_out_and_come_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("digits.safetensors");
    let mut trained = session("digits");
    train(&mut trained, 5);
    let metadata = BTreeMap::from([("epoch".to_owned(), "5".to_owned())]);
    trained
        .checkpoint()
        .save_safetensors(&path, &metadata)
        .unwrap();

    let bytes = fs::read(&path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let expected = HashMap::from([
        ("epoch".to_owned(), "5".to_owned()),
        ("format".to_owned(), "pt".to_owned()),
    ]);
    assert_eq!(header.metadata().as_ref(), Some(&expected));

    let mut fresh = session("digits");
    assert_ne!(logits(&fresh), logits(&trained));
    let report = fresh
        .checkpoint_mut()
        .load_safetensors(&path, Strictness::Strict)
        .unwrap();
    let mut names: Vec<&str> = fresh
        .checkpoint()
        .parameters()
        .iter()
        .map(|p| p.name())
        .collect();
    names.sort_unstable();
    assert_eq!(report.loaded, names);
    assert!(report.missing.is_empty() && report.unexpected.is_empty());
    assert_eq!(logits(&fresh), logits(&trained));
    for name in names {
        let [a, b] =
            [&fresh, &trained].map(|session| session.checkpoint().parameter(name).unwrap());
        assert_eq!(a.data(), b.data(), "{name}");
    }
}

#[test]
fn what_does_not_fit_changes_nothing_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, other) = (folder.path().join("whole"), folder.path().join("other"));
    let mut session = session("digits");
    train(&mut session, 1);
    session
        .checkpoint()
        .save_safetensors(&whole, &BTreeMap::new())
        .unwrap();
    let before = logits(&session);
    let first = session.checkpoint().parameters()[0].name().to_owned();
    let shape = session.checkpoint().parameters()[0].shape().to_vec();
    let mut refused = |strictness, words: &[&str]| {
        let error = session
            .checkpoint_mut()
            .load_safetensors(&other, strictness)
            .unwrap_err()
            .to_string();
        for word in words.iter().chain(&["other"]) {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
    };

    changed(&whole, &other, |tensors| {
        let tensor = tensors.remove(&first).unwrap();
        tensors.insert("stranger".into(), tensor);
    });
    refused(
        Strictness::Strict,
        &[
            "missing in the file",
            &first,
            "no such parameters: stranger",
        ],
    );

    changed(&whole, &other, |tensors| {
        let (_, shape, data) = tensors.get_mut(&first).unwrap();
        shape.insert(0, 2);
        data.extend(data.clone());
    });
    for strictness in [Strictness::Strict, Strictness::Partial] {
        refused(
            strictness,
            &[
                &first,
                "expected float32",
                &format!("found F32 [2, {}", shape[0]),
            ],
        );
    }
    changed(&whole, &other, |tensors| {
        tensors.get_mut(&first).unwrap().0 = Dtype::I32
    });
    refused(Strictness::Partial, &[&first, "found I32"]);

    let bytes = fs::read(&whole).unwrap();
    fs::write(&other, &bytes[..bytes.len() - 1]).unwrap();
    refused(Strictness::Strict, &["expected a safetensors file"]);
    fs::remove_file(&other).unwrap();
    refused(Strictness::Strict, &["No such file"]);
    assert_eq!(logits(&session), before);
}

#[test]
fn partial_weights_report_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (folder.path().join("whole"), folder.path().join("part"));
    let mut session = session("digits");
    session
        .checkpoint()
        .save_safetensors(&whole, &BTreeMap::new())
        .unwrap();
    let names: Vec<String> = session
        .checkpoint()
        .parameters()
        .iter()
        .map(|p| p.name().to_owned())
        .collect();
    changed(&whole, &part, |tensors| {
        tensors.remove(&names[1]);
        let (_, _, data) = tensors.get_mut(&names[0]).unwrap();
        data[..4].copy_from_slice(&7f32.to_le_bytes());
        tensors.insert("head.bias".into(), (Dtype::F32, vec![1], vec![0; 4]));
    });
    let report = session
        .checkpoint_mut()
        .load_safetensors(&part, Strictness::Partial)
        .unwrap();
    assert_eq!(report.missing, [names[1].as_str()]);
    assert_eq!(report.unexpected, ["head.bias"]);
    assert_eq!(report.loaded.len(), names.len() - 1);
    let tensor: Tensor<f32> = session.checkpoint().parameter(&names[0]).unwrap();
    assert_eq!(tensor.data()[0], 7.0);
}

/// What is written where there was a file replaces it whole; what cannot be written leaves it.
#[test]
fn the_old_file_stays_until_the_new_one_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights");
    fs::write(&path, "old").unwrap();
    let loose = support::checkpoint("digits");
    let error = loose.save_safetensors(&path, &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().contains("session"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "something was left behind"
    );
    session("digits")
        .checkpoint()
        .save_safetensors(&path, &BTreeMap::new())
        .unwrap();
    SafeTensors::deserialize(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
