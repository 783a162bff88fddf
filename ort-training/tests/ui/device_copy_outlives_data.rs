// What is copied in the background lives until the stream was waited for.
use ort_training::{CudaStream, DeviceTensor};

fn copy(stream: &CudaStream, mut tensor: DeviceTensor<'static, f32>) {
    stream
        .scope(|copies| {
            let images = vec![0.5f32; 4];
            copies.to_device(&images, &mut tensor)
        })
        .unwrap();
}

fn main() {
    let _ = copy;
}
