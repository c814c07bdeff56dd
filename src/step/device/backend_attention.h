// BackendAttention adds the attention nodes to a device's graph. It reads rows that lie anywhere in
// the device's memory; results depend on the visible rows, not on their addresses. It attends in
// one of three ways:
// - Flash attention uses operations that every backend has: it gathers rows by lists, in order of
//   position, and computes mass, if wanted, in a separate pass.
// - Eager attention, if asked for or if the host attends to some rows, is two matrix products with
//   a softmax between them. The host's result is one more column of the softmax.
// - ebb's own nodes (row_attention.h), for single tokens on backends that can run them, read rows
//   in place.
// Rows of T2 are read by ebb's own nodes, or appended to the gathered rows by operations of ggml
// (ggml_rows.h).
#ifndef EBB_STEP_DEVICE_BACKEND_ATTENTION_H_
#define EBB_STEP_DEVICE_BACKEND_ATTENTION_H_

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "ebb/policy.h"
#include "src/attention/rows.h"
#include "src/model/loaded/decoder_graph.h"
#include "src/model/loaded/loaded_model.h"
#include "src/step/device/compressed_rows.h"
#include "src/step/device/ggml_rows.h"
#include "src/step/device/rank_products.h"
#include "src/step/device/row_attention.h"

namespace ebb {

// BackendSequence describes the properties of one sequence of the step that its graph depends on.
struct BackendSequence {
  int first_token = 0;  // index among the step's tokens
  int num_tokens = 0;
  // Holds the length of the longest list of rows of any kv head, rounded up. Eager attention's
  // column for the host counts as a row.
  int num_rows = 0;
  // Is true if one mask serves all layers and kv heads, because all of them see the same number of
  // rows and hide none by a window.
  bool is_uniform = false;
  // Holds the length of the longest list of the device's rows of T2, rounded up; 0: there are none.
  // Attention takes these rows after the full-precision ones.
  int num_compressed = 0;
  int num_compressed_pages = 0;  // length of a kv head's list of T2 pages
  int compressed_groups = 0;     // number of groups with lists of T2 slots
  // Holds the length of a kv head's list of pages; 0: lists name single rows instead. If num_groups
  // is 0, rows lie in slot order from the first slot on; else each group has a list of slots.
  int num_pages = 0;
  int num_groups = 0;
  // Holds, for each layer, the group of its first kv head and the distance to the group of the next
  // head. Empty if there are neither slot lists nor rows of T2.
  std::vector<std::pair<int, int>> groups;
  // Is true if the sequence has one token, and row_attention.h's nodes attend for it. They need a
  // mask only if rows are hidden.
  bool by_row_attention = false;
  bool is_eager = false;  // attends by two products and a softmax
  bool has_mask = true;
  // Is true if the sequence has one token and the host attends to rows in T1 in place, or to a T2
  // on the host. The last column of eager attention is then the host's.
  bool adds_host = false;
  using Mass = RowAttention::Mass;
  Mass mass = Mass::kNone;
  // Counts the vectors by which the device multiplies the queries, to rank pages for the selector.
  RankRoom ranks;
  uint64_t rank_selector = 0;  // the selector's RankVectors::RankId()
  float rank_scale = 0;

