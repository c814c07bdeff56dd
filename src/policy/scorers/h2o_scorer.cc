// Scores a row as H2O does (Zhang et al., 2023, as in its published code): by the mass that it
// received from all queries so far, those of prefill included, summed over the query heads of its
// group:
//   s_i += sum over queries and heads of A[i]
#include "src/policy/scorers/column_scorer.h"

namespace ebb {
namespace {

class H2oScorer final : public ColumnScorer {
 public:
  using ColumnScorer::ColumnScorer;

  std::string Name() const override { return "h2o"; }
  bool GroupsAreIndependent() const override { return true; }
  SignalNeeds Needs() const override {
    return {.mass = MassNeed::kSummed, .mass_in_prefill = true};
  }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals&) override {
    if (signals.mass.empty()) return;
    for (int head = 0; head < signals.num_mass_heads; ++head) {
      AddMass(MassOfHead(signals, head), 1.0f, scores_[group]);
    }
  }
};

}  // namespace

std::unique_ptr<Scorer> MakeH2oScorer(const ScorerContext& context) {
  return std::make_unique<H2oScorer>(context);
}

}  // namespace ebb
