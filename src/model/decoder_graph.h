// One decoder for every family, as a ggml graph. Attention is a hole in it: the engine fills it
// with its own node over the cache, a test may fill it with ggml's operations.
#ifndef EBB_MODEL_DECODER_GRAPH_H_
#define EBB_MODEL_DECODER_GRAPH_H_

#include <vector>

struct ggml_context;
struct ggml_cgraph;
struct ggml_tensor;

namespace ebb {

struct LoadedModel;

// The most that an AttentionBuilder may add, unless the options say otherwise.
inline constexpr int kMaxAttentionNodesPerLayer = 24;

class AttentionBuilder {
 public:
  virtual ~AttentionBuilder() = default;
  // q: [head_dim, num_q_heads, T], k, v: [head_dim, kv heads of the layer, T], all F32, q and k
  // after RoPE, k_before_rope likewise (null unless DecoderGraphOptions asked for it); any of them
  // may be a strided view with contiguous rows. Returns [head_dim * num_q_heads, T], F32.
  virtual ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, int layer, ggml_tensor* q,
                              ggml_tensor* k, ggml_tensor* v, ggml_tensor* k_before_rope) = 0;
};

struct DecoderGraphOptions {
  int num_tokens = 1;              // T
  int num_outputs = 1;             // tokens whose logits are wanted; 0: none, the last layer stops
                                   // after its attention
  std::vector<int> hidden_layers;  // blocks whose output is kept, [embed_dim, T] each
  bool keys_before_rope = false;
  bool eviction_logits = false;  // of a model that marks rows
  // Or else what they are computed from, by a graph of their own.
  bool logits = true;
  // Products take the tokens one by one, each with the arithmetic of T = 1, so that results do not
  // depend on T.
  bool one_token_at_a_time = false;
  // The tokens' embeddings are looked up elsewhere: they are an input instead of the tokens.
  bool takes_embeddings = false;
  int attention_nodes_per_layer = kMaxAttentionNodesPerLayer;
};

struct DecoderGraph {
  ggml_cgraph* graph = nullptr;
  ggml_tensor* tokens = nullptr;       // I32 [T], input; null where embeddings are
  ggml_tensor* embeddings = nullptr;   // F32 [embed_dim, T], input; null unless asked for
  ggml_tensor* positions = nullptr;    // I32 [T], input
  ggml_tensor* output_rows = nullptr;  // I32 [num_outputs], input: indices into the T tokens;
                                       // null when num_outputs == T
  ggml_tensor* logits = nullptr;       // F32 [vocab_size, num_outputs]; null: none are wanted
  ggml_tensor* outputs = nullptr;    // F32 [embed_dim, num_outputs]; null unless instead of logits
  std::vector<ggml_tensor*> hidden;  // as asked, marked as outputs
  // By layer, where asked for: a number for each of its kv heads and T tokens, marked as outputs:
  // what the eviction logits are made of (c in hyperparameters.h).
  std::vector<ggml_tensor*> eviction_channels;
};

// Tensors are created in `ctx` (no_alloc); inputs and outputs are flagged for the allocator.
[[nodiscard]] DecoderGraph BuildDecoderGraph(const LoadedModel& model, ggml_context* ctx,
                                             const DecoderGraphOptions& options,
                                             AttentionBuilder& attention);
// Upper bounds for the context that holds the graph.
[[nodiscard]] int DecoderGraphMaxNodes(const LoadedModel& model,
                                       int attention_nodes_per_layer = kMaxAttentionNodesPerLayer);

// The logits of some tokens from what a decoder's graph left of them.
struct LogitsGraph {
  ggml_cgraph* graph = nullptr;
  ggml_tensor* outputs = nullptr;  // F32 [embed_dim, T], input
  ggml_tensor* logits = nullptr;   // F32 [vocab_size, T]
};

// Bit for bit those that the decoder's graph has of as many tokens, or of any number with
// one_token_at_a_time.
[[nodiscard]] LogitsGraph BuildLogitsGraph(const LoadedModel& model, ggml_context* ctx,
                                           int num_tokens, bool one_token_at_a_time);
inline constexpr int kLogitsGraphMaxNodes = 8;

}  // namespace ebb

#endif  // EBB_MODEL_DECODER_GRAPH_H_
