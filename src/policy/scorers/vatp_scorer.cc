// Scores a row as VATP does (Guo et al., 2024, as in its published code): per layer and head, by
// the mass from all queries so far, those of prefill included, times the L1 norm of the row's
// value,
//   s_i += sum over queries and heads of A[i] |v_i|_1
// At layer and token granularity, which "Not All Thoughts Need HBM" (4.11) needs and does not
// define, the norm is the mean over the group's (layer, kv head) pairs [ours].
#include "src/policy/scorers/column_scorer.h"
#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

class VatpScorer final : public ColumnScorer {
 public:
  using ColumnScorer::ColumnScorer;

  std::string Name() const override { return "vatp"; }
  bool GroupsAreIndependent() const override { return true; }
  SignalNeeds Needs() const override {
    return {.mass = MassNeed::kSummed, .mass_in_prefill = true, .values = true};
  }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    const int streams = layout_.NumStreamsOf(group), first = layout_.FirstStreamOf(group);
    const std::span<float> new_norms = norms_[group].last(step.num_tokens);
    for (int token = 0; token < step.num_tokens; ++token) {
      float norm = 0;
      for (int s = 0; s < streams; ++s) {
        norm += L1Norm(VectorOf(step.values, layout_, first + s, token));
      }
      new_norms[token] = norm / static_cast<float>(streams);
    }
    if (signals.mass.empty()) return;
    for (int head = 0; head < signals.num_mass_heads; ++head) {
      AddWeightedMass(MassOfHead(signals, head), norms_[group], scores_[group]);
    }
  }

 private:
  Column<float> norms_{this};  // of values
};

}  // namespace

std::unique_ptr<Scorer> MakeVatpScorer(const ScorerContext& context) {
  return std::make_unique<VatpScorer>(context);
}

}  // namespace ebb
