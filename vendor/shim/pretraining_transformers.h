#pragma once

#include <string>
#include <unordered_set>

#include "core/common/logging/logging.h"
#include "core/common/status.h"
#include "core/graph/graph.h"

namespace ort_training_artifacts {

// Runs the graph transformations that ONNX Runtime runs before it differentiates a graph, in its order and twice over
// (transformers feed each other). `weights` are never folded into constants.
onnxruntime::common::Status RunPretrainingTransformers(onnxruntime::Graph& graph,
                                                       const std::unordered_set<std::string>& weights,
                                                       const onnxruntime::logging::Logger& logger);

}  // namespace ort_training_artifacts
