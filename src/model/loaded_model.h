// A model in memory, made from a GGUF file. Seen by src/model and by the engine's graph code only.
#ifndef EBB_MODEL_LOADED_MODEL_H_
#define EBB_MODEL_LOADED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ebb/model.h"
#include "ebb/status.h"
#include "ebb/types.h"

struct ggml_context;
struct ggml_tensor;
struct llama_model;

namespace ebb {

struct ModelFamily;  // src/model/family.h: one row of the table of families

// The source of a model's eviction logits: see hyperparameters.h.
enum class EvictionLayout { kNone, kQueryLastChannel, kAdapter };

struct Hyperparameters {
  int num_layers = 0;
  int embed_dim = 0;
  int num_q_heads = 0;
  std::vector<int> kv_heads;     // [layers]
  std::vector<int> windows;      // [layers], in tokens, 0: none; empty: none in any
  std::vector<int> layers_read;  // ModelShape's
  int head_dim = 0;
  bool has_values = true;  // ModelShape's
  int feed_forward_dim = 0;
  int vocab_size = 0;
  int trained_context = 0;
  float norm_epsilon = 0;
  float attention_scale = 0;     // 1 / sqrt(head_dim) unless the file says otherwise
  float attention_soft_cap = 0;  // AttentionShape's
  // RoPE, as ggml_rope_ext takes it.
  int rope_dims = 0;
  int rope_mode = 0;
  float rope_base = 0;
  float rope_frequency_scale = 1;
  float yarn_ext_factor = 0;
  float yarn_attn_factor = 1;
  float yarn_beta_fast = 32;
  float yarn_beta_slow = 1;
  int rope_original_context = 0;
  bool has_short_rope_factors = false;  // of LongRoPE, for texts up to the original context
  float rope_base_in_windows = 0;       // of layers with a window, whose frequencies are not scaled
  size_t state_bytes = 0;  // of the recurrent state of a sequence; 0: the model has none
  // Features that the graph of the model allows: RoPE that the engine can apply to keys again, for
  // other positions; keys before RoPE and outputs of blocks, which some policies watch.
  bool can_rotate_keys = true;
  bool has_keys_before_rope = true;
  bool has_hidden_states = true;
  // For a model that marks rows: see hyperparameters.h.
  EvictionLayout eviction_layout = EvictionLayout::kNone;
  int eviction_window = 0;        // tokens; 0: it marks none
  int eviction_shift = 1;         // tokens; at most the window
  float trained_compression = 0;  // 0: not said
  float eviction_scale = 1;
  float eviction_offset = 0;
};

// Null where the file has none. Matrices that read the same input are held as one wherever that
// needs no large copy, since each product of its own costs a node and two barriers: rows of q,
// then k, then v; rows of gate, then up.
struct LayerWeights {
  ggml_tensor* attn_norm = nullptr;  // [embed_dim]
  // The widest of these that the file allows: all in one, or q and k in one, or each of its own.
  ggml_tensor* wqkv = nullptr;  // [embed_dim, (q heads + 2 kv heads) * head_dim]
  ggml_tensor* wqk = nullptr;   // [embed_dim, (q heads + kv heads) * head_dim]
  ggml_tensor *wq = nullptr, *wk = nullptr, *wv = nullptr;
  ggml_tensor* bqkv = nullptr;     // [(q heads + 2 kv heads) * head_dim]
  ggml_tensor* qk_norm = nullptr;  // [head_dim, q heads + kv heads]: one copy per head
  // [head_dim, q heads + kv heads]: 0 for the channels that carry eviction logits, 1 for the
  // others. Null where no channel does. Layers of as many kv heads have one in common.
  ggml_tensor* kept_channels = nullptr;
  ggml_tensor* rope_factors = nullptr;       // [head_dim / 2]
  ggml_tensor* sinks = nullptr;              // [num_q_heads]: AttentionCall's
  ggml_tensor *wo = nullptr, *bo = nullptr;  // [head_dim * q heads, embed_dim], [embed_dim]
  ggml_tensor* post_attn_norm = nullptr;     // [embed_dim]
  ggml_tensor* ffn_norm = nullptr;           // [embed_dim]
  ggml_tensor* ffn_gate_up = nullptr;        // [embed_dim, 2 * feed_forward_dim]; else:
  ggml_tensor *ffn_gate = nullptr, *ffn_up = nullptr;  // [embed_dim, feed_forward_dim]
  ggml_tensor* ffn_down = nullptr;                     // [feed_forward_dim, embed_dim]
  ggml_tensor* post_ffn_norm = nullptr;                // [embed_dim]
  // What EvictionLayout::kAdapter reads.
  ggml_tensor* alpha_norm = nullptr;  // [embed_dim]
  ggml_tensor* alpha = nullptr;       // [embed_dim, kv heads]
};

// All of them.
inline constexpr ggml_tensor* LayerWeights::*kLayerWeights[] = {
    &LayerWeights::attn_norm,
    &LayerWeights::wqkv,
    &LayerWeights::wqk,
    &LayerWeights::wq,
    &LayerWeights::wk,
    &LayerWeights::wv,
    &LayerWeights::bqkv,
    &LayerWeights::qk_norm,
    &LayerWeights::kept_channels,
    &LayerWeights::rope_factors,
    &LayerWeights::sinks,
    &LayerWeights::wo,
    &LayerWeights::bo,
    &LayerWeights::post_attn_norm,
    &LayerWeights::ffn_norm,
    &LayerWeights::ffn_gate_up,
    &LayerWeights::ffn_gate,
    &LayerWeights::ffn_up,
    &LayerWeights::ffn_down,
    &LayerWeights::post_ffn_norm,
    &LayerWeights::alpha_norm,
    &LayerWeights::alpha,
};
static_assert(sizeof(LayerWeights) ==
              sizeof(kLayerWeights) / sizeof(kLayerWeights[0]) * sizeof(ggml_tensor*));

class LibraryModel;    // src/model/library/library_model.h
class ModelChat;       // src/model/chat/chat.h
class TokenOrder;      // src/model/sampling/token_order.h
struct WeightBuffers;  // src/model/weights.h
struct LlamaModelDeleter {
  void operator()(llama_model* model) const;
};

struct LoadedModel {
  const ModelFamily* family = nullptr;  // null: libllama builds the graph
  std::string family_name;              // general.architecture
  std::string name;                     // general.name
  std::string adapter_name;             // of the adapter's file; empty: there is none
  std::string type_name;                // most frequent weight type, "Q4_1"
  Hyperparameters hparams;
  ModelShape shape;
  uint64_t weight_bytes = 0;  // as WeightLoader counts
  uint64_t lookup_bytes = 0;
  // The bytes of a mixture's experts, among weight_bytes, and the part of them that a token reads.
  uint64_t expert_bytes = 0;
  double expert_share = 1;
  uint64_t fingerprint = 0;
  bool for_device = false;  // see ModelOptions

