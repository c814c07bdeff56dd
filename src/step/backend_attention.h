// Attention on a backend, over rows that lie anywhere in its memory; results depend on which rows
// are visible and not on where they lie. By operations that every backend has: rows are gathered by
// lists, in order of position, and read by flash attention; mass, where it is wanted, comes from a
// pass of its own. Or, for single tokens and where a backend runs them, by nodes of ebb's own
// (row_attention.h), which read rows where they lie.
#ifndef EBB_STEP_BACKEND_ATTENTION_H_
#define EBB_STEP_BACKEND_ATTENTION_H_

#include <deque>
#include <utility>
#include <vector>

#include "ebb/policy.h"
#include "src/device/backend_device.h"
#include "src/model/decoder_graph.h"
#include "src/model/loaded_model.h"
#include "src/step/row_attention.h"

namespace ebb {

// What of a sequence decides about a graph.
struct BackendSequence {
  int first_token = 0;  // of the step
  int num_tokens = 0;
  int num_rows = 0;  // of the longest list of any kv head, rounded up
  // One mask for all layers and kv heads: all see as many rows, alike.
  bool is_uniform = false;
  // Of each kv head's list of pages; 0: lists name rows. Without groups all rows lie in the order
  // of slots, from the first on; else each group has a list of slots.
  int num_pages = 0;
  int num_groups = 0;
  // By layer, with groups: that of its first kv head, and how many groups on the next one's is.
  std::vector<std::pair<int, int>> groups;
  // One token, by the nodes of row_attention.h, which need a mask only where something is hidden.
  bool by_row_attention = false;
  bool has_mask = true;
  bool adds_host = false;  // and the host attends to rows of T1, where they lie, or of T2
  using Mass = RowAttention::Mass;
  Mass mass = Mass::kNone;

  [[nodiscard]] bool operator==(const BackendSequence&) const = default;
};

// The longest list, rounded up so: flash attention is fastest on such lengths, and a graph serves
// many steps.
inline constexpr int kRowsOfBackendStep = 256;

// What the nodes of a graph read besides activations, and leave.
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
    // F16: [num_rows, tokens], or by layer [num_rows, tokens, 1, kv heads], and kMaskPaddingTokens
    // rows more; null where it has none.
    ggml_tensor* mask = nullptr;
    ggml_tensor* counts = nullptr;  // I32 [sum of kv heads], of rows; null unless by own nodes
    // What the host attended to of a layer, as its merge takes it; null unless it does.
    ggml_tensor* host = nullptr;
    // By layer, F32 [query heads], as the merge leaves them; empty unless mass is wanted beside the
    // host's attention.
    std::vector<ggml_tensor*> log_sums;
    // By layer, F32 [num_rows, kv heads or query heads]; null unless wanted.
    std::vector<ggml_tensor*> mass;
  };
  std::vector<OfSequence> sequences;
  // By layer: how many nodes come before the first that reads rows of it, and, where the host
  // attends too, how many before the first that waits for what it attended to.
  std::vector<int> cuts;
  // By layer, [head_dim, heads, T], F32; empty unless wanted.
  std::vector<ggml_tensor*> q, k, v, k_before_rope;
};

class BackendAttention final : public AttentionBuilder {
 public:
  struct Wanted {
    bool keys = false, values = false, queries = false;
    int num_followers = 0;  // the most that any sequence has
    [[nodiscard]] bool operator==(const Wanted&) const = default;
  };
  // tensors: has the inputs, and gets the rest. All outlive the graph.
  BackendAttention(const LoadedModel& model, const BackendDevice& device,
                   const DeviceOp& row_attention_op, const std::vector<BackendSequence>& sequences,
                   const Wanted& wanted, BackendTensors* tensors);

  ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, int layer, ggml_tensor* q,
                      ggml_tensor* k, ggml_tensor* v, ggml_tensor* k_before_rope) override;

  // Elements before layer `layer` in lists with one element a kv head: of all layers for
  // num_layers.
  [[nodiscard]] int64_t FirstHead(int layer) const { return first_head_[layer]; }
  // The nodes that a layer may have.
  [[nodiscard]] static int NodesPerLayer(size_t num_sequences, int num_followers) {
    return 24 + 28 * static_cast<int>(num_sequences) + 6 * num_followers;
  }

 private:
  ggml_tensor* AttendSequence(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                              ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values);
  RowAttentionNodes AddFoldAndMerge(ggml_context* ctx, int layer, size_t index, ggml_tensor* q,
                                    ggml_tensor* keys, ggml_tensor* values);
  // Attention out of the merge; mass and sums are kept where wanted.
  ggml_tensor* TakeMerged(ggml_context* ctx, ggml_cgraph* graph, size_t index,
                          const RowAttentionNodes& nodes);
  // The part of the sequence's lists that is a layer's.
  ggml_tensor* ListOf(ggml_context* ctx, int layer, size_t index) const;
  // The sequence's rows, F16 [head_dim, num_rows, kv heads, 1] where all heads see alike, or else
  // [head_dim, num_rows, 1, kv heads].
  ggml_tensor* Gather(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  ggml_tensor* GatherPages(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  ggml_tensor* HeadsOf(ggml_context* ctx, size_t index, ggml_tensor* rows, int64_t num_rows,
                       int64_t heads, size_t row_stride, size_t head_stride) const;
  ggml_tensor* Mask(ggml_context* ctx, int layer, size_t index) const;
  void KeepMass(ggml_context* ctx, ggml_cgraph* graph, size_t index, int64_t group, ggml_tensor* q,
                ggml_tensor* k, ggml_tensor* mask);

  const LoadedModel& model_;
  const BackendDevice& device_;
  const DeviceOp row_attention_op_;
  const std::vector<BackendSequence>& sequences_;
  const Wanted wanted_;
  BackendTensors* const tensors_;
  std::vector<int64_t> first_head_;         // [layers + 1]
  std::deque<RowAttention> row_attention_;  // that nodes name
};

}  // namespace ebb

#endif  // EBB_STEP_BACKEND_ATTENTION_H_
