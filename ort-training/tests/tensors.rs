//! Tensors of every element type, owned and borrowed, and their way through ONNX Runtime.

mod support;

use ort_training::half::{bf16, f16};
use ort_training::{
    AsValue, ElementType, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, InferenceSession, Int4x2,
    StringTensor, Tensor, TensorElement, TensorRef, Uint4x2,
};
use support::{env, one_thread, refused};

fn goes_round<T: TensorElement + PartialEq>(elements: Vec<T>) {
    let wanted = T::ELEMENT_TYPE;
    let len = elements.len();
    let place = elements.as_ptr();
    let tensor = Tensor::from_vec([len, 1], elements.clone()).unwrap();
    assert_eq!(tensor.as_value().element_type().unwrap(), wanted);
    assert_eq!(tensor.data(), elements);
    assert_eq!(tensor.shape(), [len, 1]);
    let borrowed = TensorRef::new([len], &elements).unwrap();
    assert_eq!(borrowed.data().as_ptr(), place, "{wanted} is not copied");
    let value = tensor.into_value();
    assert_eq!(value.data::<T>().unwrap(), elements);
    assert_eq!(value.into_tensor::<T>().unwrap().into_vec(), elements);
}

#[test]
fn every_element_type() {
    goes_round(vec![1f32, -0.0, f32::INFINITY]);
    goes_round(vec![1f64, f64::MIN_POSITIVE]);
    goes_round(vec![f16::from_f32(0.5), f16::MAX]);
    goes_round(vec![bf16::from_f32(0.5), bf16::MIN]);
    goes_round(vec![i8::MIN, i8::MAX]);
    goes_round(vec![i16::MIN, i16::MAX]);
    goes_round(vec![i32::MIN, i32::MAX]);
    goes_round(vec![i64::MIN, i64::MAX]);
    goes_round(vec![0u8, u8::MAX]);
    goes_round(vec![0u16, u16::MAX]);
    goes_round(vec![0u32, u32::MAX]);
    goes_round(vec![0u64, u64::MAX]);
    goes_round(vec![true, false]);
    goes_round(vec![F8E4M3FN(1)]);
    goes_round(vec![F8E4M3FNUZ(2)]);
    goes_round(vec![F8E5M2(3)]);
    goes_round(vec![F8E5M2FNUZ(4)]);
}

#[test]
fn four_bit_types_are_packed() {
    let tensor = Tensor::from_vec([3], vec![Int4x2(0x21), Int4x2(0x03)]).unwrap();
    assert_eq!(tensor.as_value().element_count().unwrap(), 3);
    assert_eq!(tensor.data(), [Int4x2(0x21), Int4x2(0x03)]);
    refused(
        Tensor::from_vec([3], vec![Uint4x2(0); 3]),
        &["uint4", "expected 2", "found 3"],
    );
}

#[test]
fn a_vector_is_neither_copied_in_nor_out() {
    let elements = vec![1f32, 2.0, 3.0];
    let place = elements.as_ptr();
    let mut tensor = Tensor::from_vec([3], elements).unwrap();
    assert_eq!(tensor.data().as_ptr(), place);
    tensor.data_mut()[1] = 20.0;
    let elements = tensor.into_vec();
    assert_eq!(elements.as_ptr(), place);
    assert_eq!(elements, [1.0, 20.0, 3.0]);
}

#[test]
fn scalars_and_empty_tensors() {
    let scalar = Tensor::scalar(7i64).unwrap();
    assert!(scalar.shape().is_empty());
    assert_eq!(scalar.as_value().scalar::<i64>().unwrap(), 7);
    let empty = Tensor::<f32>::from_vec([2, 0, 3], Vec::new()).unwrap();
    assert_eq!(empty.shape(), [2, 0, 3]);
    assert!(empty.data().is_empty());
    assert!(empty.into_vec().is_empty());
    let nothing: [f32; 0] = [];
    assert!(TensorRef::new([0], &nothing).unwrap().data().is_empty());
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    refused(
        Tensor::from_vec([2, 2], vec![0f32; 3]),
        &["[2, 2]", "expected 4", "found 3"],
    );
    refused(
        TensorRef::new([2], &[0u8; 3]),
        &["[2]", "expected 2", "found 3"],
    );
    for shape in [
        vec![usize::MAX],
        vec![1 << 40, 1 << 40],
        vec![usize::MAX, 0],
    ] {
        refused(Tensor::from_vec(&shape, Vec::<f32>::new()), &["overflows"]);
        refused(Tensor::filled(&shape, 0f32), &["overflows"]);
        refused(StringTensor::new(&shape, &["x"; 0]), &["overflows"]);
    }
    refused(Tensor::filled([1 << 62], 0f64), &["larger than memory"]);
}

#[test]
fn access_with_another_type_is_refused() {
    let mut value = Tensor::from_vec([1], vec![1f32]).unwrap().into_value();
    refused(
        value.data::<i32>(),
        &["expected element type int32", "found float32"],
    );
    refused(value.data_mut::<u8>(), &["uint8", "float32"]);
    refused(value.strings(), &["string", "float32"]);
    refused(value.into_strings(), &["string", "float32"]);
}

#[test]
fn strings_go_round() {
    let strings = ["", "naïve", "größer", "one\ntwo"];
    let tensor = StringTensor::new([2, 2], &strings).unwrap();
    assert_eq!(tensor.shape(), [2, 2]);
    assert_eq!(tensor.strings().unwrap(), strings);
    assert_eq!(
        tensor.as_value().element_type().unwrap(),
        ElementType::String
    );
    let value = tensor.into_value();
    refused(value.data::<u8>(), &["uint8", "string"]);
    assert_eq!(value.into_strings().unwrap().strings().unwrap(), strings);
    assert!(
        StringTensor::new([0], &["x"; 0])
            .unwrap()
            .strings()
            .unwrap()
            .is_empty()
    );
    refused(StringTensor::new([1], &["a\0b"]), &["NUL", "byte 1"]);
    refused(
        StringTensor::new([3], &strings),
        &["[3]", "expected 3 strings", "found 4"],
    );
}

