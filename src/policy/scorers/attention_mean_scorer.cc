// Scores a row by its cumulative attention ("Not All Thoughts Need HBM", Eq. 1) divided by the
// number of decode steps in which the row could receive attention, including the step that created
// it. Without the divisor, an old row outranks a young one by age alone [ours: the divisor; the
// paper accumulates].
#include <algorithm>

#include "src/policy/scorers/column_scorer.h"

namespace ebb {
namespace {

class AttentionMeanScorer final : public ColumnScorer {
 public:
  using ColumnScorer::ColumnScorer;

  std::string Name() const override { return "attention_mean"; }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    if (!ShowsDecodeMass(signals, step)) return;
    num_steps_[group] += 1;
    AddMeanMass(signals, layout_.QueryHeadsOf(group), sums_[group]);
  }

  void EndFirstPrefill() override { sums_.SetAllToZero(); }

  std::span<const float> Scores(int group) override {
    const std::span<float> scores = scores_[group];
    const std::span<const float> sums = sums_[group];
    const std::span<const float> births = births_[group];
    for (size_t i = 0; i < scores.size(); ++i) {
      scores[i] = sums[i] / std::max(num_steps_[group] - births[i], 1.0f);
    }
    return scores;
  }

 protected:
  void InitRows(int group, std::span<const Position> positions) override {
    std::ranges::fill(births_[group].last(positions.size()), num_steps_[group]);
  }

 private:
  Column<float> sums_{this};
  Column<float> births_{this};           // in steps that showed mass
  GroupNumbers<float> num_steps_{this};  // exact up to 2^24
};

}  // namespace

std::unique_ptr<Scorer> MakeAttentionMeanScorer(const ScorerContext& context) {
  return std::make_unique<AttentionMeanScorer>(context);
}

}  // namespace ebb
