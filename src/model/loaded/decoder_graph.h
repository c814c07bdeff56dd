// Builds the graph of a model: libllama builds it, and src/model/library rewrites it. The caller
// provides attention (AttentionBuilder): the engine adds its own node over the cache, a test may
// add ggml's operations.
#ifndef EBB_MODEL_LOADED_DECODER_GRAPH_H_
#define EBB_MODEL_LOADED_DECODER_GRAPH_H_

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

// kMaxAttentionNodesPerLayer is the most nodes that an AttentionBuilder may add per layer, unless
// the options have another number.
inline constexpr int kMaxAttentionNodesPerLayer = 24;

// DecoderGraphOptions::hidden_layers may have these in place of a block. kHeadRows asks for the
// hidden rows that an MTP layer or another head reads together with the next token: those behind
// the last block or, in the graph of a head, its own. kEmbeddedRows asks for the input of the first
// block. REQUIRES: LibraryModel::CheckGivesRows(), which opening a head calls for its target.
inline constexpr int kHeadRows = -2;
inline constexpr int kEmbeddedRows = -1;

// AttentionCall describes one attention. Tensors are F32; all but `sinks` may be strided views with
// contiguous rows.
struct AttentionCall {
  int layer = 0;             // whose rows are read
  ggml_tensor* q = nullptr;  // [head_dim, num_q_heads, T], after RoPE
  // k and v are the layer's new rows, [head_dim, num_kv_heads, T], k after RoPE. Null: an earlier
  // attention has stored this layer's rows, or the model has no cache of its own.
  ggml_tensor *k = nullptr, *v = nullptr;
  int num_kv_heads = 0;                  // of the layer
  ggml_tensor* k_before_rope = nullptr;  // as k; null unless DecoderGraphOptions asked for it
  ggml_tensor* sinks = nullptr;          // [num_q_heads]: a logit without a row; null: none
};

class AttentionBuilder {
 public:
  virtual ~AttentionBuilder() = default;
  // Adds the nodes of an attention to `graph` and returns its output, [head_dim * num_q_heads, T],
  // F32. Called in the order of ModelShape::layers_read.
  virtual ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) = 0;
  // Adds the nodes that store the rows of a layer, for DecoderGraphOptions::injects. The call has
  // no queries.
  virtual void Store(ggml_context* /*ctx*/, ggml_cgraph* /*graph*/, const AttentionCall& /*call*/) {
  }
};

struct DecoderGraphOptions {
  int num_tokens = 1;  // T
  // Counts the sequences of the tokens, for models with recurrent state: the tokens are those of
  // one sequence after the other, equally many of each. Graphs of other models do not depend on it.
  int num_sequences = 1;
  int num_outputs = 1;             // tokens whose logits are wanted; 0: none, the last layer stops
                                   // after its attention
  std::vector<int> hidden_layers;  // blocks whose output is kept, [embed_dim, T] each
  bool keys_before_rope = false;
  bool eviction_logits = false;  // of a model that marks rows
  // Selects whether the graph computes logits; if not, it outputs the input of BuildLogitsGraph().
  bool logits = true;
  // Multiplies token by token, each with the arithmetic of T = 1, so that results do not depend on
  // T.
  bool one_token_at_a_time = false;
  // Keeps the recurrent state after each of the tokens: the graph has one sequence, whose memory is
  // that of RecurrentState::BeginAhead(). REQUIRES: hparams.keeps_states.
  bool keeps_states = false;
  // Builds, of a DFlash head, a graph that reads features instead of tokens, and only stores the
  // rows of its layers.
  bool injects = false;
  // Makes the rows that are looked up by token (embeddings) inputs, which the host sets: for a
  // device.
  bool takes_embeddings = false;
  int attention_nodes_per_layer = kMaxAttentionNodesPerLayer;

  [[nodiscard]] bool operator==(const DecoderGraphOptions&) const = default;
};

