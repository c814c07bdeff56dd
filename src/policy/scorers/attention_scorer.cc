// Cumulative attention ("Not All Thoughts Need HBM", 3.1, Eq. 1): after each decode step
//   s_i += mean over the layers without NaN and over all query heads of A[i]
// with s = 0 when the first prefill ends (Algorithm 1, line 1). At layer or head granularity the
// mean is over what belongs to the group [ours: the paper has one score per token]. Prefill steps
// of later turns add nothing.
#include "src/policy/scorers/row_scorer.h"

namespace ebb {
namespace {

class AttentionScorer final : public RowScorer {
 public:
  explicit AttentionScorer(const ScorerContext& context)
      : RowScorer(context), layout_(context.Layout()) {}

  std::string Name() const override { return "attention"; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }

  void Observe(int group, const GroupSignals& signals, const StepSignals& step) override {
    if (ShowsDecodeMass(signals, step)) {
      AddMeanMass(signals, layout_.QueryHeadsOf(group), scores_[group]);
    }
  }

  void EndFirstPrefill() override { scores_.SetAllToZero(); }

 private:
  const AttentionLayout layout_;
};

}  // namespace

std::unique_ptr<Scorer> MakeAttentionScorer(const ScorerContext& context) {
  return std::make_unique<AttentionScorer>(context);
}

}  // namespace ebb
