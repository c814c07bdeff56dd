// Cumulative attention ("Not All Thoughts Need HBM", 3.1, Eq. 1): after each decode step
//   s_i += mean over the layers without NaN and over all query heads of A[i]
// with s = 0 when the first prefill ends (Algorithm 1, line 1). At layer or head granularity the
// mean is over what belongs to the group [ours: the paper has one score per token]. Prefill steps
// of later turns add nothing.
#include <cassert>

#include "src/policy/row_scores.h"
#include "src/policy/score_loops.h"
#include "src/policy/scorers.h"

namespace ebb {
namespace {

class AttentionScorer final : public Scorer {
 public:
  explicit AttentionScorer(const ScorerContext& context)
      : query_heads_per_group_(context.QueryHeadsPerGroup()), scores_(context.NumGroups()) {}

  std::string Name() const override { return "attention"; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }
  void Append(int group, std::span<const Position> positions) override {
    scores_.Append(group, positions.size());
  }

  void Observe(int group, const GroupSignals& signals, const StepSignals& step) override {
    if (step.kind != StepKind::kDecode || signals.mass.empty()) return;
    if (signals.num_layers_counted == 0) return;
    if (signals.num_mass_heads > 1) {
      ObserveHeads(group, signals);
    } else {
      AddMass(signals.mass, Weight(signals.num_layers_counted), scores_[group]);
    }
  }

  void Retain(int group, std::span<const uint32_t> kept) override { scores_.Retain(group, kept); }
  void EndFirstPrefill() override { scores_.SetAllToZero(); }
  std::span<const float> Scores(int group) override { return scores_[group]; }
  Status SaveState(StateWriter* to) const override { return scores_.Save(to); }
  Status LoadState(StateReader* from) override { return scores_.Load(from); }

 private:
  float Weight(int num_layers) const {
    return 1.0f / (static_cast<float>(num_layers) * static_cast<float>(query_heads_per_group_));
  }

  // Somebody else asked for mass by head; layers that do not count have none.
  void ObserveHeads(int group, const GroupSignals& signals) {
    const size_t num_rows = signals.num_rows;
    for (int head = 0; head < signals.num_mass_heads; ++head) {
      AddMass(signals.mass.subspan(head * num_rows, num_rows), Weight(signals.num_layers_counted),
              scores_[group]);
    }
  }

  const int query_heads_per_group_;  // of one layer
  RowScores scores_;
};

}  // namespace

std::unique_ptr<Scorer> MakeAttentionScorer(const ScorerContext& context) {
  return std::make_unique<AttentionScorer>(context);
}

}  // namespace ebb
