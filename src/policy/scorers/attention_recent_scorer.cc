// Scores a row by its mean attention over the last N decode steps, which is itself the mean over
// layers and query heads. "Not All Thoughts Need HBM" (3.1) argues for the whole history and
// against such windows; R-KV uses 8 steps. [ours: N is 32 unless given; steps before the row
// existed count as 0.] Needs N floats per row and group.
#include <fmt/format.h>

#include "src/policy/scorers/column_scorer.h"

namespace ebb {
namespace {

constexpr int kDefaultLast = 32;

class AttentionRecentScorer final : public ColumnScorer {
 public:
  explicit AttentionRecentScorer(const ScorerContext& context)
      : ColumnScorer(context),
        last_(context.params.Int("last", kDefaultLast)),
        ring_(this, FirstSlots()) {}

  std::string Name() const override { return fmt::format("attention_recent:last={}", last_); }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    if (!ShowsDecodeMass(signals, step)) return;
    const std::span<float> newest = ring_[Slot(group, static_cast<int>(num_steps_[group] % last_))];
    std::ranges::fill(newest, 0.0f);
    AddMeanMass(signals, layout_.QueryHeadsOf(group), newest);
    ++num_steps_[group];
  }

  std::span<const float> Scores(int group) override {
    const std::span<float> scores = scores_[group];
    std::ranges::fill(scores, 0.0f);
    for (int slot = 0; slot < last_; ++slot) {
      AddMass(ring_[Slot(group, slot)], 1.0f / static_cast<float>(last_), scores);
    }
    return scores;
  }

 private:
  [[nodiscard]] int Slot(int group, int slot) const { return group * last_ + slot; }
  [[nodiscard]] std::vector<int> FirstSlots() const {
    std::vector<int> first;
    for (int group = 0; group <= num_groups(); ++group) first.push_back(Slot(group, 0));
    return first;
  }

  const int last_;
  Column<float> ring_;  // [num_groups, last]
  GroupNumbers<int64_t> num_steps_{this};
};

}  // namespace

std::unique_ptr<Scorer> MakeAttentionRecentScorer(const ScorerContext& context) {
  return std::make_unique<AttentionRecentScorer>(context);
}

}  // namespace ebb
