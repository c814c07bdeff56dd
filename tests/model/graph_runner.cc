#include "tests/model/graph_runner.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "src/model/loaded/decoder_graph.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {
namespace {

class NativeAttention : public AttentionBuilder {
 public:
  explicit NativeAttention(const Model& model)
      : shape_(model.shape()), scale_(model.attention_scale()) {}

  ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) override {
    ggml_tensor *const q = call.q, *const k = call.k, *const v = call.v;
    const int64_t num_tokens = q->ne[2];
    ggml_tensor*& mask = masks_[shape_.Window(call.layer)];
    if (mask == nullptr) {
      mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, num_tokens, num_tokens);
      ggml_set_input(mask);
    }
    keys_.push_back(Keep(ctx, graph, k));
    queries_.push_back(Keep(ctx, graph, q));
    keys_before_rope_.push_back(Keep(ctx, graph, call.k_before_rope));
    ggml_tensor* scores = ggml_mul_mat(ctx, ggml_cont(ctx, ggml_permute(ctx, k, 0, 2, 1, 3)),
                                       ggml_permute(ctx, q, 0, 2, 1, 3));  // [T, T, q heads]
    scores = ggml_soft_max_ext(ctx, scores, mask, scale_, 0);
    ggml_tensor* values = ggml_cont(ctx, ggml_permute(ctx, v, 1, 2, 0, 3));  // [T, head_dim, heads]
    ggml_tensor* attended = ggml_permute(ctx, ggml_mul_mat(ctx, values, scores), 0, 2, 1, 3);
    return ggml_cont_2d(ctx, attended, int64_t{shape_.head_dim} * shape_.num_q_heads, num_tokens);
  }

  void SetMasks() const {
    for (const auto& [window, tensor] : masks_) {
      const int64_t n = tensor->ne[0];
      std::vector<float> mask(n * n, 0);
      for (int64_t query = 0; query < n; ++query) {
        for (int64_t key = 0; key < n; ++key) {
          const bool gone = window > 0 && query - key >= window;
          if (key > query || gone) mask[query * n + key] = -INFINITY;
        }
      }
      ggml_backend_tensor_set(tensor, mask.data(), 0, mask.size() * sizeof(float));
    }
  }

  [[nodiscard]] const std::vector<ggml_tensor*>& keys() const { return keys_; }
  [[nodiscard]] const std::vector<ggml_tensor*>& queries() const { return queries_; }
  [[nodiscard]] const std::vector<ggml_tensor*>& keys_before_rope() const {
    return keys_before_rope_;
  }

 private:
  static ggml_tensor* Keep(ggml_context* ctx, ggml_cgraph* graph, ggml_tensor* x) {
    ggml_tensor* copy = ggml_cont(ctx, x);
    ggml_set_output(copy);
    ggml_build_forward_expand(graph, copy);
    return copy;
  }

  const ModelShape& shape_;
  const float scale_;
  std::map<int, ggml_tensor*> masks_;  // by window: [keys, queries]
  std::vector<ggml_tensor*> keys_;
  std::vector<ggml_tensor*> keys_before_rope_;
  std::vector<ggml_tensor*> queries_;
};

struct Free {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
  void operator()(ggml_gallocr* allocator) const { ggml_gallocr_free(allocator); }
};

std::vector<float> Read(const ggml_tensor* tensor) {
  std::vector<float> values(ggml_nelements(tensor));
  ggml_backend_tensor_get(tensor, values.data(), 0, values.size() * sizeof(float));
  return values;
}

}  // namespace

GraphRun RunGraph(const Model& model, std::span<const Token> tokens,
                  const GraphRunOptions& options) {
  const LoadedModel& loaded = model.loaded();
  const auto num_tokens = static_cast<int>(tokens.size());
  DecoderGraphOptions graph_options;
  graph_options.num_tokens = num_tokens;
  graph_options.num_outputs =
      options.output_rows.empty() ? num_tokens : static_cast<int>(options.output_rows.size());
  if (options.outputs == GraphRunOptions::Outputs::kNone) graph_options.num_outputs = 0;
  graph_options.hidden_layers = options.hidden_layers;
  graph_options.keys_before_rope = true;
  graph_options.eviction_logits = options.eviction_logits;
  graph_options.one_token_at_a_time = options.one_token_at_a_time;
  const int max_nodes = DecoderGraphMaxNodes(loaded);
  const std::unique_ptr<ggml_context, Free> ctx(
      ggml_init({.mem_size = 2 * max_nodes * ggml_tensor_overhead() +
                             ggml_graph_overhead_custom(max_nodes, false),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
  NativeAttention attention(model);
  DecoderGraph graph = *BuildDecoderGraph(loaded, ctx.get(), graph_options, attention);

  const std::unique_ptr<ggml_backend, Free> backend(ggml_backend_cpu_init());
  ggml_backend_cpu_set_n_threads(backend.get(), 1);
  const std::unique_ptr<ggml_gallocr, Free> allocator(
      ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend.get())));
  ggml_gallocr_alloc_graph(allocator.get(), graph.graph);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  graph.inputs->Set(tokens, positions, options.output_rows);
  attention.SetMasks();
  ggml_backend_graph_compute(backend.get(), graph.graph);

  GraphRun run;
  if (graph.logits != nullptr) run.logits = Read(graph.logits);
  for (const ggml_tensor* hidden : graph.hidden) run.hidden.push_back(Read(hidden));
  for (const ggml_tensor* keys : attention.keys()) run.keys.push_back(Read(keys));
  for (const ggml_tensor* queries : attention.queries()) run.queries.push_back(Read(queries));
  for (const ggml_tensor* channels : graph.eviction_channels) {
    run.eviction_channels.push_back(Read(channels));
  }
  for (const ggml_tensor* keys : attention.keys_before_rope()) {
    run.keys_before_rope.push_back(Read(keys));
  }
  for (int i = 0; i < ggml_graph_n_nodes(graph.graph); ++i) {
    const ggml_op op = ggml_graph_node(graph.graph, i)->op;
    run.num_nodes +=
        op != GGML_OP_NONE && op != GGML_OP_VIEW && op != GGML_OP_RESHAPE && op != GGML_OP_PERMUTE;
  }
  return run;
}

}  // namespace ebb
