// Device memory is no host memory: it has no slice, and does not become a host tensor unseen.
use ort_training::{DeviceTensor, Tensor};

fn host(tensor: DeviceTensor<'static, f32>) -> Tensor<f32> {
    tensor
}

fn slice<'a>(tensor: &'a mut DeviceTensor<'static, f32>) -> &'a mut [f32] {
    tensor.data_mut()
}

fn main() {
    let _ = (host, slice);
}
