// BackendAttention builds the attention nodes of a device's graph, over rows that lie anywhere in
// the device's memory; results depend on which rows are visible, not on where they lie. It attends
// in one of three ways. Flash attention uses operations that every backend has: it gathers rows by
// lists, in order of position, and computes mass, if wanted, in a pass of its own. Eager attention,
// if asked for or if the host attends to some rows, is two products with a softmax between them, in
// which the host's rows are one more column. For single tokens, where the backend can run them,
// nodes of ebb's own (row_attention.h) read rows in place. Such nodes also read rows of T2, or
// operations of ggml (ggml_rows.h) put these behind the gathered rows.
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

// BackendSequence has the properties of a sequence on which a graph depends.
struct BackendSequence {
  int first_token = 0;  // of the step
  int num_tokens = 0;
  // Is the length of the longest list of any kv head, plus the host's column with eager attention,
  // rounded up.
  int num_rows = 0;
  // Is true if one mask serves all layers and kv heads, because all see the same number of rows,
  // alike.
  bool is_uniform = false;
  // Is the length of the longest list of rows of T2 in the device's memory, rounded up; 0: there
  // are none. Attention takes these rows after the others.
  int num_compressed = 0;
  int num_compressed_pages = 0;  // of a kv head's list of their pages
  int compressed_groups = 0;     // that have lists of their slots
  // Is the length of a kv head's list of pages; 0: lists name rows. If num_groups is 0, rows lie in
  // the order of slots, from the first on; else each group has a list of slots.
  int num_pages = 0;
  int num_groups = 0;
  // Has, for each layer, the group of its first kv head and the distance to the group of the next
  // head. Empty without groups and rows of T2.
  std::vector<std::pair<int, int>> groups;
  // Is true if the sequence has one token, which attends by the nodes of row_attention.h. These
  // need a mask only if rows are hidden.
  bool by_row_attention = false;
  bool is_eager = false;  // by products and a softmax
  bool has_mask = true;
  // Is true if the sequence has one token and the host attends to rows of T1 in place, or of a T2
  // on the host. Eager attention then has one more column than the longest list has rows, the last
  // one.
  bool adds_host = false;
  using Mass = RowAttention::Mass;
  Mass mass = Mass::kNone;
  // Describe the vectors by which the device multiplies queries for the selector.
  RankRoom ranks;
  uint64_t rank_selector = 0;  // RankVectors::RankId()
  float rank_scale = 0;

  // Returns how many rows attention takes, with those that fill up the lists.
  [[nodiscard]] int NumKeys() const { return num_rows + num_compressed; }
  [[nodiscard]] bool operator==(const BackendSequence&) const = default;
};

// kRowsOfDeviceStep divides the lengths of lists: flash attention is fastest on such lengths, and a
// graph serves many steps.
inline constexpr int kRowsOfDeviceStep = 256;
// kMaskPaddingTokens is the most tokens of a tile in which ggml's CUDA kernels read masks, also
// beyond the last token.
inline constexpr int kMaskPaddingTokens = 64;
// kKeptDeviceGraphs is how many graphs steps keep: one for decoding, one for prompts, the rest for
// batches that change.
inline constexpr size_t kKeptDeviceGraphs = 6;

