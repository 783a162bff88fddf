#include "gradient_check.h"

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "core/framework/kernel_registry.h"
#include "core/framework/kernel_type_str_resolver.h"
#include "core/graph/constants.h"
#include "core/providers/cpu/cpu_execution_provider.h"
#include "orttraining/core/framework/gradient_graph_builder.h"
#include "orttraining/core/graph/gradient_builder_registry.h"

namespace ort_training_artifacts {

using namespace onnxruntime;  // NOLINT
using training::GradientBuilderRegistry;

namespace {

bool IsDifferentiableType(const NodeArg& arg) {
  const auto* type = arg.TypeAsProto();
  if (type == nullptr || type->value_case() != ONNX_NAMESPACE::TypeProto::kTensorType) return false;
  switch (type->tensor_type().elem_type()) {
    case ONNX_NAMESPACE::TensorProto_DataType_FLOAT:
    case ONNX_NAMESPACE::TensorProto_DataType_FLOAT16:
    case ONNX_NAMESPACE::TensorProto_DataType_DOUBLE:
    case ONNX_NAMESPACE::TensorProto_DataType_BFLOAT16:
      return true;
    default:
      return false;
  }
}

// The rules of GradientGraphBuilder: no gradient flows through these inputs.
bool StopsGradient(const Node& node, size_t input) {
  const auto& stops = training::STOP_GRADIENT_EDGES;
  const auto found = stops.find(node.OpType());
  return found != stops.end() && found->second.count(input) != 0;
}

std::string Line(const char* kind, const Node& node, const std::string& parameter) {
  // An unnamed node goes by its first output.
  const auto& outputs = node.OutputDefs();
  const std::string& name = node.Name().empty() && !outputs.empty() ? outputs[0]->Name() : node.Name();
  std::ostringstream line;
  line << kind << '\t' << node.Domain() << '\t' << node.OpType() << '\t' << name << '\t' << parameter << '\n';
  return line.str();
}

}  // namespace

void RegisterGradientsOnce() {
  static std::once_flag once;
  std::call_once(once, [] { GradientBuilderRegistry::GetInstance().RegisterGradientBuilders(); });
}

bool HasGradient(const std::string& op_type) { return GradientBuilderRegistry::GetInstance().Contains(op_type); }

std::string NodesWithoutGradient(const Graph& graph, const std::unordered_set<std::string>& parameters,
                                 const std::string& loss) {
  // Forward: which values depend on which parameter (one of them is enough to name). Nodes in topological order.
  std::map<std::string, std::string> behind;
  for (const auto& name : parameters) behind.emplace(name, name);
  GraphViewer viewer(graph);
  for (NodeIndex index : viewer.GetNodesInTopologicalOrder()) {
    const Node& node = *graph.GetNode(index);
    std::string parameter;
    for (size_t i = 0; i < node.InputDefs().size(); ++i) {
      const NodeArg& arg = *node.InputDefs()[i];
      const auto found = behind.find(arg.Name());
      if (found == behind.end() || StopsGradient(node, i) || !IsDifferentiableType(arg)) continue;
      if (parameter.empty() || found->second < parameter) parameter = found->second;
    }
    if (parameter.empty()) continue;
    for (const NodeArg* output : node.OutputDefs()) {
      if (output->Exists() && IsDifferentiableType(*output)) behind.emplace(output->Name(), parameter);
    }
  }

  // Backward: from the loss along inputs that carry a gradient.
  std::string lines;
  std::set<NodeIndex> seen;
  std::deque<std::string> values{loss};
  std::map<NodeIndex, std::string> found_lines;
  while (!values.empty()) {
    const std::string value = values.front();
    values.pop_front();
    const Node* node = graph.GetProducerNode(value);
    if (node == nullptr || behind.count(value) == 0 || !seen.insert(node->Index()).second) continue;
    if (!HasGradient(node->OpType())) found_lines.emplace(node->Index(), Line("gradient", *node, behind.at(value)));
    for (size_t i = 0; i < node->InputDefs().size(); ++i) {
      const NodeArg& arg = *node->InputDefs()[i];
      if (behind.count(arg.Name()) != 0 && !StopsGradient(*node, i)) values.push_back(arg.Name());
    }
  }
  for (const auto& entry : found_lines) lines += entry.second;
  return lines;
}

std::string NodesWithoutKernel(const Graph& graph, const logging::Logger& logger) {
  CPUExecutionProvider cpu{CPUExecutionProviderInfo()};
  const auto registry = cpu.GetKernelRegistry();
  const OpSchemaKernelTypeStrResolver resolver;
  std::string lines;
  GraphViewer viewer(graph);
  for (NodeIndex index : viewer.GetNodesInTopologicalOrder()) {
    const Node& node = *graph.GetNode(index);
    // A node with a function body becomes the nodes of that body when a session is made.
    if (node.CanBeInlined()) continue;
    const KernelCreateInfo* info = nullptr;
    if (!registry->TryFindKernel(node, kCpuExecutionProvider, resolver, logger, &info).IsOK()) {
      lines += Line("kernel", node, "");
    }
  }
  return lines;
}

}  // namespace ort_training_artifacts
