// CpuStep computes steps on the processor. It builds one ggml graph for each shape of step, keeps
// the graphs in use, and adds ebb's own attention nodes to them.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_CPU_CPU_STEP_H_
#define EBB_STEP_CPU_CPU_STEP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "ebb/lossless.h"
#include "hwy/aligned_allocator.h"
#include "src/base/ggml_deleter.h"
#include "src/model/loaded/loaded_model.h"
#include "src/step/cpu/attention_nodes.h"
#include "src/step/work/graph_cache.h"
#include "src/step/work/staged_sequences.h"
#include "src/step/work/step_backend.h"

namespace ebb {

// kTokensInKeptBuffers is the largest step, in tokens, whose compute buffers are kept. Steps that
// decode or verify use them again; buffers of larger steps (prompts) are freed before the next such
// step.
inline constexpr int kTokensInKeptBuffers = kMostDrafted;

class CpuStep final : public StepBackend {
 public:
  // `backend` is ggml's backend of the processor, on `threads` threads. REQUIRES: model and backend
  // outlive this.
  CpuStep(const LoadedModel& model, const AttentionKernel& kernel, const AttentionShape& shape,
          ggml_backend* backend, int threads);

  Status Run(const StepWork& work, StepCosts* costs) override;
  [[nodiscard]] std::span<const float> logits(size_t i) const override;
  [[nodiscard]] std::span<const float> outputs() const override;
  [[nodiscard]] size_t OutputFloats() const override { return ebb::OutputFloats(model_); }
  Status ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time) override;
  Result<std::span<const float>> EncodeFeatures(std::span<const float> features) override;
  [[nodiscard]] int64_t num_graphs_built() const override { return graphs_.num_built(); }
  [[nodiscard]] double select_seconds() const override { return scratch_.select_seconds; }

 private:
  struct GraphShape {
    DecoderGraphOptions options;
    AttentionPath path;
    bool is_of_several = false;  // the step has several sequences

    [[nodiscard]] bool operator==(const GraphShape&) const = default;
  };
  struct StepGraph {
    GraphShape shape;
    std::unique_ptr<AttentionOp> op;
    std::unique_ptr<ggml_context, GgmlDeleter> context;
    DecoderGraph graph;
  };
  // KeptRowGraph keeps the RowGraph of the last call.
  struct KeptRowGraph {
    int num_tokens = 0;  // 0: there is none
    bool one_token_at_a_time = false;
    std::unique_ptr<ggml_context, GgmlDeleter> context;
    RowGraph graph;
  };

  [[nodiscard]] bool HasStates() const { return model_.hparams.state_bytes > 0; }
  // Returns whether the step keeps the states after each token of the sequence. The sequence is
  // then the step's only one. REQUIRES: HasStates().
  [[nodiscard]] static bool KeepsStates(const SequenceStep& sequence) {
    return sequence.ahead != nullptr && sequence.num_tokens() > 1;
  }
  [[nodiscard]] GraphShape ShapeOf(const StepWork& work) const;
  Result<StepGraph*> GraphFor(const GraphShape& shape);
  Result<StepGraph*> Build(const GraphShape& shape);
  // Makes *kept a graph of `num_tokens` tokens by build(context) unless it is one already.
  template <typename Builder>
  Status BuildRows(int num_tokens, bool one_token_at_a_time, KeptRowGraph* kept,
                   const Builder& build);
  // Computes the graph's output rows from `rows`.
  Status ComputeRows(const KeptRowGraph& kept, std::span<const float> rows);
  // Frees the compute buffers of a larger step if `num_tokens` is at most kTokensInKeptBuffers.
  void ShrinkBuffers(int num_tokens);
  void Reserve(const StepWork& work, const AttentionPath& path);
  void ReserveFolds(const StepWork& work, int num_folds);
  void ReserveSelection(const StepWork& work);
  ggml_status Compute(const StepWork& work, ggml_cgraph* graph, StepCosts* costs);
  void ReserveStates(const StepWork& work);
  // Connects the sequences' recurrent states to the graph's state inputs. REQUIRES: ReserveStates()
  // succeeded for this step.
  void SetStates(const StepWork& work, StepGraph* graph);
  // Copies the hidden states of a sequence's tokens from the graph's outputs to its signals.
  static void CopyHidden(const SequenceStep& sequence, const StepGraph& graph,
                         SignalBuffers* signals);
  void CopyEvictionLogits(const SequenceStep& sequence, const StepGraph& graph,
                          SignalBuffers* signals) const;

  const LoadedModel& model_;
  const std::set<int> kv_head_counts_;  // the different numbers of kv heads of layers
  const bool has_windows_;
  const int threads_;
  ggml_backend* const backend_;
  AttentionScratch scratch_;
  GraphCache<StepGraph> graphs_;
  int tokens_in_buffers_ = 0;  // tokens of the largest step that the buffers were made for
  KeptRowGraph later_;         // computes deferred logits
  KeptRowGraph features_;      // computes the rows of EncodeFeatures()
  hwy::AlignedFreeUniquePtr<std::byte[]> state_batch_;  // a step's states, side by side
  size_t state_batch_bytes_ = 0;
  std::vector<std::byte*> states_;        // one for each sequence of the step
  std::vector<StagedStep> staged_steps_;  // one for each sequence of the step
  const ggml_tensor* logits_ = nullptr;   // the logits computed last
};

}  // namespace ebb

#endif  // EBB_STEP_CPU_CPU_STEP_H_
