#include <algorithm>

#include "ebb/fit.h"
#include "src/model/graph_memory.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {
namespace {

// Plans the graphs of a step of one token and of a wide step, and draws a line through their sizes.
// Steps between them take no more than the line says, since ggml's plan is the largest of several
// sums that grow with the tokens.
Result<FitGraph> PlanGraph(const LoadedModel& model) {
  constexpr int kTokens = 512;
  EBB_ASSIGN_OR_RETURN(const GraphMemory one, PlanGraphMemory(model, 1));
  EBB_ASSIGN_OR_RETURN(const GraphMemory many, PlanGraphMemory(model, kTokens));
  const uint64_t more = many.tensor_bytes - std::min(many.tensor_bytes, one.tensor_bytes);
  return FitGraph{.bytes = one.tensor_bytes,
                  .bytes_per_token = (more + kTokens - 2) / (kTokens - 1),
                  .converted_bytes_per_token = (many.work_bytes + kTokens - 1) / kTokens};
}

}  // namespace

Result<FitModel> FitModelOf(const Model& model) {
  const LoadedModel& loaded = model.loaded();
  FitModel fit = {.shape = model.shape(),
                  .feed_forward_dim = loaded.hparams.feed_forward_dim,
                  .weight_bytes = model.weight_bytes(),
                  .expert_bytes = loaded.expert_bytes,
                  .expert_share = loaded.expert_share,
                  .lookup_bytes = loaded.lookup_bytes,
                  .state_bytes = loaded.hparams.state_bytes};
  EBB_ASSIGN_OR_RETURN(fit.graph, PlanGraph(loaded));
  return fit;
}

}  // namespace ebb
