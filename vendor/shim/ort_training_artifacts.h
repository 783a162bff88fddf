// C ABI for making training artifacts: the calls that ONNX Runtime's Python training package made into C++.
//
// One exported function, OrtTrainingArtifactsGetApi, returns a table of functions. All strings are UTF-8 and end in
// NUL. Every call may be made from several threads at once. No C++ exception leaves a call: a failure is a status and
// a message. Whatever a call hands out (models, text, messages) is given back with Release.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ORT_TRAINING_ARTIFACTS_API_VERSION 1

typedef enum OrtTrainingArtifactsStatus {
  ORT_TRAINING_ARTIFACTS_OK = 0,
  // The message says what went wrong, in ONNX Runtime's words.
  ORT_TRAINING_ARTIFACTS_FAIL = 1,
  // Operators on the way from a parameter to the loss have no gradient, or the gradient has no CPU kernel. The message
  // has a line for each: kind ("gradient" or "kernel") TAB domain TAB operator TAB node name TAB parameter.
  ORT_TRAINING_ARTIFACTS_NOT_DIFFERENTIABLE = 2,
} OrtTrainingArtifactsStatus;

// A parameter's value. `data` is borrowed for the call, dense, in row-major order and of the machine's byte order.
typedef struct OrtTrainingArtifactsTensor {
  const char* name;
  int32_t data_type;  // ONNX TensorProto.DataType
  const int64_t* dims;
  size_t dim_count;
  const void* data;
  size_t byte_count;
} OrtTrainingArtifactsTensor;

typedef struct OrtTrainingArtifactsGradientOptions {
  const void* model;  // serialized ModelProto; its parameters are graph inputs, not initializers
  size_t model_size;
  const char* loss_name;  // a scalar (or one-element) float output of the graph
  const char* const* parameter_names;  // graph inputs that need a gradient
  size_t parameter_count;
  int32_t optimize;       // not 0: run ONNX Runtime's pre-training graph transformations first
  int32_t check_kernels;  // not 0: fail when a node of the gradient graph has no CPU kernel
} OrtTrainingArtifactsGradientOptions;

typedef struct OrtTrainingArtifactsCheckpointOptions {
  const OrtTrainingArtifactsTensor* trainable;
  size_t trainable_count;
  const OrtTrainingArtifactsTensor* frozen;
  size_t frozen_count;
  const char* path;
  int32_t nominal;        // not 0: names and types only
  int32_t external_data;  // not 0: values go to <path>.data, for more than 2 GB
} OrtTrainingArtifactsCheckpointOptions;

typedef struct OrtTrainingArtifactsApi {
  uint32_t version;

  // Gives back memory that another call handed out. NULL is allowed.
  void (*Release)(void* memory);

  // The model with the type and shape of every value that ONNX Runtime can infer, in graph.value_info.
  OrtTrainingArtifactsStatus (*InferTypes)(const void* model, size_t model_size, void** result, size_t* result_size,
                                           char** message);

  // The model with its gradient graph: an output <name>_grad for each parameter, after the model's own outputs.
  OrtTrainingArtifactsStatus (*BuildGradientModel)(const OrtTrainingArtifactsGradientOptions* options, void** result,
                                                   size_t* result_size, char** message);

  // Writes a checkpoint file with ONNX Runtime's own writer.
  OrtTrainingArtifactsStatus (*SaveCheckpoint)(const OrtTrainingArtifactsCheckpointOptions* options, char** message);

  // The model with calls of its own functions replaced by their nodes. Nothing is checked: the graph may lack the
  // initializers that it names.
  OrtTrainingArtifactsStatus (*InlineFunctions)(const void* model, size_t model_size, void** result,
                                                size_t* result_size, char** message);

  // Operators with a registered gradient, one a line: domain TAB operator.
  OrtTrainingArtifactsStatus (*ListDifferentiableOperators)(char** text, char** message);
} OrtTrainingArtifactsApi;

// The table for `version`, or NULL when this library does not have that version.
__attribute__((visibility("default"))) const OrtTrainingArtifactsApi* OrtTrainingArtifactsGetApi(uint32_t version);

#ifdef __cplusplus
}
#endif
