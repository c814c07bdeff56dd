// AttentionOp adds attention as nodes of its own to ggml's graph on the processor. A node begins
// when the one before has ended; this is the only synchronisation, and its cost is paid for every
// node. A layer has these nodes:
// - If each sequence has one token, which reads all rows: `fold` stores the new row and attends to
//   chunks of rows; `merge` joins the results of the chunks, adds up mass and plans the next layer.
// - Otherwise `select` lets the selectors choose rows, and `store` stores the new rows and plans.
//   Sequences with few tokens then get a `fold` and a `merge` for every few tokens, so that the
//   results of chunks need little memory. Sequences with many tokens are computed in tiles:
//   `prefill` and, if mass is wanted, `mass`.
//
// The nodes read the step's work through AttentionOp::SetWork(), so that a graph is built once and
// used for every step of its shape.
#ifndef EBB_STEP_CPU_ATTENTION_NODES_H_
#define EBB_STEP_CPU_ATTENTION_NODES_H_

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ebb/policy.h"
#include "src/attention/attention.h"
#include "src/attention/decode.h"
#include "src/attention/prefill.h"
#include "src/model/loaded/decoder_graph.h"
#include "src/step/cpu/merged_rows.h"
#include "src/step/work/staged_sequences.h"
#include "src/step/work/step_work.h"

namespace ebb {

// kMaxFoldTokens is the most tokens of a sequence that a step computes with fold nodes, which use
// the arithmetic of a decode step for each token. More tokens go in tiles, which are faster from
// about this number on.
inline constexpr int kMaxFoldTokens = 12;

// Returns whether the step computes the sequence's tokens in tiles. The answer is the same for all
// pieces of one chunk of a prompt.
[[nodiscard]] bool GoesInTiles(const SequenceStep& sequence, bool one_token_at_a_time);

// AttentionPath selects the attention nodes that a step needs.
struct AttentionPath {
  bool stores_in_fold = false;  // each sequence has one token, which reads all rows
  int num_folds = 0;  // folds per layer; 0: all tokens go in tiles, or rows are only stored
  bool has_tiles = false;
  bool tiles_have_mass = false;
  bool selects = false;  // a folded sequence has a selector

  [[nodiscard]] static AttentionPath Of(const StepWork& work);
  [[nodiscard]] bool operator==(const AttentionPath&) const = default;
};

// AttentionScratch holds the state that all layers and graphs of an engine share. One step runs at
// a time.
struct AttentionScratch {
  AttentionScratch(const AttentionKernel& kernel_in, const AttentionShape& shape_in)
      : kernel(kernel_in), shape(shape_in) {}

  struct FoldScratch {
    FoldScratch(const AttentionKernel& kernel, const AttentionShape& shape,
                const std::shared_ptr<DecodeStates>& states)
        : attention(kernel, shape, states) {}
    DecodeAttention attention;
    // Describe the rows that each token of the fold reads. They may have more elements than a layer
    // has kv heads.
    std::vector<RowsView> rows;              // [tokens, kv heads]
    std::vector<CompressedRows> compressed;  // [tokens, kv heads]
    // Give, by token and kv head, the indices of the full-precision rows, and of the rows in T2,
    // among all rows of the stream.
    std::vector<std::span<const uint32_t>> full_indices, compressed_indices;
    std::vector<DecodeQuery> queries;  // [tokens]
  };

  const AttentionKernel& kernel;
  const AttentionShape shape;
  const std::shared_ptr<DecodeStates> states = std::make_shared<DecodeStates>();
  // Holds an element for each fold of an attention. A plan often fits the next attention too. With
  // one fold it has two elements, for even and odd attentions, because one is planned while the
  // other is merged.
  std::deque<FoldScratch> folds;
  struct TileScratch {
    TileScratch(const AttentionKernel& kernel, const AttentionShape& shape)
        : attention(kernel, shape) {}
    PrefillAttention attention;
    std::vector<RowsView> rows;  // [the most kv heads of any layer]
    bool has_mass = false;
    MergedRows merged;  // used if the sequence has rows in T2
  };
  // Holds at least one element for each sequence of the step that goes in tiles, in their order.
  std::deque<TileScratch> tiles;
  size_t num_tiles = 0;  // tiles used by this step
  // Selected lists the rows that a selector chose for a token's kv head; without ranges: all rows.
  struct Selected {
    std::vector<RowRange> ranges;
    std::vector<RowRange> foreseen;  // the forecast for the next token; empty: unknown
    std::vector<ChosenRows::Start> chunks;
    size_t num_rows = 0;         // in `ranges`
    std::vector<uint32_t> rows;  // numbers of the selected rows, if mass is wanted
    int parts_ranked = 0;        // parts that have ranked this layer
  };
  std::vector<Selected> selected;                         // [tokens, most kv heads]
  std::vector<std::span<const uint32_t>> selected_spans;  // views of Selected::rows
  std::vector<uint32_t> numbers;                          // [rows]: 0, 1, 2, ...
  double select_seconds = 0;                              // in this step so far
};

// AttentionOp makes the attention nodes of one graph and runs them. REQUIRES: it outlives the
// graph.
class AttentionOp final : public AttentionBuilder {
 public:
  AttentionOp(AttentionScratch* scratch, const AttentionPath& path);
  ~AttentionOp() override;

  ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) override;
  void Store(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) override;
  // Sets the step to run next. REQUIRES: it fits the graph's shape, whose tensors have memory; both
  // outlive the run.
  void SetWork(const StepWork* work, const StagedSequences* staged);
  static constexpr int kMostFolds = 8;

