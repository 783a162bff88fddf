#include "ort_training_artifacts.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/common/logging/logging.h"
#include "core/framework/tensor.h"
#include "core/framework/tensorprotoutils.h"
#include "core/graph/model.h"
#include "core/session/onnxruntime_c_api.h"
#include "gradient_check.h"
#include "onnx/defs/schema.h"
#include "onnx/inliner/inliner.h"
#include "orttraining/core/framework/gradient_graph_builder.h"
#include "orttraining/core/graph/gradient_config.h"
#include "orttraining/training_api/checkpoint.h"
#include "pretraining_transformers.h"

namespace ort_training_artifacts {
namespace {

using namespace onnxruntime;  // NOLINT
using ONNX_NAMESPACE::ModelProto;

// Protobuf counts bytes in an int.
constexpr size_t kProtobufLimit = 0x7fffffff;

char* CopyText(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

OrtTrainingArtifactsStatus Fail(const std::string& text, char** message,
                                OrtTrainingArtifactsStatus status = ORT_TRAINING_ARTIFACTS_FAIL) {
  if (message != nullptr) *message = CopyText(text);
  return status;
}

struct Refused {
  std::string lines;
};

// Runs `body`, which throws on failure, and turns whatever it throws into a status and a message.
template <typename Body>
OrtTrainingArtifactsStatus Guard(char** message, Body&& body) {
  if (message != nullptr) *message = nullptr;
  try {
    body();
    return ORT_TRAINING_ARTIFACTS_OK;
  } catch (const Refused& refused) {
    return Fail(refused.lines, message, ORT_TRAINING_ARTIFACTS_NOT_DIFFERENTIABLE);
  } catch (const std::exception& error) {
    return Fail(error.what(), message);
  } catch (...) {
    return Fail("unknown C++ exception", message);
  }
}

// ONNX Runtime's environment registers the operator schemas and owns the default logger. It is counted: this shares
// the caller's when there is one, and is gone with the last holder.
class SharedEnvironment {
 public:
  SharedEnvironment() : api_(*OrtGetApiBase()->GetApi(ORT_API_VERSION)) {
    OrtStatus* status = api_.CreateEnv(ORT_LOGGING_LEVEL_WARNING, "ort_training_artifacts", &env_);
    if (status != nullptr) {
      const std::string text = api_.GetErrorMessage(status);
      api_.ReleaseStatus(status);
      ORT_THROW(text);
    }
  }
  ~SharedEnvironment() { api_.ReleaseEnv(env_); }
  SharedEnvironment(const SharedEnvironment&) = delete;
  SharedEnvironment& operator=(const SharedEnvironment&) = delete;

 private:
  const OrtApi& api_;
  OrtEnv* env_ = nullptr;
};

ModelProto ParseModel(const void* bytes, size_t size) {
  ORT_ENFORCE(bytes != nullptr || size == 0, "The model is NULL.");
  ORT_ENFORCE(size <= kProtobufLimit, "The model has ", size, " bytes; protobuf reads 2147483647 at most.");
  ModelProto proto;
  ORT_THROW_IF_ERROR(Model::LoadFromBytes(static_cast<int>(size), const_cast<void*>(bytes), proto));
  return proto;
}

std::shared_ptr<Model> LoadModel(const void* bytes, size_t size, const logging::Logger& logger) {
  ModelProto proto = ParseModel(bytes, size);
  std::shared_ptr<Model> model;
  ORT_THROW_IF_ERROR(Model::Load(std::move(proto), model, nullptr, logger));
  ORT_THROW_IF_ERROR(model->MainGraph().Resolve());
  return model;
}

void StoreProto(const ModelProto& proto, void** result, size_t* result_size) {
  const size_t size = proto.ByteSizeLong();
  ORT_ENFORCE(size <= kProtobufLimit, "The resulting model has ", size, " bytes; protobuf writes 2147483647 at most.");
  void* bytes = std::malloc(size == 0 ? 1 : size);
  ORT_ENFORCE(bytes != nullptr, "Out of memory for a model of ", size, " bytes.");
  if (!proto.SerializeToArray(bytes, static_cast<int>(size))) {
    std::free(bytes);
    ORT_THROW("The model could not be serialized.");
  }
  *result = bytes;
  *result_size = size;
}

void StoreModel(const Model& model, void** result, size_t* result_size) {
  StoreProto(model.ToProto(), result, result_size);
}

OrtTrainingArtifactsStatus InlineFunctions(const void* bytes, size_t size, void** result, size_t* result_size,
                                           char** message) {
  return Guard(message, [&] {
    ModelProto proto = ParseModel(bytes, size);
    ONNX_NAMESPACE::inliner::InlineLocalFunctions(proto, false);
    StoreProto(proto, result, result_size);
  });
}

OrtTrainingArtifactsStatus InferTypes(const void* bytes, size_t size, void** result, size_t* result_size,
                                      char** message) {
  return Guard(message, [&] {
    SharedEnvironment environment;
    const logging::Logger logger{logging::LoggingManager::DefaultLogger()};
    auto model = LoadModel(bytes, size, logger);
    Graph& graph = model->MainGraph();
    std::unordered_set<std::string> known;
    for (const NodeArg* arg : graph.GetValueInfo()) known.insert(arg->Name());
    for (const auto& node : graph.Nodes()) {
      for (const NodeArg* arg : node.OutputDefs()) {
        if (arg->Exists() && arg->TypeAsProto() != nullptr && known.insert(arg->Name()).second) graph.AddValueInfo(arg);
      }
    }
    graph.SetGraphProtoSyncNeeded();
    StoreModel(*model, result, result_size);
  });
}

OrtTrainingArtifactsStatus BuildGradientModel(const OrtTrainingArtifactsGradientOptions* options, void** result,
                                              size_t* result_size, char** message) {
  return Guard(message, [&] {
    ORT_ENFORCE(options != nullptr && options->loss_name != nullptr, "The options or the loss name are NULL.");
    SharedEnvironment environment;
    RegisterGradientsOnce();
    const logging::Logger logger{logging::LoggingManager::DefaultLogger()};
    auto model = LoadModel(options->model, options->model_size, logger);
    Graph& graph = model->MainGraph();
    const std::unordered_set<std::string> parameters(options->parameter_names,
                                                     options->parameter_names + options->parameter_count);
    const std::string loss = options->loss_name;
    if (options->optimize != 0) {
      ORT_THROW_IF_ERROR(RunPretrainingTransformers(graph, parameters, logger));
      ORT_THROW_IF_ERROR(graph.Resolve());
    }
    std::string refused = NodesWithoutGradient(graph, parameters, loss);
    if (!refused.empty()) throw Refused{std::move(refused)};

    training::GradientGraphConfiguration config{};
    config.set_gradients_as_graph_outputs = true;
    training::GradientGraphBuilder builder(&graph, {loss}, parameters, loss, config, logger);
    ORT_THROW_IF_ERROR(builder.Build());
    if (options->check_kernels != 0) {
      refused = NodesWithoutKernel(graph, logger);
      if (!refused.empty()) throw Refused{std::move(refused)};
    }
    StoreModel(*model, result, result_size);
  });
}

// A tensor over the caller's memory: the writer reads it and keeps nothing.
OrtValue Borrow(const OrtTrainingArtifactsTensor& source) {
  const MLDataType type = DataTypeImpl::TensorTypeFromONNXEnum(source.data_type)->GetElementType();
  const TensorShape shape(std::vector<int64_t>(source.dims, source.dims + source.dim_count));
  const OrtMemoryInfo cpu{onnxruntime::CPU, OrtDeviceAllocator};
  auto tensor = std::make_unique<Tensor>(type, shape, const_cast<void*>(source.data), cpu);
  ORT_ENFORCE(tensor->SizeInBytes() == source.byte_count, "Parameter '", source.name, "' has ", source.byte_count,
              " bytes; its type and shape need ", tensor->SizeInBytes(), ".");
  OrtValue value;
  const auto tensor_type = DataTypeImpl::GetType<Tensor>();
  value.Init(tensor.release(), tensor_type, tensor_type->GetDeleteFunc());
  return value;
}

std::vector<ONNX_NAMESPACE::TensorProto> Named(const OrtTrainingArtifactsTensor* tensors, size_t count) {
  std::vector<ONNX_NAMESPACE::TensorProto> protos(count);
  for (size_t i = 0; i < count; ++i) {
    protos[i].set_name(tensors[i].name);
    protos[i].set_data_type(tensors[i].data_type);
  }
  return protos;
}

OrtTrainingArtifactsStatus SaveCheckpoint(const OrtTrainingArtifactsCheckpointOptions* options, char** message) {
  return Guard(message, [&] {
    namespace api = training::api;
    ORT_ENFORCE(options != nullptr && options->path != nullptr, "The options or the path are NULL.");
    SharedEnvironment environment;
    const PathString path = ToPathString(options->path);
    if (options->nominal != 0) {
      ORT_THROW_IF_ERROR(api::SaveCheckpoint(Named(options->trainable, options->trainable_count),
                                             Named(options->frozen, options->frozen_count), path, true));
      return;
    }
    api::CheckpointState state;
    state.module_checkpoint_state.train_session_data_transfer_mgr = nullptr;
    state.has_external_data = options->external_data != 0;
    const auto add = [&state](const OrtTrainingArtifactsTensor* tensors, size_t count, bool trainable) {
      for (size_t i = 0; i < count; ++i) {
        const std::string name = tensors[i].name;
        auto parameter = std::make_shared<api::Parameter>(name, Borrow(tensors[i]), trainable);
        ORT_ENFORCE(state.module_checkpoint_state.named_parameters.emplace(name, std::move(parameter)).second,
                    "Parameter '", name, "' appears twice.");
      }
    };
    add(options->trainable, options->trainable_count, true);
    add(options->frozen, options->frozen_count, false);
    ORT_THROW_IF_ERROR(api::SaveCheckpoint(state, path, false));
  });
}

OrtTrainingArtifactsStatus ListDifferentiableOperators(char** text, char** message) {
  return Guard(message, [&] {
    SharedEnvironment environment;
    RegisterGradientsOnce();
    std::set<std::string> lines;
    for (const auto& schema : ONNX_NAMESPACE::OpSchemaRegistry::get_all_schemas()) {
      if (HasGradient(schema.Name())) lines.insert(schema.domain() + "\t" + schema.Name() + "\n");
    }
    std::string all;
    for (const auto& line : lines) all += line;
    *text = CopyText(all);
    ORT_ENFORCE(*text != nullptr, "Out of memory.");
  });
}

void Release(void* memory) { std::free(memory); }

constexpr OrtTrainingArtifactsApi kApi = {
    ORT_TRAINING_ARTIFACTS_API_VERSION, Release, InferTypes, BuildGradientModel, SaveCheckpoint,
    InlineFunctions, ListDifferentiableOperators,
};

}  // namespace
}  // namespace ort_training_artifacts

extern "C" const OrtTrainingArtifactsApi* OrtTrainingArtifactsGetApi(uint32_t version) {
  return version == ORT_TRAINING_ARTIFACTS_API_VERSION ? &ort_training_artifacts::kApi : nullptr;
}