// GraphInputs sets the inputs of a graph whose tensors have memory.
class GraphInputs {
 public:
  virtual ~GraphInputs() = default;
  // Sets tokens, their RoPE positions and the rows whose outputs are wanted: at most as many tokens
  // and output rows as the graph has. The remaining inputs become zeros.
  virtual void Set(std::span<const Token> tokens, std::span<const Position> positions,
                   std::span<const int32_t> output_rows) = 0;
  // Sets the hidden rows that the graph of a head reads at the next Set(), [embed_dim] for each
  // token: the token's own is that of the token before it. With DecoderGraphOptions::injects, sets
  // the features of each token.
  virtual void SetHiddenRows(std::span<const float> /*rows*/) {}
  // Sets the memory of the recurrent states, in the order of the sequences; the graph reads and
  // writes it. For several sequences, `batch` must have room for all of their states.
  virtual void SetStates(std::span<std::byte* const> /*states*/, std::span<std::byte> /*batch*/) {}
  // Sets the states of a graph on a device: copies them to the beginning of `buffer`, which has at
  // least StateBufferBytes() bytes.
  virtual void SetStates(std::span<std::byte* const> /*states*/, ggml_backend_buffer* /*buffer*/) {}
  // Returns the bytes of a device's buffer that holds the states of `num_sequences` sequences.
  [[nodiscard]] virtual size_t StateBufferBytes(int /*num_sequences*/, size_t /*alignment*/) const {
    return 0;
  }
  // Copies states back to their own memory after the graph has run, if the graph worked on copies.
  virtual void TakeStates() {}
};

struct DecoderGraph {
  ggml_cgraph* graph = nullptr;
  ggml_tensor* logits = nullptr;  // F32 [vocab_size, num_outputs]; null: none are wanted
  // outputs replaces logits: F32 [embed_dim, num_outputs]; of a head, a row for each token.
  ggml_tensor* outputs = nullptr;
  std::vector<ggml_tensor*> hidden;  // as asked, marked as outputs
  // Holds, by layer, the inputs of the eviction logits (c in eviction_marks.h), if asked for: a
  // number for each of the layer's kv heads and T tokens, marked as an output.
  std::vector<ggml_tensor*> eviction_channels;
  std::unique_ptr<GraphInputs> inputs;
  // Holds tensors of the graph in addition to the caller's context.
  ggml_context* other_context = nullptr;
};

// Builds the graph of a step. Tensors are created in `ctx` (no_alloc); inputs and outputs are
// flagged for ggml's allocator. Errors: those of libllama's builders.
[[nodiscard]] Result<DecoderGraph> BuildDecoderGraph(const LoadedModel& model, ggml_context* ctx,
                                                     const DecoderGraphOptions& options,
                                                     AttentionBuilder& attention);
// Returns an upper bound of the graph's nodes, for the size of its context.
[[nodiscard]] int DecoderGraphMaxNodes(const LoadedModel& model,
                                       int attention_nodes_per_layer = kMaxAttentionNodesPerLayer);

// RowGraph computes a row for each of some tokens from another row.
struct RowGraph {
  ggml_cgraph* graph = nullptr;
  ggml_tensor* input = nullptr;           // F32 [floats, T]
  ggml_tensor* output = nullptr;          // F32 [floats, T]
  ggml_context* other_context = nullptr;  // as in DecoderGraph
  std::shared_ptr<void> owner;            // of other_context
};

// Builds a graph of logits from the outputs of a decoder's graph, [OutputFloats()] for each token.
// Its logits are bit for bit those of a decoder's graph with as many tokens; with
// one_token_at_a_time, with any number.
[[nodiscard]] Result<RowGraph> BuildLogitsGraph(const LoadedModel& model, ggml_context* ctx,
                                                int num_tokens, bool one_token_at_a_time);
// Builds a graph of the rows that a head reads, from the features of tokens, which are the outputs
// of Hyperparameters::target_blocks one behind the other. REQUIRES: the head reads features.
[[nodiscard]] Result<RowGraph> BuildFeatureGraph(const LoadedModel& head, ggml_context* ctx,
                                                 int num_tokens);
inline constexpr int kRowGraphMaxNodes = 64;
// Returns how many floats a decoder's graph outputs per token for BuildLogitsGraph().
[[nodiscard]] int OutputFloats(const LoadedModel& model);

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_DECODER_GRAPH_H_
