// Device memory cannot be read by the host.
use ort_training::DeviceTensor;

fn read<'a>(tensor: &'a DeviceTensor<'_, f32>) -> &'a [f32] {
    tensor.data()
}

fn main() {
    let _ = read;
}
