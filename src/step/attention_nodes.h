// Attention as nodes of ggml's graph. A node begins when the one before it has ended, which is the
// only synchronisation, and costs its time at every node. Per layer:
// - One token of each sequence, which reads all rows: `fold` stores the new row in the part that
//   folds it, and folds; `merge` joins chunks, adds up mass and plans the next layer.
// - Otherwise: where rows are selected, `select` chooses them; `store` lists those where mass is
//   wanted, writes the new rows and plans. The tokens of sequences that have a few are folded:
//   `fold` and `merge`, once for every few tokens, so that what folding leaves for the merge stays
//   small; a merge plans the next fold. Those of sequences that have many go in tiles: `prefill`
//   and, where wanted, `mass`.
//
// The nodes read the step's work through AttentionOp::SetWork(), so that a graph is built once and
// used for every step of its shape.
#ifndef EBB_STEP_ATTENTION_NODES_H_
#define EBB_STEP_ATTENTION_NODES_H_

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ebb/policy.h"
#include "src/attention/attention.h"
#include "src/attention/decode.h"
#include "src/attention/prefill.h"
#include "src/model/decoder_graph.h"
#include "src/step/merged_rows.h"
#include "src/step/staged_sequences.h"
#include "src/step/step_work.h"

namespace ebb {

// kMaxFoldTokens is the most tokens of a sequence that a step folds, each with the arithmetic of a
// decode step. More tokens go in tiles, which are faster from about this number on.
inline constexpr int kMaxFoldTokens = 12;

// Returns whether the sequence's tokens go in tiles. All pieces of a prompt's chunk go alike.
[[nodiscard]] bool GoesInTiles(const SequenceStep& sequence, bool one_token_at_a_time);

// AttentionPath says which attention nodes a step needs.
struct AttentionPath {
  bool stores_in_fold = false;  // one token of each sequence, which reads all rows
  int num_folds = 0;            // per layer; 0: all tokens go in tiles
  bool has_tiles = false;
  bool tiles_have_mass = false;
  bool selects = false;  // some folded sequence has a selector

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
    // Describe the tokens of one fold. There may be room for more kv heads than a layer has.
    std::vector<RowsView> rows;              // [tokens, kv heads]
    std::vector<CompressedRows> compressed;  // [tokens, kv heads]
    // Give, by token and kv head, the places of the rows of each kind among all rows.
    std::vector<std::span<const uint32_t>> full_indices, compressed_indices;
    std::vector<DecodeQuery> queries;  // [tokens]
  };

  const AttentionKernel& kernel;
  const AttentionShape shape;
  const std::shared_ptr<DecodeStates> states = std::make_shared<DecodeStates>();
  // Has an element for each of an attention's folds, whose plan mostly fits the next attention too.
  // With one fold it has one for even and one for odd attentions, because one is planned while the
  // other is merged.
  std::deque<FoldScratch> folds;
  struct TileScratch {
    TileScratch(const AttentionKernel& kernel, const AttentionShape& shape)
        : attention(kernel, shape) {}
    PrefillAttention attention;
    std::vector<RowsView> rows;  // [kv heads], of the most of any layer
    bool has_mass = false;
    MergedRows merged;  // where the sequence has rows in T2
  };
  // Has an element for each sequence of the step that goes in tiles, in their order, and perhaps
  // more.
  std::deque<TileScratch> tiles;
  size_t num_tiles = 0;  // of this step
  // Selected lists the rows that a selector chose for a token's kv head; without ranges: all rows.
  struct Selected {
    std::vector<RowRange> ranges;
    std::vector<RowRange> foreseen;  // for the next token; none: not known
    std::vector<ChosenRows::Start> chunks;
    size_t num_rows = 0;         // in the ranges
    std::vector<uint32_t> rows;  // all of them, where mass is wanted
    int parts_ranked = 0;        // of this layer so far
  };
  std::vector<Selected> selected;                         // [tokens, most kv heads]
  std::vector<std::span<const uint32_t>> selected_spans;  // of `rows`
  std::vector<uint32_t> numbers;                          // [rows]: 0, 1, 2, ...
  double select_seconds = 0;                              // of the step so far
};

