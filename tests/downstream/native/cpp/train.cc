// Trains through onnxruntime_training_cxx_api.h; returns the loss of the last of `steps` steps, or -1.
#include <onnxruntime_training_cxx_api.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

extern "C" float native_train(const char* artifacts, int steps) {
  try {
    const std::string folder = artifacts;
    Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "native");
    Ort::SessionOptions options;
    Ort::CheckpointState state = Ort::CheckpointState::LoadCheckpoint(folder + "/checkpoint");
    Ort::TrainingSession session(env, options, state, folder + "/training_model.onnx", folder + "/eval_model.onnx",
                                 folder + "/optimizer_model.onnx");
    session.SetLearningRate(0.05f);
    std::array<float, 4> x{0.1f, -0.2f, 0.3f, -0.4f};
    std::array<float, 1> target{0.5f};
    const std::array<int64_t, 2> x_shape{1, 4}, target_shape{1, 1};
    auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<Ort::Value> inputs;
    inputs.push_back(Ort::Value::CreateTensor(memory, x.data(), x.size(), x_shape.data(), x_shape.size()));
    inputs.push_back(
        Ort::Value::CreateTensor(memory, target.data(), target.size(), target_shape.data(), target_shape.size()));
    float loss = -1;
    for (int step = 0; step < steps; ++step) {
      auto outputs = session.TrainStep(inputs);
      loss = *outputs.front().GetTensorData<float>();
      session.OptimizerStep();
      session.LazyResetGrad();
    }
    return loss;
  } catch (const Ort::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return -1;
  }
}
