// Scores a row by its cumulative attention ("Not All Thoughts Need HBM", 3.1, Eq. 1): after each
// decode step
//   s_i += mean over the layers without NaN and over all query heads of A[i]
// with s = 0 when the first prefill ends (Algorithm 1, line 1). At layer or head granularity the
// mean is over the group's layers and heads [ours: the paper has one score per token]. Prefill
// steps of later turns add nothing.
#include <algorithm>

#include "src/policy/scorers/column_scorer.h"

namespace ebb {
namespace {

class AttentionScorer final : public ColumnScorer {
 public:
  using ColumnScorer::ColumnScorer;

  std::string Name() const override { return "attention"; }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    AddDecodeMass(signals, step, layout_.QueryHeadsOf(group), scores_[group]);
  }
  MassTotal Total() const override { return MassTotal::kDecodeSum; }
  void TakeTotal(int group, std::span<const float> total) override {
    std::ranges::copy(total, scores_[group].begin());
  }

  void EndFirstPrefill() override { scores_.SetAllToZero(); }
};

}  // namespace

std::unique_ptr<Scorer> MakeAttentionScorer(const ScorerContext& context) {
  return std::make_unique<AttentionScorer>(context);
}

}  // namespace ebb
