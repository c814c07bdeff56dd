// Holds a model in memory, made from a GGUF file. Only src/model and the engine's graph code
// include this file.
#ifndef EBB_MODEL_LOADED_LOADED_MODEL_H_
#define EBB_MODEL_LOADED_LOADED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ebb/lossless.h"
#include "ebb/model.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/base/state_slots.h"

struct ggml_context;
struct ggml_tensor;
struct llama_model;

namespace ebb {

// EvictionLayout is the formula of a model's eviction logits: see eviction_marks.h.
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
  float attention_scale = 0;     // 1 / sqrt(head_dim) unless the file says otherwise
  float attention_soft_cap = 0;  // AttentionShape's
  // rope_dims and the next members are RoPE's parameters, as ggml_rope_ext takes them.
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
  std::vector<StatePart> state_parts;
  // keeps_states is true if the graph can write the states after each of its tokens.
  bool keeps_states = false;
  // can_rotate_keys is true if the engine can re-rotate keys to other positions. The next two are
  // true if the graph provides keys before RoPE and outputs of blocks, which some policies read.
  bool can_rotate_keys = true;
  bool has_keys_before_rope = true;
  bool has_hidden_states = true;
  // draft_source is the source of guesses that the model is as a draft model: kModel for a whole
  // model, else the kind of head, whose steps read hidden rows too (SequenceStep::hidden_rows).
  Speculation draft_source = Speculation::kModel;
  // target_blocks lists the blocks of the target whose outputs are the features of a token that the
  // head reads (BuildFeatureGraph(), DecoderGraphOptions::injects); empty: the head reads kHeadRows
  // of its target.
  std::vector<int> target_blocks;
  // has_cache is false for a head whose attentions read the cache of its target; kv_heads, windows
  // and the other members that describe rows are then those of the target.
  bool has_cache = true;
  // A DFlash head computes its guesses in one step of a block: the last token, then masks.
  int block_tokens = 0;
  Token mask_token = 0;
  // eviction_layout and the next members describe the eviction marks of a model that marks rows:
  // see eviction_marks.h.
  EvictionLayout eviction_layout = EvictionLayout::kNone;
  int eviction_window = 0;        // tokens; 0: it marks none
  int eviction_shift = 1;         // tokens; at most the window
  float trained_compression = 0;  // 0: not said
  float eviction_scale = 1;
  float eviction_offset = 0;
};

// LayerWeights holds the weights of a layer that the engine or the eviction marks need, in addition
// to those that libllama's graph reads; null: the model has none.
struct LayerWeights {
  ggml_tensor* rope_factors = nullptr;  // [head_dim / 2]: divisors of RoPE's frequencies
  ggml_tensor* sinks = nullptr;         // [num_q_heads]: AttentionCall's
  // Masks the channels of queries in EvictionLayout::kQueryLastChannel, [head_dim, num_q_heads]: 0
  // for the channels that carry eviction logits, 1 for the others.
  ggml_tensor* kept_channels = nullptr;
  // alpha_norm and alpha are the weights of EvictionLayout::kAdapter: the norm and the matrix.
  ggml_tensor* alpha_norm = nullptr;  // [embed_dim]
  ggml_tensor* alpha = nullptr;       // [embed_dim, kv heads]
};

// kLayerWeights lists all members of LayerWeights.
inline constexpr ggml_tensor* LayerWeights::*kLayerWeights[] = {
    &LayerWeights::rope_factors, &LayerWeights::sinks, &LayerWeights::kept_channels,
    &LayerWeights::alpha_norm, &LayerWeights::alpha};
static_assert(sizeof(LayerWeights) ==
              sizeof(kLayerWeights) / sizeof(kLayerWeights[0]) * sizeof(ggml_tensor*));

// Returns whether the model is a head: a layer or more that guesses for another model.
inline bool IsHead(const Hyperparameters& hparams) {
  return hparams.draft_source != Speculation::kModel;
}
// Returns the hidden rows of the target that a head reads, for SignalNeeds::hidden_layers.
[[nodiscard]] std::vector<int> RowsReadBy(const Hyperparameters& head);

class LibraryModel;    // src/model/library/library_model.h
class ModelChat;       // src/model/chat/chat.h
class TokenOrder;      // src/model/sampling/token_order.h
struct WeightBuffers;  // src/model/loaded/weights.h
struct LlamaModelDeleter {
  void operator()(llama_model* model) const;
};

struct LoadedModel;
// Returns whether the graph has products of computed matrices, whose bits depend on how many tokens
// a step has. Products of weights can be computed token by token instead
// (DecoderGraphOptions::one_token_at_a_time).
[[nodiscard]] bool MultipliesComputedMatrices(const LoadedModel& model);
// Returns a hash of what chooses the kernels of products: ggml's instruction sets, and the type and
// the layout of each weight.
[[nodiscard]] uint64_t HashOfKernels(const LoadedModel& model);

struct LoadedModel {
  std::string family_name;   // general.architecture
  std::string name;          // general.name
  std::string adapter_name;  // of the adapter's file; empty: there is none
  std::string type_name;     // most frequent weight type, "Q4_1"
  Hyperparameters hparams;
  ModelShape shape;
  uint64_t weight_bytes = 0;  // of weights in memory, and of those that products read from the file
  uint64_t lookup_bytes = 0;  // of tables in the mapped file whose rows are looked up
  // Counts the bytes of a mixture's experts, which are part of weight_bytes; expert_share is the
  // part of them that a token reads.
  uint64_t expert_bytes = 0;
  double expert_share = 1;
  uint64_t fingerprint = 0;
  bool for_device = false;  // see ModelOptions
  bool has_weights = true;  // false: ModelOptions::weights was WeightMode::kUnread

  std::vector<LayerWeights> layers;

  std::unique_ptr<WeightBuffers> buffers;
  std::shared_ptr<llama_model> vocab_model;  // with the tokenizer and template

  std::shared_ptr<LibraryModel> library;  // builds the graphs
  // Maps the weights that `library` builds graphs with to their copies on a device; empty: graphs
  // read the weights themselves.
  std::unordered_map<const ggml_tensor*, ggml_tensor*> library_copies;

  std::unique_ptr<ModelChat> chat;  // the template of vocab_model
  // Holds the MTP layer as a model of its own, whose rows, graphs and sessions are those of any
  // model, except that a step reads hidden rows too (SequenceStep::hidden_rows). It has no weights
  // of its own and no chat. Null: there is none, for the reason that mtp_obstacle gives.
  std::unique_ptr<const Model> mtp;
  std::string mtp_obstacle;
  std::shared_ptr<const Model> target;  // ModelOptions::target, if the file holds a head
  size_t longest_token_bytes = 1;       // of the vocabulary
  // token_order is made by the first call of TokenOrder::Of(), which returns it; token_order_once
  // guards that call.
  mutable std::once_flag token_order_once;
  mutable std::shared_ptr<const TokenOrder> token_order;

  LoadedModel();
  ~LoadedModel();
  // Checks that no file of the model has changed on the disk since it was loaded: see
  // MappedFile::CheckUnchanged().
  [[nodiscard]] Status CheckFilesUnchanged() const;
};

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_LOADED_MODEL_H_
