// The graph of a model, which libllama builds and src/model/library rewrites. Attention is a hole
// in it: the engine fills it with its own node over the cache, a test may fill it with ggml's
// operations.
#ifndef EBB_MODEL_DECODER_GRAPH_H_
#define EBB_MODEL_DECODER_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

struct ggml_backend_buffer;
struct ggml_context;
struct ggml_cgraph;
struct ggml_tensor;

namespace ebb {

struct LoadedModel;

// The most that an AttentionBuilder may add, unless the options say otherwise.
inline constexpr int kMaxAttentionNodesPerLayer = 24;

// One attention. Tensors are F32; apart from `sinks` they may be strided views with contiguous
// rows.
struct AttentionCall {
  int layer = 0;             // whose rows are read
  ggml_tensor* q = nullptr;  // [head_dim, num_q_heads, T], after RoPE
  // [head_dim, kv heads of the layer, T], k after RoPE. Null: an attention before has stored the
  // layer's rows.
  ggml_tensor *k = nullptr, *v = nullptr;
  ggml_tensor* k_before_rope = nullptr;  // as k; null unless DecoderGraphOptions asked for it
  ggml_tensor* sinks = nullptr;          // [num_q_heads]: a logit without a row; null: none
};

class AttentionBuilder {
 public:
  virtual ~AttentionBuilder() = default;
  // Returns [head_dim * num_q_heads, T], F32. Called in the order of ModelShape::layers_read.
  virtual ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) = 0;
};

struct DecoderGraphOptions {
  int num_tokens = 1;  // T
  // For models with recurrent state: the tokens are those of so many sequences, one after the
  // other, as many of each. Other graphs do not depend on it.
  int num_sequences = 1;
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
  // For a device: rows of tables that are looked up by token are inputs, which the host looks up.
  bool takes_embeddings = false;
  int attention_nodes_per_layer = kMaxAttentionNodesPerLayer;

  [[nodiscard]] bool operator==(const DecoderGraphOptions&) const = default;
};

// Sets the inputs of a graph whose tensors have memory.
class GraphInputs {
 public:
  virtual ~GraphInputs() = default;
  // At most as many tokens and output rows as the graph has; the rest of the inputs is zeros.
  // `positions` are those of RoPE.
  virtual void Set(std::span<const Token> tokens, std::span<const Position> positions,
                   std::span<const int32_t> output_rows) = 0;
  // The memory of the recurrent states, in the order of the sequences, which the graph reads and
  // writes. `batch` has room for all of them where there are several.
  virtual void SetStates(std::span<std::byte* const> /*states*/, std::span<std::byte> /*batch*/) {}
  // Sets the states of a graph on a device: copies them to the beginning of `buffer`, of at least
  // StateBufferBytes().
  virtual void SetStates(std::span<std::byte* const> /*states*/, ggml_backend_buffer* /*buffer*/) {}
  // Bytes of a device's buffer for the states of so many sequences.
  [[nodiscard]] virtual size_t StateBufferBytes(int /*num_sequences*/, size_t /*alignment*/) const {
    return 0;
  }
  // Once the graph has run: brings states back to their own memory, where the graph had copies.
  virtual void TakeStates() {}
};

struct DecoderGraph {
  ggml_cgraph* graph = nullptr;
  ggml_tensor* logits = nullptr;     // F32 [vocab_size, num_outputs]; null: none are wanted
  ggml_tensor* outputs = nullptr;    // F32 [embed_dim, num_outputs]; null unless instead of logits
  std::vector<ggml_tensor*> hidden;  // as asked, marked as outputs
  // By layer, where asked for: a number for each of its kv heads and T tokens, marked as outputs:
  // what the eviction logits are made of (c in eviction_marks.h).
  std::vector<ggml_tensor*> eviction_channels;
  std::unique_ptr<GraphInputs> inputs;
  // A second context that holds tensors of the graph.
  ggml_context* other_context = nullptr;
};

// Tensors are created in `ctx` (no_alloc); inputs and outputs are flagged for the allocator.
// Errors: those of libllama's builders.
[[nodiscard]] Result<DecoderGraph> BuildDecoderGraph(const LoadedModel& model, ggml_context* ctx,
                                                     const DecoderGraphOptions& options,
                                                     AttentionBuilder& attention);
// Upper bounds for the context that holds the graph.
[[nodiscard]] int DecoderGraphMaxNodes(const LoadedModel& model,
                                       int attention_nodes_per_layer = kMaxAttentionNodesPerLayer);

// The logits of some tokens from what a decoder's graph left of them.
struct LogitsGraph {
  ggml_cgraph* graph = nullptr;
  ggml_tensor* outputs = nullptr;         // F32 [OutputFloats(), T], input
  ggml_tensor* logits = nullptr;          // F32 [vocab_size, T]
  ggml_context* other_context = nullptr;  // as in DecoderGraph
  std::shared_ptr<void> owner;            // of other_context
};

// Bit for bit those that the decoder's graph has of as many tokens, or of any number with
// one_token_at_a_time.
[[nodiscard]] Result<LogitsGraph> BuildLogitsGraph(const LoadedModel& model, ggml_context* ctx,
                                                   int num_tokens, bool one_token_at_a_time);
inline constexpr int kLogitsGraphMaxNodes = 64;
// The floats that a graph leaves of one token for BuildLogitsGraph().
[[nodiscard]] int OutputFloats(const LoadedModel& model);

}  // namespace ebb

#endif  // EBB_MODEL_DECODER_GRAPH_H_
