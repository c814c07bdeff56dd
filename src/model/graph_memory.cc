#include "src/model/graph_memory.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <array>
#include <memory>

#include "src/base/ggml_deleter.h"
#include "src/model/loaded/decoder_graph.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {
namespace {

// PlannedAttention represents attention by one node, which is planned but never run.
class PlannedAttention final : public AttentionBuilder {
 public:
  ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) override {
    std::array<ggml_tensor*, 3> sources = {call.q, call.k, call.v};
    ggml_tensor* out =
        ggml_custom_4d(ctx, GGML_TYPE_F32, call.q->ne[0] * call.q->ne[1], call.q->ne[2], 1, 1,
                       sources.data(), call.k == nullptr ? 1 : 3, NeverRun, 1, nullptr);
    ggml_build_forward_expand(graph, out);
    return out;
  }

 private:
  static void NeverRun(ggml_tensor*, int, int, void*) {}
};

}  // namespace

Result<GraphMemory> PlanGraphMemory(const LoadedModel& model, int num_tokens) {
  const size_t nodes = DecoderGraphMaxNodes(model);
  const std::unique_ptr<ggml_context, GgmlDeleter> ctx(ggml_init(
      {.mem_size = 2 * nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false),
       .mem_buffer = nullptr,
       .no_alloc = true}));
  const std::unique_ptr<ggml_gallocr, GgmlDeleter> buffers(
      ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
  if (ctx == nullptr || buffers == nullptr) return OutOfMemory("no memory for a graph");
  PlannedAttention attention;
  // A head reads texts without logits.
  const bool has_logits = num_tokens == 1 || !IsHead(model.hparams);
  EBB_ASSIGN_OR_RETURN(const DecoderGraph graph,
                       BuildDecoderGraph(model, ctx.get(),
                                         {.num_tokens = num_tokens,
                                          .logits = has_logits,
                                          .injects = !has_logits && model.hparams.block_tokens > 0},
                                         attention));
  size_t tensor_bytes = 0;
  ggml_gallocr_reserve_n_size(buffers.get(), graph.graph, nullptr, nullptr, &tensor_bytes);
  const ggml_cplan plan = ggml_graph_plan(graph.graph, 1, nullptr);
  return GraphMemory{.tensor_bytes = tensor_bytes, .work_bytes = plan.work_size};
}

}  // namespace ebb
