// Attention on a backend, over rows that lie anywhere in its memory; results depend on which rows
// are visible and not on where they lie. By operations that every backend has: rows are gathered by
// lists, in order of position, and read by flash attention; mass, where it is wanted, comes from a
// pass of its own. Or, where that is asked for or the host attends to some rows, by two products
// with a softmax between them (eager attention), in which the host's rows are one more column. Or,
// for single tokens and where a backend runs them, by nodes of ebb's own (row_attention.h), which
// read rows where they lie. Rows of T2 are read by such nodes, or by operations of ggml
// (ggml_rows.h) that put them behind the gathered ones.
#ifndef EBB_STEP_DEVICE_BACKEND_ATTENTION_H_
#define EBB_STEP_DEVICE_BACKEND_ATTENTION_H_

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "ebb/policy.h"
#include "src/attention/rows.h"
#include "src/model/decoder_graph.h"
#include "src/model/loaded_model.h"
#include "src/step/device/compressed_rows.h"
#include "src/step/device/ggml_rows.h"
#include "src/step/device/rank_products.h"
#include "src/step/device/row_attention.h"

namespace ebb {

// The properties of a sequence on which a graph depends.
struct BackendSequence {
  int first_token = 0;  // of the step
  int num_tokens = 0;
  // The length of the longest list of any kv head, with eager attention the host's column too;
  // rounded up.
  int num_rows = 0;
  // One mask for all layers and kv heads: all see as many rows, alike.
  bool is_uniform = false;
  // The longest list of rows of T2 in the device's memory, rounded up; 0: there are none. Attention
  // takes them after the others.
  int num_compressed = 0;
  int num_compressed_pages = 0;  // of a kv head's list of their pages
  int compressed_groups = 0;     // that have lists of their slots
  // Length of a kv head's list of pages; 0: lists name rows. Without groups rows lie in the order
  // of slots, from the first on; else each group has a list of slots.
  int num_pages = 0;
  int num_groups = 0;
  // By layer, with groups or rows of T2: the group of its first kv head, and how many groups on the
  // next one's is.
  std::vector<std::pair<int, int>> groups;
  // One token, by the nodes of row_attention.h, which need a mask only where something is hidden.
  bool by_row_attention = false;
  bool is_eager = false;  // by products and a softmax
  bool has_mask = true;
  // One token, and the host attends to rows of T1, where they lie, or of its T2. Eager attention
  // then has a column more than the longest list has rows: the last one.
  bool adds_host = false;
  using Mass = RowAttention::Mass;
  Mass mass = Mass::kNone;
  // The vectors with which the device multiplies queries for the selector.
  RankRoom ranks;
  uint64_t rank_selector = 0;  // RankVectors::RankId()
  float rank_scale = 0;