// BackendTensors holds the inputs of a graph's nodes besides activations, and their outputs.
struct BackendTensors {
  // Lists the rows that the step writes, by layer, token and kv head, I32 [sum of the layers'
  // tokens * kv heads, 1 + followers]: rows of the sequences, then of their followers.
  ggml_tensor* new_rows = nullptr;
  struct OfSequence {
    // Lists rows, I32 [sum of the layers' num_rows * kv heads], by layer, row and kv head; or
    // pages, [sum of kv heads * num_pages], by layer, kv head and page. Lies in a buffer of its
    // own, so that it stays from step to step.
    ggml_tensor* lists = nullptr;
    ggml_tensor* slots = nullptr;  // I32 [groups, num_rows], beside it; null without groups
    // Are the lists of CompressedLists. Null if there are no rows of T2 on the device.
    ggml_tensor *compressed_pages = nullptr, *compressed_slots = nullptr, *centres = nullptr;
    // Counts the rows of T2, I32 [sum of kv heads]; null unless ebb's own nodes read them.
    ggml_tensor* compressed_counts = nullptr;
    // Are the vectors, F16 [head_dim, NumVectors(), streams], and the products of a layer
    // (AddRankProducts()); null unless the device multiplies queries for a selector.
    ggml_tensor *rank_vectors = nullptr, *rank_products = nullptr;
    // Is the mask, F16 [NumKeys(), tokens], or by layer [NumKeys(), tokens, 1, kv heads], and
    // kMaskPaddingTokens more rows; null if there is none.
    ggml_tensor* mask = nullptr;
    ggml_tensor* counts = nullptr;  // I32 [sum of kv heads], of rows; null unless by own nodes
    // Is the host's part of a layer's attention (HostAttention::Query::result); null unless the
    // host attends.
    ggml_tensor* host = nullptr;
    // Has an output of all attentions, F32 [query heads or more, attentions]; null unless mass is
    // wanted and the host attends too. Own nodes write log2 of the sum of 2^logit over all rows;
    // eager attention writes the host's part of the softmax. This tensor and `mass` lie at the
    // beginning of the graph's memory: outputs of each layer by themselves would break up memory
    // that the next layers reuse, and ggml plans with at most 256 pieces.
    ggml_tensor* host_weights = nullptr;
    // Has the mass, F32 [NumKeys(), sum of the layers' arrays]: one array for all heads, or one for
    // each kv head or query head; null unless wanted.
    ggml_tensor* mass = nullptr;
  };
  std::vector<OfSequence> sequences;
  ggml_tensor* rotation = nullptr;  // of GgmlRowInputs; null unless operations of ggml read T2
  // Has, for each attention, the number of nodes before the first one that reads its rows and, if
  // the host attends too, the number of nodes before the first one that waits for the host's part.
  // A layer has several attentions if later ones read its rows.
  std::vector<int> cuts;
  // Has the queries of each attention, F32 [head_dim, heads, T]; empty unless wanted.
  std::vector<ggml_tensor*> q;
  // Have a tensor for each layer; empty unless wanted.
  std::vector<ggml_tensor*> k, v, k_before_rope;
};

