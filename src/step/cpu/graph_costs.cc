#include "src/step/cpu/graph_costs.h"

#include <algorithm>

#include "src/base/clock.h"

namespace ebb {
namespace {

// Returns whether the node computes anything; views and the like do not.
bool IsComputed(const ggml_tensor* node) {
  switch (node->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_TRANSPOSE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
      return false;
    default:
      return true;
  }
}

}  // namespace

GraphCosts::GraphCosts(const ggml_cgraph* graph) {
  auto* nodes = const_cast<ggml_cgraph*>(graph);  // ggml_graph_node() lacks const, but only reads
  bool embedded = false;
  const ggml_tensor* norm = nullptr;
  for (int i = 0; i < ggml_graph_n_nodes(nodes); ++i) {
    const ggml_tensor* node = ggml_graph_node(nodes, i);
    if (!IsComputed(node)) continue;
    Part part = Part::kOther;
    if (node->op == GGML_OP_MUL_MAT) part = Part::kMatmul;
    if (node->op == GGML_OP_CUSTOM) part = Part::kAttention;
    if (node->op == GGML_OP_GET_ROWS && !embedded) {
      part = Part::kEmbedding;  // the second get_rows() picks the tokens that get logits
      embedded = true;
    }
    parts_.push_back(part);
    const bool fused = node->op == GGML_OP_MUL && norm != nullptr &&
                       (node->src[0] == norm || node->src[1] == norm);
    if (!fused) parts_fused_.push_back(part);
    norm = node->op == GGML_OP_RMS_NORM ? node : nullptr;
  }
  done_.reserve(parts_.size());
}

void GraphCosts::Begin() {
  done_.clear();
  start_ = SecondsNow();
}

bool GraphCosts::NodeDone(void* costs) {
  static_cast<GraphCosts*>(costs)->done_.push_back(SecondsNow());
  return false;
}

StepCosts GraphCosts::End(double io_wait_seconds) const {
  StepCosts costs;
  const std::vector<Part>& parts = done_.size() == parts_.size() ? parts_ : parts_fused_;
  double last = start_;
  for (size_t i = 0; i < done_.size(); ++i) {
    const double seconds = done_[i] - last;
    last = done_[i];
    switch (done_.size() == parts.size() ? parts[i] : Part::kOther) {
      case Part::kEmbedding:
        costs.embedding_seconds += seconds;
        break;
      case Part::kMatmul:
        costs.matmul_seconds += seconds;
        break;
      case Part::kAttention:
        costs.attention_seconds += seconds;
        break;
      case Part::kOther:
        costs.other_seconds += seconds;
        break;
    }
  }
  costs.other_seconds += SecondsNow() - last;
  costs.attention_seconds = std::max(0.0, costs.attention_seconds - io_wait_seconds);
  return costs;
}

}  // namespace ebb
