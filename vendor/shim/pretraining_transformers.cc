#include "pretraining_transformers.h"

#include <memory>
#include <utility>

#include "core/framework/config_options.h"
#include "core/optimizer/cast_elimination.h"
#include "core/optimizer/common_subexpression_elimination.h"
#include "core/optimizer/concat_slice_elimination.h"
#include "core/optimizer/constant_folding.h"
#include "core/optimizer/constant_sharing.h"
#include "core/optimizer/div_mul_fusion.h"
#include "core/optimizer/dropout_elimination.h"
#include "core/optimizer/expand_elimination.h"
#include "core/optimizer/fast_gelu_fusion.h"
#include "core/optimizer/gather_fusion.h"
#include "core/optimizer/gelu_fusion.h"
#include "core/optimizer/gemm_sum_fusion.h"
#include "core/optimizer/gemm_transpose_fusion.h"
#include "core/optimizer/graph_transformer_mgr.h"
#include "core/optimizer/graph_transformer_utils.h"
#include "core/optimizer/layer_norm_fusion.h"
#include "core/optimizer/noop_elimination.h"
#include "core/optimizer/not_where_fusion.h"
#include "core/optimizer/pre_shape_node_elimination.h"
#include "core/optimizer/propagate_cast_ops.h"
#include "core/optimizer/quick_gelu_fusion.h"
#include "core/optimizer/reshape_fusion.h"
#include "core/optimizer/rule_based_graph_transformer.h"
#include "core/optimizer/unsqueeze_elimination.h"
#include "core/providers/cpu/cpu_execution_provider.h"
#include "orttraining/core/optimizer/batchnorm_replacement.h"
#include "orttraining/core/optimizer/cast_sce_loss_fusion.h"
#include "orttraining/core/optimizer/concat_replacement.h"
#include "orttraining/core/optimizer/gru_replacement.h"
#include "orttraining/core/optimizer/insert_output_rewriter.h"
#include "orttraining/core/optimizer/loss_rewriter.h"
#include "orttraining/core/optimizer/lstm_replacement.h"
#include "orttraining/core/optimizer/qdq_fusion.h"
#include "orttraining/core/optimizer/shape_optimizer.h"

namespace ort_training_artifacts {

using namespace onnxruntime;  // NOLINT

namespace {

template <typename Rule>
Status AddRule(RuleBasedGraphTransformer& rules) {
  return rules.Register(std::make_unique<Rule>());
}

// ONNX Runtime's own list (GeneratePreTrainingTransformers) lives in a file that needs a full training build, and grows
// with the execution providers compiled in, so that a CUDA build would make artifacts that only CUDA runs. This is the
// list of a CPU build with the default configuration; artifacts made from it run on either device. One rule is left out,
// TransposeReplacement (a Transpose that moves no data becomes a Reshape): its source does not compile without a full
// training build, and what it saves is a copy.
Status RegisterLevel1(GraphTransformerManager& manager, const std::unordered_set<std::string>& weights,
                      const IExecutionProvider& cpu) {
  // No execution provider: the graph is not partitioned yet.
  const InlinedHashSet<std::string_view> any = {};
  const InlinedHashSet<std::string> excluded(weights.begin(), weights.end());
  static const ConfigOptions no_options;
  constexpr auto level = TransformerLevel::Level1;

  const auto add = [&manager](std::unique_ptr<GraphTransformer> transformer) {
    return manager.Register(std::move(transformer), TransformerLevel::Level1);
  };
  ORT_RETURN_IF_ERROR(add(std::make_unique<ConstantSharing>(any)));
  // Before common subexpressions are merged: two normalizations of one input would no longer match the pattern.
  ORT_RETURN_IF_ERROR(add(std::make_unique<LayerNormFusion>(any, level, true)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<CommonSubexpressionElimination>(any)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<GeluFusion>(any, level, true)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<SimplifiedLayerNormFusion>(any)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<FastGeluFusion>(any)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<QuickGeluFusion>(any)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<SoftmaxCrossEntropyLossInternalFusion>(any)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<GatherSliceToSplitFusion>(any)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<GatherToSliceFusion>(any)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<QDQFusion>(any)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<ConstantFolding>(cpu, false, no_options, any, excluded)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<ReshapeFusion>(any)));
  // After ReshapeFusion, whose patterns it would break.
  ORT_RETURN_IF_ERROR(add(std::make_unique<ShapeOptimizer>(any)));
  ORT_RETURN_IF_ERROR(add(std::make_unique<ConcatSliceElimination>(any)));
  const GraphTransformerConfiguration::PropagateCastOpsConfiguration cast_config;
  if (cast_config.level >= 0) {
    const InlinedHashSet<std::string_view> cuda = {onnxruntime::kCudaExecutionProvider};
    ORT_RETURN_IF_ERROR(add(std::make_unique<PropagateCastOps>(
        cast_config.strategy, static_cast<size_t>(cast_config.level), cast_config.allow, cuda)));
  }
  ORT_RETURN_IF_ERROR(add(std::make_unique<CastSceLossFusion>(any)));

  auto rules = std::make_unique<RuleBasedGraphTransformer>(
      optimizer_utils::GenerateRuleBasedTransformerName(level), any);
  ORT_RETURN_IF_ERROR(AddRule<InsertMaxPoolOutput>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<BatchNormReplacement>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<UnsqueezeElimination>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<ExpandElimination>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<CastElimination>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<PreShapeNodeElimination>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<NoopElimination>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<DivMulFusion>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<EliminateDropout>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<GemmSumFusion>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<GemmTransposeFusion>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<NotWhereFusion>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<InsertSoftmaxCrossEntropyLossOutput>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<LSTMReplacement>(*rules));
  ORT_RETURN_IF_ERROR(AddRule<GRUReplacement>(*rules));
  // Rules last: some of them wait for constants that the transformers above fold.
  return add(std::move(rules));
}

Status RegisterLevel2(GraphTransformerManager& manager) {
  auto rules = std::make_unique<RuleBasedGraphTransformer>(
      optimizer_utils::GenerateRuleBasedTransformerName(TransformerLevel::Level2),
      InlinedHashSet<std::string_view>{});
  ORT_RETURN_IF_ERROR(AddRule<ConcatReplacement>(*rules));
  return manager.Register(std::move(rules), TransformerLevel::Level2);
}

}  // namespace

Status RunPretrainingTransformers(Graph& graph, const std::unordered_set<std::string>& weights,
                                  const logging::Logger& logger) {
  constexpr unsigned steps = 2;
  GraphTransformerManager manager{steps};
  const CPUExecutionProvider cpu{CPUExecutionProviderInfo()};
  ORT_RETURN_IF_ERROR(RegisterLevel1(manager, weights, cpu));
  ORT_RETURN_IF_ERROR(RegisterLevel2(manager));
  ORT_RETURN_IF_ERROR(manager.ApplyTransformers(graph, TransformerLevel::Level1, logger));
  return manager.ApplyTransformers(graph, TransformerLevel::Level2, logger);
}

}  // namespace ort_training_artifacts