  ggml_tensor* token_embedding = nullptr;  // [embed_dim, vocab_size]
  ggml_tensor* output_norm = nullptr;
  ggml_tensor* output = nullptr;  // token_embedding when tied
  // With libllama's graph each has its factors of RoPE and its attention sinks alone.
  std::vector<LayerWeights> layers;

  std::unique_ptr<WeightBuffers> buffers;
  std::unique_ptr<WeightBuffers> adapter_buffers;               // null: there is no adapter
  std::unique_ptr<llama_model, LlamaModelDeleter> vocab_model;  // vocab_only: tokenizer, template

  std::shared_ptr<LibraryModel> library;  // null: ebb's own decoder builds the graph
  // The copies, on a device, of the weights that `library` builds graphs with; empty: graphs read
  // the weights themselves.
  std::unordered_map<const ggml_tensor*, ggml_tensor*> library_copies;

  std::unique_ptr<ModelChat> chat;  // the template of vocab_model
  size_t longest_token_bytes = 1;   // of the vocabulary
  // Set by the first call of TokenOrder::Of(), which returns it.
  mutable std::once_flag token_order_once;
  mutable std::shared_ptr<const TokenOrder> token_order;

  LoadedModel();
  ~LoadedModel();
  // Fails once a file of the model changed on the disk: see MappedFile::CheckUnchanged().
  [[nodiscard]] Status CheckFilesUnchanged() const;
};

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_MODEL_H_
