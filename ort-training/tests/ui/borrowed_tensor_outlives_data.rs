// A tensor over borrowed elements must not outlive them.
use ort_training::TensorRef;

fn main() {
    let tensor = {
        let elements = vec![1f32, 2.0];
        TensorRef::new([2], &elements).unwrap()
    };
    println!("{:?}", tensor.data());
}
