// Attention over the last N queries: the mean, over the last N decode steps, of the mean mass over
// layers and query heads. "Not All Thoughts Need HBM" (3.1) argues for the whole history and
// against such windows; R-KV's is of 8. [ours: N is 32 unless given; steps before a row's birth
// count as 0.] It keeps N floats per row and group.
#include <fmt/format.h>

#include "src/policy/scorers/row_scorer.h"

namespace ebb {
namespace {

constexpr int kDefaultLast = 32;

class AttentionRecentScorer final : public RowScorer {
 public:
  explicit AttentionRecentScorer(const ScorerContext& context)
      : RowScorer(context),
        layout_(context.Layout()),
        last_(context.params.Int("last", kDefaultLast)),
        ring_(size_t(context.NumGroups()) * last_),
        num_steps_(context.NumGroups()) {}

  std::string Name() const override { return fmt::format("attention_recent:last={}", last_); }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }

  void Append(int group, std::span<const Position> positions) override {
    RowScorer::Append(group, positions);
    for (int slot = 0; slot < last_; ++slot) ring_.Append(Slot(group, slot), positions.size());
  }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    if (!ShowsDecodeMass(signals, step)) return;
    const std::span<float> newest = ring_[Slot(group, static_cast<int>(num_steps_[group] % last_))];
    std::ranges::fill(newest, 0.0f);
    AddMeanMass(signals, layout_.QueryHeadsOf(group), newest);
    ++num_steps_[group];
  }

  void Retain(int group, std::span<const uint32_t> kept) override {
    RowScorer::Retain(group, kept);
    for (int slot = 0; slot < last_; ++slot) ring_.Retain(Slot(group, slot), kept);
  }

  std::span<const float> Scores(int group) override {
    const std::span<float> scores = scores_[group];
    std::ranges::fill(scores, 0.0f);
    for (int slot = 0; slot < last_; ++slot) {
      AddMass(ring_[Slot(group, slot)], 1.0f / static_cast<float>(last_), scores);
    }
    return scores;
  }

  Status SaveState(StateWriter* to) const override {
    EBB_RETURN_IF_ERROR(RowScorer::SaveState(to));
    EBB_RETURN_IF_ERROR(ring_.Save(to));
    to->Numbers<int64_t>(num_steps_);
    return OkStatus();
  }

  Status LoadState(StateReader* from) override {
    EBB_RETURN_IF_ERROR(RowScorer::LoadState(from));
    EBB_RETURN_IF_ERROR(ring_.Load(from));
    EBB_RETURN_IF_ERROR(LoadList(from, &num_steps_));
    for (int group = 0; group < static_cast<int>(num_steps_.size()); ++group) {
      if (num_steps_[group] < 0) from->Fail("a negative number of steps");
      for (int slot = 0; slot < last_; ++slot) {
        if (ring_.num_rows(Slot(group, slot)) != scores_.num_rows(group)) {
          from->Fail("steps of different numbers of rows");
        }
      }
    }
    return from->status();
  }

 private:
  [[nodiscard]] int Slot(int group, int slot) const { return group * last_ + slot; }

  const AttentionLayout layout_;
  const int last_;
  RowScores ring_;                  // [num_groups, last]
  std::vector<int64_t> num_steps_;  // [num_groups]
};

}  // namespace

std::unique_ptr<Scorer> MakeAttentionRecentScorer(const ScorerContext& context) {
  return std::make_unique<AttentionRecentScorer>(context);
}

}  // namespace ebb