// OwnNodes says how a device runs ebb's own nodes.
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
  // Builds attention over `rows`, which is BackendDevice::rows(). `compressed` is the format of T2.
  // `tensors` has the inputs, and gets the outputs. REQUIRES: all outlive the graph.
  BackendAttention(const LoadedModel& model, ggml_tensor* rows, const OwnNodes& own_nodes,
                   const CompressedFormat& compressed,
                   const std::vector<BackendSequence>& sequences, const Wanted& wanted,
                   BackendTensors* tensors);

  ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) override;

  // Returns the number of elements before layer `layer` in lists with one element for each kv head;
  // for num_layers, of all layers.
  [[nodiscard]] int64_t FirstHead(int layer) const { return first_head_[layer]; }
  // Returns the number of arrays of mass before layer `layer`; for num_layers, of all layers.
  [[nodiscard]] int64_t FirstMassArray(BackendSequence::Mass mass, int layer) const;
  // Returns the most nodes that a layer's attention may have, views among them.
  [[nodiscard]] static int NodesPerLayer(const LoadedModel& model,
                                         std::span<const BackendSequence> sequences,
                                         int num_followers);

 private:
  // Returns the sequence's queries, [head_dim, tokens, query heads, 1], or, if heads see different
  // rows, [head_dim, tokens, query heads of a kv head, kv heads].
  ggml_tensor* QueriesOf(ggml_context* ctx, int layer, size_t index, ggml_tensor* q) const;
  ggml_tensor* AttendByFlash(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                             const AttentionCall& call, ggml_tensor* keys, ggml_tensor* values);
  // Returns [head_dim, query heads, tokens, 1], or [head_dim, query heads of a kv head, tokens, kv
  // heads].
  ggml_tensor* FlashAttention(ggml_context* ctx, ggml_tensor* queries, ggml_tensor* keys,
                              ggml_tensor* values, ggml_tensor* mask, ggml_tensor* sinks) const;
  // Returns products of keys and queries, [num_rows, tokens] by head as QueriesOf(). Times
  // LogitScale() they are logits.
  ggml_tensor* LogitsOf(ggml_context* ctx, ggml_tensor* keys, ggml_tensor* queries) const;
  // Returns the weights of rows. `logits` are as LogitsOf().
  ggml_tensor* SoftMax(ggml_context* ctx, ggml_tensor* logits, ggml_tensor* mask,
                       ggml_tensor* sinks) const;
  // EagerNodes is the part of eager attention that does not wait for the host: logits as
  // LogitsOf(), and values by row [num_rows, head_dim].
  struct EagerNodes {
    ggml_tensor* logits = nullptr;
    ggml_tensor* values = nullptr;
  };
  EagerNodes AddLogits(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                       ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values);
  ggml_tensor* AttendEagerly(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                             const EagerNodes& nodes, ggml_tensor* sinks);
  // SharedWeights is the softmax whose last column is the host's logarithm of a sum: the weights of
  // the device's rows, with zero in that column, and the weight of that column.
  struct SharedWeights {
    ggml_tensor* rows = nullptr;
    ggml_tensor* host_part = nullptr;  // [1, 1, ...]
  };
  SharedWeights ShareSoftmax(ggml_context* ctx, int layer, size_t index, ggml_tensor* logits,
                             ggml_tensor* sinks);
  RowAttentionNodes AddFoldAndMerge(ggml_context* ctx, size_t index, const AttentionCall& call,
                                    ggml_tensor* keys, ggml_tensor* values);
  // Returns the attention out of the merge's result, and keeps mass and sums if wanted.
  ggml_tensor* TakeMerged(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                          const RowAttentionNodes& nodes);
  void KeepHostWeights(ggml_context* ctx, ggml_cgraph* graph, size_t index, ggml_tensor* weights);
  // Returns the layer's part of the sequence's lists.
  ggml_tensor* ListOf(ggml_context* ctx, int layer, size_t index) const;
  // Returns the sequence's rows, F16 [head_dim, num_rows, kv heads, 1] if all heads see alike, else
  // [head_dim, num_rows, 1, kv heads].
  ggml_tensor* Gather(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  ggml_tensor* GatherPages(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  // Returns keys and values as Gather(), with rows of T2 behind the others.
  GatheredRows GatherAll(ggml_context* ctx, int layer, size_t index, ggml_tensor* keys,
                         ggml_tensor* values);
  void AddProductsOfRanks(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                          ggml_tensor* q) const;
  // Returns the same as GatherAll(), by operations of ggml that read rows of T2.
  GatheredRows GatherAllByGgml(ggml_context* ctx, int layer, size_t index, ggml_tensor* keys,
                               ggml_tensor* values) const;
  CompressedInputs CompressedInputsOf(ggml_context* ctx, int layer, size_t index) const;
  // Returns the distance between the slot lists of a layer's kv heads.
  [[nodiscard]] int CompressedSlotStride(int layer, size_t index) const;
  ggml_tensor* HeadsOf(ggml_context* ctx, size_t index, ggml_tensor* rows, int64_t num_rows,
                       int64_t heads, size_t row_stride, size_t head_stride) const;
  ggml_tensor* Mask(ggml_context* ctx, int layer, size_t index) const;
  [[nodiscard]] float Scale() const { return model_.hparams.attention_scale; }
  [[nodiscard]] float SoftCap() const { return model_.hparams.attention_soft_cap; }
  [[nodiscard]] float LogitScale() const { return SoftCap() == 0 ? Scale() : SoftCap(); }
  // Keeps the mass of `weights`, which are of a softmax, [num_rows, tokens] by head.
  void KeepMassOfWeights(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                         ggml_tensor* weights);
  // Keeps `mass`, all arrays of the layer.
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
  // StoredRows is a layer's rows, once the attention that stores them has been built.
  struct StoredRows {
    ggml_tensor *keys = nullptr, *values = nullptr;
  };
  std::vector<StoredRows> stored_;  // [layers]
  // Are named by nodes.
  std::deque<RowAttention> row_attention_;
  std::deque<CompressedFold> compressed_folds_;
  std::deque<UnpackRows> unpack_rows_;
};

// DeviceStepSizes has the sizes of a device's steps; rows and tokens are those of each sequence.
struct DeviceStepSizes {
  size_t num_sequences = 1;
  size_t num_rows = 0;       // in the lists of a kv head
  size_t prompt_tokens = 0;  // of the widest step of a prompt; 0: there is none
  bool is_uniform = false;   // see BackendSequence
  bool is_eager = false;     // the same
};
// Returns the most bytes that such steps take besides activations, logits, rows and mass: for
// lists, the rows of a layer in order of position, masks, and the logits and values of eager
// attention.
[[nodiscard]] size_t DeviceStepBytes(const ModelShape& shape, const DeviceStepSizes& sizes);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_BACKEND_ATTENTION_H_