// AttentionOp makes the attention nodes of one graph and runs them. REQUIRES: it outlives the
// graph.
class AttentionOp final : public AttentionBuilder {
 public:
  AttentionOp(AttentionScratch* scratch, const AttentionPath& path);
  ~AttentionOp() override;

  ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) override;
  // Sets the step to run next. REQUIRES: it fits the graph's shape, whose tensors have memory; both
  // outlive the run.
  void SetWork(const StepWork* work, const StagedSequences* staged);
  static constexpr int kMostFolds = 8;

 private:
  // Layer is one attention. If `k` is null, an earlier attention has stored the layer's rows.
  struct Layer {
    AttentionOp* op = nullptr;
    int attention = 0;  // in the order of the graph
    int index = 0;      // of the layer that it reads
    int kv_heads = 0;
    ggml_tensor *q = nullptr, *k = nullptr, *v = nullptr, *k_before_rope = nullptr;
    ggml_tensor* sinks = nullptr;
    ggml_tensor* out = nullptr;
    // Returns the sinks, [num_q_heads]; null: there are none.
    [[nodiscard]] const float* Sinks() const;
    struct Fold {
      const Layer* layer = nullptr;
      int index = 0;
      // Return the first of the step's tokens in this fold, and the end of them.
      [[nodiscard]] int begin() const { return layer->op->FoldBegin(index); }
      [[nodiscard]] int end() const { return layer->op->FoldBegin(index + 1); }
      // Returns where a token's rows begin in lists of this fold, [tokens, kv heads].
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
  // Clears the results of tokens that only fill up the graph: nothing reads them, but they must be
  // numbers.
  void ClearFillers(const Layer& layer) const;
  // Waits for the layer's pages.
  void BeginLayer(const Layer& layer, int part) const;
  void StoreNewRows(const Layer& layer, int part, int num_parts) const;
  void StoreToken(const Layer& layer, const SequenceStep& sequence, int token, int kv_head) const;
  void StoreRow(const Layer& layer, const RowAddress& row, int token, int kv_head) const;
  void CopyRowSignals(const Layer& layer, const SequenceStep& sequence, int token, int kv_head,
                      SignalBuffers* signals) const;
  void CopySignals(const Layer& layer, const SequenceStep& sequence, int token) const;
  void PlanFold(const Layer::Fold& fold);
  void PlanToken(const Layer::Fold& fold, const SequenceStep& sequence, int token);
  // Leaves out rows before the token's window.
  void PlanWindow(const Layer::Fold& fold, const SequenceStep& sequence, int token) const;
  void PlanCompressed(const Layer::Fold& fold, const SequenceStep& sequence, int token) const;
  // Returns the queries of a token for a kv head, [query heads of the kv head, head_dim].
  [[nodiscard]] std::span<const float> QueriesOf(const Layer& layer, int token, int kv_head) const;
  // Returns where a token's kv heads begin in AttentionScratch::selected.
  [[nodiscard]] size_t FirstSelected(int token) const {
    return size_t(token) * scratch_->shape.num_kv_heads;
  }
  [[nodiscard]] AttentionScratch::Selected& SelectedOf(const SequenceStep& sequence,
                                                       int kv_head) const;
  void SelectRows(const Layer& layer, const SequenceStep& sequence, int kv_head) const;
  void ListSelected(const Layer& layer, const SequenceStep& sequence, int part,
                    int num_parts) const;
  // Reads the rows of T1 that the selectors have chosen, where they are not read ahead, and audits
  // the choices.
  void ReadSelected(const Layer& layer) const;
  // Returns the query head of the layer whose unread attention is measured in this step.
  [[nodiscard]] std::optional<MassAudit::Sample> SampleOf(const Layer& layer,
                                                          const SequenceStep& sequence) const;
  void Audit(const Layer& layer, const SequenceStep& sequence,
             const MassAudit::Sample& sample) const;
  void PlanSelected(const Layer::Fold& fold, const SequenceStep& sequence, int token) const;
  // Decompresses the rows in T2 of sequences in tiles.
  void DecompressRows(const Layer& layer, int part, int num_parts) const;
  void PlanTiles(const Layer& layer);

  AttentionScratch* const scratch_;
  const AttentionPath path_;
  const StepWork* work_ = nullptr;
  const StagedSequences* staged_ = nullptr;             // of the same step
  std::chrono::steady_clock::time_point select_begin_;  // of this layer
  std::deque<Layer> layers_;                            // in the order of the graph
};

}  // namespace ebb

#endif  // EBB_STEP_ATTENTION_NODES_H_
