#pragma once

#include <string>
#include <unordered_set>

#include "core/common/logging/logging.h"
#include "core/graph/graph.h"

namespace ort_training_artifacts {

// Registers ONNX Runtime's gradient builders; they refuse to be registered twice in a process.
void RegisterGradientsOnce();

bool HasGradient(const std::string& op_type);

// Nodes between `parameters` and `loss` whose operator has no gradient, one a line (see the header); "" when all have.
std::string NodesWithoutGradient(const onnxruntime::Graph& graph, const std::unordered_set<std::string>& parameters,
                                 const std::string& loss);

// Nodes of the graph that ONNX Runtime's CPU execution provider has no kernel for, one a line; "" when it has all.
std::string NodesWithoutKernel(const onnxruntime::Graph& graph, const onnxruntime::logging::Logger& logger);

}  // namespace ort_training_artifacts
