// Scores a row as TOVA does (Oren et al., 2024, as in its published code): by the attention that
// the last query pays to it,
//   s_i = mean over the query heads of A[last query, i]
// regardless of earlier queries. At token granularity the mean is over layers too [ours: the source
// decides layer by layer].
#include <algorithm>

#include "src/policy/scorers/column_scorer.h"

namespace ebb {
namespace {

class TovaScorer final : public ColumnScorer {
 public:
  using ColumnScorer::ColumnScorer;

  std::string Name() const override { return "tova"; }
  bool GroupsAreIndependent() const override { return true; }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    if (!ShowsDecodeMass(signals, step)) return;
    std::ranges::fill(scores_[group], 0.0f);
    AddMeanMass(signals, layout_.QueryHeadsOf(group), scores_[group]);
  }
};

}  // namespace

std::unique_ptr<Scorer> MakeTovaScorer(const ScorerContext& context) {
  return std::make_unique<TovaScorer>(context);
}

}  // namespace ebb
