// What a copy is queued to cannot be used before the stream was waited for.
use ort_training::{CudaStream, DeviceTensor};

fn read<'a>(stream: &CudaStream, images: &'a [f32], tensor: &'a mut DeviceTensor<'static, f32>) {
    stream
        .scope(|copies| {
            copies.to_device(images, tensor)?;
            tensor.to_vec()
        })
        .unwrap();
}

fn main() {
    let _ = read;
}