  // The rows that attention takes, in lists that are rounded up.
  [[nodiscard]] int NumKeys() const { return num_rows + num_compressed; }
  [[nodiscard]] bool operator==(const BackendSequence&) const = default;
};

// The longest list, rounded up so: flash attention is fastest on such lengths, and a graph serves
// many steps.
inline constexpr int kRowsOfDeviceStep = 256;
// ggml's kernels of CUDA read masks by tiles of up to so many tokens, beyond the last one too.
inline constexpr int kMaskPaddingTokens = 64;
// Graphs that steps keep: a decode's, a prompt's, and those of batches that change.
inline constexpr size_t kKeptDeviceGraphs = 6;

// The inputs of a graph's nodes besides activations, and their outputs.
struct BackendTensors {
  // I32 [sum of the layers' tokens * kv heads, 1 + followers]: rows that the step writes, by layer,
  // token and kv head: those of the sequences, then those of their followers.
  ggml_tensor* new_rows = nullptr;
  struct OfSequence {
    // I32 [sum of the layers' num_rows * kv heads]: by layer, row and kv head; of pages
    // [sum of kv heads * num_pages]: by layer, kv head and page. Lies in a buffer of its own, so
    // that it stays from step to step.
    ggml_tensor* lists = nullptr;
    ggml_tensor* slots = nullptr;  // I32 [groups, num_rows], beside it; null without groups
    // CompressedLists: the lists of the rows of T2 on the device. Null if there are no such rows.
    ggml_tensor *compressed_pages = nullptr, *compressed_slots = nullptr, *centres = nullptr;
    // I32 [sum of kv heads], for ebb's own nodes; null unless they read rows of T2.
    ggml_tensor* compressed_counts = nullptr;
    // F16 [head_dim, NumVectors(), streams], and the products of a layer (AddRankProducts());
    // null unless the device multiplies queries for a selector.
    ggml_tensor *rank_vectors = nullptr, *rank_products = nullptr;
    // F16: [NumKeys(), tokens], or by layer [NumKeys(), tokens, 1, kv heads], and
    // kMaskPaddingTokens rows more; null where it has none.
    ggml_tensor* mask = nullptr;
    ggml_tensor* counts = nullptr;  // I32 [sum of kv heads], of rows; null unless by own nodes
    // The host's part of a layer's attention (HostAttention::Query::result); null unless it does.
    ggml_tensor* host = nullptr;
    // The outputs of all layers lie at the beginning of the graph's memory: an output of each layer
    // would break up memory that the next ones use again, and ggml knows 256 pieces.
    // F32 [query heads or more, attentions]; null unless mass is wanted and the
    // host attends too. Of own nodes: log2 of the sum of 2^logit over all rows; of eager attention:
    // the host's part of the softmax.
    ggml_tensor* host_weights = nullptr;
    // F32 [NumKeys(), sum of the layers' arrays]: one for all heads, or one for each kv head or
    // query head; null unless wanted.
    ggml_tensor* mass = nullptr;
  };
  std::vector<OfSequence> sequences;
  ggml_tensor* rotation = nullptr;  // of GgmlRowInputs; null unless operations of ggml read T2
  // By attention, of which a layer has several where later ones read its rows: how many nodes come
  // before the first that reads rows of it, and, where the host attends too, how many before the
  // first that waits for its part.
  std::vector<int> cuts;
  // [head_dim, heads, T], F32, by attention; empty unless wanted.
  std::vector<ggml_tensor*> q;
  // [layers]
  std::vector<ggml_tensor*> k, v, k_before_rope;
};

// How a device runs ebb's own nodes.
struct OwnNodes {
  DeviceOp row_attention, compressed_fold, unpack_rows;
  RecordFormat records;  // of a T2 in the device's memory; of no size: they read none
};

class BackendAttention final : public AttentionBuilder {
 public:
  struct Wanted {
    bool keys = false, values = false, queries = false;
    int num_followers = 0;  // the most that any sequence has
    [[nodiscard]] bool operator==(const Wanted&) const = default;
  };
  // rows: the device's (BackendDevice::rows()). compressed: the format of T2. tensors: has the
  // inputs, and gets the rest. All outlive the graph.
  BackendAttention(const LoadedModel& model, ggml_tensor* rows, const OwnNodes& own_nodes,
                   const CompressedFormat& compressed,
                   const std::vector<BackendSequence>& sequences, const Wanted& wanted,
                   BackendTensors* tensors);

  ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) override;

  // Elements before layer `layer` in lists with one element a kv head: of all layers for
  // num_layers.
  [[nodiscard]] int64_t FirstHead(int layer) const { return first_head_[layer]; }
  // The arrays of mass before layer `layer`; of all layers for num_layers.
  [[nodiscard]] int64_t FirstMassArray(BackendSequence::Mass mass, int layer) const;
  // The nodes that a layer may have, views among them.
  [[nodiscard]] static int NodesPerLayer(const LoadedModel& model,
                                         std::span<const BackendSequence> sequences,
                                         int num_followers);

