fn main() {
    onnxruntime_training_src::ship::beside_programs().unwrap();
}
