// CpuStep computes steps on the processor, with one ggml graph for each shape of steps, which is
// built when first needed and kept while it is used, and with attention as nodes of ebb's own.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_CPU_STEP_H_
#define EBB_STEP_CPU_STEP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "ebb/lossless.h"
#include "hwy/aligned_allocator.h"
#include "src/base/ggml_deleter.h"
#include "src/model/loaded_model.h"
#include "src/step/attention_nodes.h"
#include "src/step/graph_cache.h"
#include "src/step/staged_sequences.h"
#include "src/step/step_backend.h"

namespace ebb {

// kTokensInKeptBuffers is the largest step whose compute buffers stay: steps that decode or verify
// a sequence use them again. The next such step frees the buffers of a larger one.
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
  [[nodiscard]] int64_t num_graphs_built() const override { return graphs_.num_built(); }
  [[nodiscard]] double select_seconds() const override { return scratch_.select_seconds; }

 private:
  struct GraphShape {
    DecoderGraphOptions options;
    AttentionPath path;
    bool is_of_several = false;  // sequences

    [[nodiscard]] bool operator==(const GraphShape&) const = default;
  };
  struct StepGraph {
    GraphShape shape;
    std::unique_ptr<AttentionOp> op;
    std::unique_ptr<ggml_context, GgmlDeleter> context;
    DecoderGraph graph;
  };
  struct DeferredLogits {
    bool one_token_at_a_time = false;
    std::unique_ptr<ggml_context, GgmlDeleter> context;
    LogitsGraph graph;
  };

  [[nodiscard]] bool HasStates() const { return model_.hparams.state_bytes > 0; }
  [[nodiscard]] GraphShape ShapeOf(const StepWork& work) const;
  Result<StepGraph*> GraphFor(const GraphShape& shape);
  Result<StepGraph*> Build(const GraphShape& shape);
  Status BuildDeferredLogits(size_t num_tokens, bool one_token_at_a_time);
  // Frees the buffers of a prompt's step before a step of at most kTokensInKeptBuffers tokens.
  void ShrinkBuffers(int num_tokens);
  void Reserve(const StepWork& work, const AttentionPath& path);
  void ReserveFolds(const StepWork& work, int num_folds);
  void ReserveSelection(const StepWork& work);
  ggml_status Compute(const StepWork& work, ggml_cgraph* graph, StepCosts* costs);
  void ReserveStates(const StepWork& work);
  // Gives the graph the states of the sequences. REQUIRES: ReserveStates() made room.
  void SetStates(const StepWork& work, StepGraph* graph);
  // Copies the hidden states of a sequence's tokens.
  static void CopyHidden(const SequenceStep& sequence, const StepGraph& graph,
                         SignalBuffers* signals);
  void CopyEvictionLogits(const SequenceStep& sequence, const StepGraph& graph,
                          SignalBuffers* signals) const;

  const LoadedModel& model_;
  const std::set<int> kv_head_counts_;  // that layers have
  const bool has_windows_;
  const int threads_;
  ggml_backend* const backend_;
  AttentionScratch scratch_;
  GraphCache<StepGraph> graphs_;
  int tokens_in_buffers_ = 0;  // of the largest step that they were made for
  DeferredLogits later_;
  hwy::AlignedFreeUniquePtr<std::byte[]> state_batch_;  // states of several sequences, side by side
  size_t state_batch_bytes_ = 0;
  std::vector<std::byte*> states_;        // of the sequences of a step
  std::vector<StagedStep> staged_steps_;  // of the same
  const ggml_tensor* logits_ = nullptr;   // those computed last
};

}  // namespace ebb

#endif  // EBB_STEP_CPU_STEP_H_
