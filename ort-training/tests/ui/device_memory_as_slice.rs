// Device memory is no host memory: it has no slice to write to.
use ort_training::DeviceTensor;

fn slice<'a>(tensor: &'a mut DeviceTensor<'static, f32>) -> &'a mut [f32] {
    tensor.data_mut()
}

fn main() {
    let _ = slice;
}