  // Returns how many rows attention reads, with the padding of the lists.
  [[nodiscard]] int NumKeys() const { return num_rows + num_compressed; }
  [[nodiscard]] bool operator==(const BackendSequence&) const = default;
};

// kRowsOfDeviceStep is the multiple to which lengths of lists are rounded up: flash attention is
// fastest on such lengths, and a graph serves many steps.
inline constexpr int kRowsOfDeviceStep = 256;
// kMaskPaddingTokens is the number of tokens for which ggml's CUDA kernels read a mask at once.
// They read beyond the last token, so that masks are padded by this many rows.
inline constexpr int kMaskPaddingTokens = 64;
// kKeptDeviceGraphs is how many graphs are kept: one for decoding, one for prompts, the rest for
// batches that change.
inline constexpr size_t kKeptDeviceGraphs = 6;

// BackendTensors holds the input tensors of a graph's attention nodes, except activations, and
// their output tensors.
struct BackendTensors {
  // Lists the places of the step's new rows, by layer, token and kv head, I32 [sum of the layers'
  // tokens * kv heads, 1 + followers]: the rows of the sequences, then those of their followers.
  ggml_tensor* new_rows = nullptr;
  struct OfSequence {
    // Lists the rows that attention reads, I32 [sum of the layers' num_rows * kv heads], by layer,
    // row and kv head; or the pages, [sum of kv heads * num_pages], by layer, kv head and page. Has
    // its own buffer, so that its contents are kept from step to step.
    ggml_tensor* lists = nullptr;
    ggml_tensor* slots = nullptr;  // I32 [groups, num_rows], same buffer; null without groups
    // Hold the three kinds of lists of CompressedLists; null if the device has no rows of T2.
    ggml_tensor *compressed_pages = nullptr, *compressed_slots = nullptr, *centres = nullptr;
    // Holds the number of rows of T2 of each kv head, I32 [sum of kv heads]; null unless ebb's own
    // nodes read them.
    ggml_tensor* compressed_counts = nullptr;
    // Hold the selector's vectors, F16 [head_dim, NumVectors(), streams], and a layer's products
    // with the queries (AddRankProducts()); null unless the device computes products for a
    // selector.
    ggml_tensor *rank_vectors = nullptr, *rank_products = nullptr;
    // Holds the mask, F16 [NumKeys(), tokens], or by layer [NumKeys(), tokens, 1, kv heads], and
    // kMaskPaddingTokens more rows; null if there is none.
    ggml_tensor* mask = nullptr;
    ggml_tensor* counts = nullptr;  // I32 [sum of kv heads], rows; null unless own nodes attend
    // Holds the host's part of a layer's attention (HostAttention::Query::result); null unless the
    // host attends.
    ggml_tensor* host = nullptr;
    // Holds one output of every attention, F32 [query heads or more, attentions]; null unless mass
    // is wanted and the host attends too. Own nodes write log2 of the sum of 2^logit over all rows;
    // eager attention writes the host's share of the softmax. This tensor and `mass` lie at the
    // beginning of the graph's memory, because separate outputs of each layer would fragment the
    // memory that the next layers reuse, and ggml plans with at most 256 free blocks.
    ggml_tensor* host_weights = nullptr;
    // Holds the mass, F32 [NumKeys(), sum of the layers' arrays]: one array for all heads, or one
    // for each kv head or query head; null unless wanted.
    ggml_tensor* mass = nullptr;
  };
  std::vector<OfSequence> sequences;
  ggml_tensor* rotation = nullptr;  // see GgmlRowInputs; null unless ggml operations read T2
  // Holds, for each attention, the number of graph nodes before the first that reads its rows and,
  // if the host attends too, the number of nodes before the first that waits for the host's part. A
  // layer has several attentions if later ones read its rows.
  std::vector<int> cuts;
  // Holds the queries of each attention, F32 [head_dim, heads, T]; empty unless wanted.
  std::vector<ggml_tensor*> q;
  // Have a tensor for each layer; empty unless the signal is wanted.
  std::vector<ggml_tensor*> k, v, k_before_rope;
};

// OwnNodes describes how a device runs ebb's own nodes.
struct OwnNodes {
  DeviceOp row_attention, compressed_fold, unpack_rows;
  RecordFormat records;  // format of T2 rows in the device's memory; head_dim 0: none
};

class BackendAttention final : public AttentionBuilder {
 public:
  struct Wanted {
    bool keys = false, values = false, queries = false;
    int num_followers = 0;  // the most followers of any sequence
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
  // Returns the sequence's queries, [head_dim, tokens, query heads, 1], or, if kv heads see
  // different rows, [head_dim, tokens, query heads of a kv head, kv heads].
  ggml_tensor* QueriesOf(ggml_context* ctx, int layer, size_t index, ggml_tensor* q) const;
  ggml_tensor* AttendByFlash(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                             const AttentionCall& call, ggml_tensor* keys, ggml_tensor* values);
  // Returns [head_dim, query heads, tokens, 1], or [head_dim, query heads of a kv head, tokens, kv
  // heads].
  ggml_tensor* FlashAttention(ggml_context* ctx, ggml_tensor* queries, ggml_tensor* keys,
                              ggml_tensor* values, ggml_tensor* mask, ggml_tensor* sinks) const;
  // Returns the products of keys and queries, [num_rows, tokens] by head as QueriesOf(). Multiplied
  // by LogitScale() they are logits.
  ggml_tensor* LogitsOf(ggml_context* ctx, ggml_tensor* keys, ggml_tensor* queries) const;
  // Returns the softmax weights of the rows. `logits` are as LogitsOf() returns them.
  ggml_tensor* SoftMax(ggml_context* ctx, ggml_tensor* logits, ggml_tensor* mask,
                       ggml_tensor* sinks) const;
  // EagerNodes holds the nodes of eager attention that do not wait for the host: logits as
  // LogitsOf() returns them, and values by row [num_rows, head_dim].
  struct EagerNodes {
    ggml_tensor* logits = nullptr;
    ggml_tensor* values = nullptr;
  };
  EagerNodes AddLogits(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                       ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values);
  ggml_tensor* AttendEagerly(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                             const EagerNodes& nodes, ggml_tensor* sinks);
  // SharedWeights holds the softmax over the device's rows and the host's log-sum, which is its
  // last column: the weights of the rows, with zero in that column, and the weight of that column.
  struct SharedWeights {
    ggml_tensor* rows = nullptr;
    ggml_tensor* host_part = nullptr;  // [1, 1, ...]
  };
  SharedWeights ShareSoftmax(ggml_context* ctx, int layer, size_t index, ggml_tensor* logits,
                             ggml_tensor* sinks);
  RowAttentionNodes AddFoldAndMerge(ggml_context* ctx, size_t index, const AttentionCall& call,
                                    ggml_tensor* keys, ggml_tensor* values);
  // Returns the attention from the merge node's result, and saves its mass and log-sums if wanted.
  ggml_tensor* TakeMerged(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                          const RowAttentionNodes& nodes);
  void KeepHostWeights(ggml_context* ctx, ggml_cgraph* graph, size_t index, ggml_tensor* weights);
  // Returns a view of the layer's part of the sequence's list of rows or pages.
  ggml_tensor* ListOf(ggml_context* ctx, int layer, size_t index) const;
  // Returns the sequence's gathered rows, F16 [head_dim, num_rows, kv heads, 1] if all kv heads
  // share a mask, else [head_dim, num_rows, 1, kv heads].
  ggml_tensor* Gather(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  ggml_tensor* GatherPages(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  // Returns keys and values as Gather(), with rows of T2 after the others.
  GatheredRows GatherAll(ggml_context* ctx, int layer, size_t index, ggml_tensor* keys,
                         ggml_tensor* values);
  void AddProductsOfRanks(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                          ggml_tensor* q) const;
  // Returns the same as GatherAll(), by operations of ggml that read rows of T2.
  GatheredRows GatherAllByGgml(ggml_context* ctx, int layer, size_t index, ggml_tensor* keys,
                               ggml_tensor* values) const;
  CompressedInputs CompressedInputsOf(ggml_context* ctx, int layer, size_t index) const;
  // Returns the distance, in elements, between the T2 slot lists of a layer's kv heads.
  [[nodiscard]] int CompressedSlotStride(int layer, size_t index) const;
  ggml_tensor* HeadsOf(ggml_context* ctx, size_t index, ggml_tensor* rows, int64_t num_rows,
                       int64_t heads, size_t row_stride, size_t head_stride) const;
  ggml_tensor* Mask(ggml_context* ctx, int layer, size_t index) const;
  [[nodiscard]] float Scale() const { return model_.hparams.attention_scale; }
  [[nodiscard]] float SoftCap() const { return model_.hparams.attention_soft_cap; }
  [[nodiscard]] float LogitScale() const { return SoftCap() == 0 ? Scale() : SoftCap(); }
  // Sums the softmax weights, [num_rows, tokens] by head, over the tokens and saves them as mass.
  void KeepMassOfWeights(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                         ggml_tensor* weights);
  // Copies `mass`, all arrays of the layer, to the graph's mass output.
  void KeepMass(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index, ggml_tensor* mass);

  const LoadedModel& model_;
  ggml_tensor* const rows_;
  const OwnNodes own_nodes_;
  const CompressedFormat compressed_;
  const std::vector<BackendSequence>& sequences_;
  const Wanted wanted_;
  BackendTensors* const tensors_;
  std::vector<int64_t> first_head_;  // [layers + 1]
  int attention_ = 0;                // number of the attention being built
  bool reads_again_ = false;         // an earlier attention has read the same layer's rows
  // StoredRows holds the tensors of a layer's rows, set when the attention that stores them was
  // built.
  struct StoredRows {
    ggml_tensor *keys = nullptr, *values = nullptr;
  };
  std::vector<StoredRows> stored_;  // [layers]
  // Hold the user data of graph nodes, which point into them.
  std::deque<RowAttention> row_attention_;
  std::deque<CompressedFold> compressed_folds_;
  std::deque<UnpackRows> unpack_rows_;
};

// DeviceStepSizes has the sizes of a device's steps. `num_rows` and `prompt_tokens` count those of
// each sequence.
struct DeviceStepSizes {
  size_t num_sequences = 1;
  size_t num_rows = 0;       // the longest list of a kv head
  size_t prompt_tokens = 0;  // tokens of the widest prompt step; 0: no prompt
  bool is_uniform = false;   // see BackendSequence::is_uniform
  bool is_eager = false;     // see BackendSequence::is_eager
};
// Returns the most bytes that such steps take for lists, a layer's gathered rows, masks, and the
// logits and values of eager attention. Activations, output logits, rows and mass are not counted.
[[nodiscard]] size_t DeviceStepBytes(const ModelShape& shape, const DeviceStepSizes& sizes);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_BACKEND_ATTENTION_H_