 private:
  // Layer is one attention of the graph. If `k` is null, it stores no rows (AttentionCall).
  struct Layer {
    AttentionOp* op = nullptr;
    int attention = 0;  // number of the attention in graph order
    int index = 0;      // index of the layer whose rows it reads
    int kv_heads = 0;
    ggml_tensor *q = nullptr, *k = nullptr, *v = nullptr, *k_before_rope = nullptr;
    ggml_tensor* sinks = nullptr;
    ggml_tensor* out = nullptr;
    // Returns the attention sinks' logits, [num_q_heads]; null if the model has none.
    [[nodiscard]] const float* Sinks() const;
    struct Fold {
      const Layer* layer = nullptr;
      int index = 0;
      // Return the step's tokens [begin(), end()) that this fold attends for.
      [[nodiscard]] int begin() const { return layer->op->FoldBegin(index); }
      [[nodiscard]] int end() const { return layer->op->FoldBegin(index + 1); }
      // Returns the index of a token's first element in lists of this fold, [tokens, kv heads].
      [[nodiscard]] size_t FirstRow(int token, size_t kv_heads) const {
        return size_t(token - begin()) * kv_heads;
      }
    };
    std::vector<Fold> folds;
  };
  static void SelectNode(ggml_tensor* dst, int part, int num_parts, void* layer);
  static void StoreNode(ggml_tensor* dst, int part, int num_parts, void* layer);
  static void FoldNode(ggml_tensor* dst, int part, int num_parts, void* fold);
  static void MergeNode(ggml_tensor* dst, int part, int num_parts, void* fold);
  static void PrefillNode(ggml_tensor* dst, int part, int num_parts, void* layer);
  static void MassNode(ggml_tensor* dst, int part, int num_parts, void* layer);

  [[nodiscard]] AttentionScratch::FoldScratch& ScratchOf(const Layer::Fold& fold) const {
    const bool is_only = fold.layer->folds.size() == 1;
    return scratch_->folds[is_only ? fold.layer->attention % 2 : fold.index];
  }
  [[nodiscard]] int FoldBegin(int fold) const {
    return work_->num_fold_tokens * fold / path_.num_folds;
  }
  // Zeroes the results of padding tokens of the graph. Nothing uses them, but later nodes compute
  // with them, so that they must be finite.
  void ClearFillers(const Layer& layer) const;
  // Waits until the layer's pages of T1 are in memory.
  void BeginLayer(const Layer& layer, int part) const;
  void StoreNewRows(const Layer& layer, int part, int num_parts) const;
  void StoreToken(const Layer& layer, const SequenceStep& sequence, int token, int kv_head) const;
  void StoreRow(const Layer& layer, const RowAddress& row, int token, int kv_head) const;
  void CopyRowSignals(const Layer& layer, const SequenceStep& sequence, int token, int kv_head,
                      SignalBuffers* signals) const;
  void CopySignals(const Layer& layer, const SequenceStep& sequence, int token) const;
  void PlanFold(const Layer::Fold& fold);
  void PlanToken(const Layer::Fold& fold, const SequenceStep& sequence, int token);
  // Plans one token's query over full-precision rows, without those before the token's window.
  void PlanWindow(const Layer::Fold& fold, const SequenceStep& sequence, int token) const;
  void PlanCompressed(const Layer::Fold& fold, const SequenceStep& sequence, int token) const;
  // Returns the queries of a token for a kv head, [query heads of the kv head, head_dim].
  [[nodiscard]] std::span<const float> QueriesOf(const Layer& layer, int token, int kv_head) const;
  // Returns the index of a token's first kv head in AttentionScratch::selected.
  [[nodiscard]] size_t FirstSelected(int token) const {
    return size_t(token) * scratch_->shape.num_kv_heads;
  }
  [[nodiscard]] AttentionScratch::Selected& SelectedOf(const SequenceStep& sequence,
                                                       int kv_head) const;
  void SelectRows(const Layer& layer, const SequenceStep& sequence, int kv_head) const;
  void ListSelected(const Layer& layer, const SequenceStep& sequence, int part,
                    int num_parts) const;
  // Reads the rows in T1 that the selectors chose, unless they were prefetched, and lets the audit
  // measure the choices.
  void ReadSelected(const Layer& layer) const;
  // Returns the sample that the audit measures for the sequence in this layer, if there is one.
  [[nodiscard]] std::optional<MassAudit::Sample> SampleOf(const Layer& layer,
                                                          const SequenceStep& sequence) const;
  void Audit(const Layer& layer, const SequenceStep& sequence,
             const MassAudit::Sample& sample) const;
  void PlanSelected(const Layer::Fold& fold, const SequenceStep& sequence, int token) const;
  // Decompresses this part's share of the rows in T2 of the sequences that go in tiles.
  void DecompressRows(const Layer& layer, int part, int num_parts) const;
  void PlanTiles(const Layer& layer);

  AttentionScratch* const scratch_;
  const AttentionPath path_;
  const StepWork* work_ = nullptr;
  const StagedSequences* staged_ = nullptr;             // the same step's access to T1
  std::chrono::steady_clock::time_point select_begin_;  // when the layer's selection began
  std::deque<Layer> layers_;                            // in graph order
};

}  // namespace ebb

#endif  // EBB_STEP_CPU_ATTENTION_NODES_H_