 private:
  // [head_dim, tokens, query heads, 1], or [head_dim, tokens, query heads of a kv head, kv heads]
  // where heads see rows of their own.
  ggml_tensor* QueriesOf(ggml_context* ctx, int layer, size_t index, ggml_tensor* q) const;
  ggml_tensor* AttendByFlash(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                             const AttentionCall& call, ggml_tensor* keys, ggml_tensor* values);
  // [head_dim, query heads, tokens, 1], or [head_dim, query heads of a kv head, tokens, kv heads].
  ggml_tensor* FlashAttention(ggml_context* ctx, ggml_tensor* queries, ggml_tensor* keys,
                              ggml_tensor* values, ggml_tensor* mask, ggml_tensor* sinks) const;
  // [num_rows, tokens] by head as QueriesOf(); LogitScale() makes logits of them.
  ggml_tensor* LogitsOf(ggml_context* ctx, ggml_tensor* keys, ggml_tensor* queries) const;
  // The weights of rows. logits: as LogitsOf().
  ggml_tensor* SoftMax(ggml_context* ctx, ggml_tensor* logits, ggml_tensor* mask,
                       ggml_tensor* sinks) const;
  // The part of eager attention that does not wait for the host: logits as LogitsOf(), and values
  // by row [num_rows, head_dim].
  struct EagerNodes {
    ggml_tensor* logits = nullptr;
    ggml_tensor* values = nullptr;
  };
  EagerNodes AddLogits(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                       ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values);
  ggml_tensor* AttendEagerly(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                             const EagerNodes& nodes, ggml_tensor* sinks);
  // The softmax with the host's logarithm of a sum as its last column: weights of the device's
  // rows, that column zero, and the column.
  struct SharedWeights {
    ggml_tensor* rows = nullptr;
    ggml_tensor* host_part = nullptr;  // [1, 1, ...]
  };
  SharedWeights ShareSoftmax(ggml_context* ctx, int layer, size_t index, ggml_tensor* logits,
                             ggml_tensor* sinks);
  RowAttentionNodes AddFoldAndMerge(ggml_context* ctx, size_t index, const AttentionCall& call,
                                    ggml_tensor* keys, ggml_tensor* values);
  // Attention out of the merge; mass and sums are kept where wanted.
  ggml_tensor* TakeMerged(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                          const RowAttentionNodes& nodes);
  void KeepHostWeights(ggml_context* ctx, ggml_cgraph* graph, size_t index, ggml_tensor* weights);
  // The part of the sequence's lists that is a layer's.
  ggml_tensor* ListOf(ggml_context* ctx, int layer, size_t index) const;
  // The sequence's rows, F16 [head_dim, num_rows, kv heads, 1] where all heads see alike, or else
  // [head_dim, num_rows, 1, kv heads].
  ggml_tensor* Gather(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  ggml_tensor* GatherPages(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  // Keys and values as Gather() has them, those of T2 behind the others.
  GatheredRows GatherAll(ggml_context* ctx, int layer, size_t index, ggml_tensor* keys,
                         ggml_tensor* values);
  void AddProductsOfRanks(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                          ggml_tensor* q) const;
  // The same, where operations of ggml read rows of T2.
  GatheredRows GatherAllByGgml(ggml_context* ctx, int layer, size_t index, ggml_tensor* keys,
                               ggml_tensor* values) const;
  CompressedInputs CompressedInputsOf(ggml_context* ctx, int layer, size_t index) const;
  // From slot list to slot list of the kv heads of a layer.
  [[nodiscard]] int CompressedSlotStride(int layer, size_t index) const;
  ggml_tensor* HeadsOf(ggml_context* ctx, size_t index, ggml_tensor* rows, int64_t num_rows,
                       int64_t heads, size_t row_stride, size_t head_stride) const;
  ggml_tensor* Mask(ggml_context* ctx, int layer, size_t index) const;
  [[nodiscard]] float Scale() const { return model_.hparams.attention_scale; }
  [[nodiscard]] float SoftCap() const { return model_.hparams.attention_soft_cap; }
  [[nodiscard]] float LogitScale() const { return SoftCap() == 0 ? Scale() : SoftCap(); }
  // weights: of a softmax, [num_rows, tokens] by head.
  void KeepMassOfWeights(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                         ggml_tensor* weights);
  // mass: all arrays of the layer.
  void KeepMass(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index, ggml_tensor* mass);

  const LoadedModel& model_;
  ggml_tensor* const rows_;
  const OwnNodes own_nodes_;
  const CompressedFormat compressed_;
  const std::vector<BackendSequence>& sequences_;
  const Wanted wanted_;
  BackendTensors* const tensors_;
  std::vector<int64_t> first_head_;  // [layers + 1]
  int attention_ = 0;                // that is built, in the order of the graph
  bool reads_again_ = false;         // the rows of a layer that another attention read before
  // The rows of a layer once the attention that stores them has been built.
  struct StoredRows {
    ggml_tensor *keys = nullptr, *values = nullptr;
  };
  std::vector<StoredRows> stored_;  // [layers]
  // That nodes name.
  std::deque<RowAttention> row_attention_;
  std::deque<CompressedFold> compressed_folds_;
  std::deque<UnpackRows> unpack_rows_;
};

// The sizes of the steps of a device, rows and tokens being those of each sequence.
struct DeviceStepSizes {
  size_t num_sequences = 1;
  size_t num_rows = 0;       // in the lists of a kv head
  size_t prompt_tokens = 0;  // of the widest step of a prompt; 0: there is none
  bool is_uniform = false;   // see BackendSequence
  bool is_eager = false;     // the same
};
// Returns the most bytes that such steps take besides activations, logits and rows: lists, the rows
// of a layer in order of position, masks, and the logits and values of eager attention. Mass takes
// more.
[[nodiscard]] size_t DeviceStepBytes(const ModelShape& shape, const DeviceStepSizes& sizes);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_BACKEND_ATTENTION_H_