/// A model `y = Identity(x)` over a type, or with `x` itself as its output: the few bytes of protobuf by hand.
fn identity_model(element_type: ElementType, handed_through: bool) -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend(bytes);
        out
    }
    let shape = field(2, &field(1, &field(2, b"n")));
    let tensor = [
        &[8, u8::try_from(element_type.as_raw()).unwrap()][..],
        &shape,
    ]
    .concat();
    let info = |name: &[u8]| [field(1, name), field(2, &field(1, &tensor))].concat();
    let node = |output: &[u8]| {
        field(
            1,
            &[field(1, b"x"), field(2, output), field(4, b"Identity")].concat(),
        )
    };
    let mut graph = node(b"y");
    graph.extend(field(2, b"g"));
    graph.extend(field(11, &info(b"x")));
    graph.extend(field(12, &info(b"y")));
    if handed_through {
        graph.extend(field(12, &info(b"x")));
    }
    [vec![8, 8], field(7, &graph), field(8, &[16, 16])].concat()
}

fn identity<T: TensorElement + PartialEq>(elements: &[T]) {
    let session = InferenceSession::builder(&env())
        .options(one_thread())
        .model_bytes(identity_model(T::ELEMENT_TYPE, false))
        .build()
        .unwrap();
    let x = TensorRef::new([elements.len()], elements).unwrap();
    let y = session.run(&[&x]).unwrap().only().unwrap();
    assert_eq!(y.element_type().unwrap(), T::ELEMENT_TYPE);
    assert_eq!(y.data::<T>().unwrap(), elements);
}

#[test]
fn onnx_runtime_computes_on_them() {
    identity(&[1f32, 2.0]);
    identity(&[1f64, 2.0]);
    identity(&[f16::from_f32(1.5)]);
    identity(&[bf16::from_f32(1.5)]);
    identity(&[1i8, -1]);
    identity(&[1i64, -1]);
    identity(&[1u8, 255]);
    identity(&[u64::MAX]);
    identity(&[true, false, true]);
    let session = InferenceSession::builder(&env())
        .options(one_thread())
        .model_bytes(identity_model(ElementType::String, false))
        .build()
        .unwrap();
    let x = StringTensor::new([2], &["größer", ""]).unwrap();
    let y = session.run(&[&x]).unwrap().only().unwrap();
    assert_eq!(y.strings().unwrap(), ["größer", ""]);
}

#[test]
fn an_input_handed_through_is_copied() {
    let session = InferenceSession::builder(&env())
        .options(one_thread())
        .model_bytes(identity_model(ElementType::Float32, true))
        .build()
        .unwrap();
    let mut elements = vec![1f32, 2.0];
    let outputs = {
        let x = TensorRef::new([2], &elements).unwrap();
        let outputs = session.run(&[&x]).unwrap();
        assert_ne!(
            outputs.get("x").unwrap().data::<f32>().unwrap().as_ptr(),
            elements.as_ptr()
        );
        outputs
    };
    // The borrow is over; were the output the input's memory, it would change with it.
    elements.fill(0.0);
    drop(elements);
    assert_eq!(outputs.get("x").unwrap().data::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(outputs.get("y").unwrap().data::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn values_cross_threads() {
    let tensor = Tensor::from_vec([2], vec![1f32, 2.0]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(tensor.data(), [1.0, 2.0]));
        scope.spawn(|| assert_eq!(tensor.data(), [1.0, 2.0]));
    });
    let back = std::thread::spawn(move || tensor.into_vec())
        .join()
        .unwrap();
    assert_eq!(back, [1.0, 2.0]);
}

#[cfg(feature = "ndarray")]
mod arrays {
    use ndarray::{Array1, Array2, array, s};

    use super::*;

    #[test]
    fn owned_arrays_are_not_copied() {
        let array = array![[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let place = array.as_ptr();
        let tensor = Tensor::from_array(array).unwrap();
        assert_eq!(tensor.shape(), [2, 3]);
        assert_eq!(tensor.data().as_ptr(), place);
        assert_eq!(tensor.array_view().unwrap()[[1, 2]], 6.0);
        let back = tensor.into_array().unwrap();
        assert_eq!(back.as_ptr(), place);
        assert_eq!(back.shape(), [2, 3]);
    }

    #[test]
    fn other_layouts_are_put_in_order() {
        let transposed = array![[1i64, 2], [3, 4], [5, 6]].reversed_axes();
        assert_eq!(
            Tensor::from_array(transposed).unwrap().data(),
            [1, 3, 5, 2, 4, 6]
        );
        let sliced = Array1::from_vec(vec![1u8, 2, 3, 4]).slice_move(s![1..3]);
        assert_eq!(Tensor::from_array(sliced).unwrap().into_vec(), [2, 3]);
    }

    #[test]
    fn borrowed_arrays_must_be_contiguous() {
        let array = Array2::<f64>::ones((2, 3));
        let tensor = TensorRef::from_array(&array).unwrap();
        assert_eq!(tensor.data().as_ptr(), array.as_ptr());
        let view = array.t();
        refused(
            TensorRef::from_array(&view),
            &["[3, 2]", "as_standard_layout"],
        );
    }
}
