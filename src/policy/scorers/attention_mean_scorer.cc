// Cumulative attention ("Not All Thoughts Need HBM", Eq. 1) divided by the decode steps in which
// the row could receive it, the step of its birth included: without it an old row outranks a young
// one by age alone [ours: the divisor; the paper accumulates].
#include <algorithm>

#include "src/policy/scorers/row_scorer.h"

namespace ebb {
namespace {

class AttentionMeanScorer final : public RowScorer {
 public:
  explicit AttentionMeanScorer(const ScorerContext& context)
      : RowScorer(context),
        layout_(context.Layout()),
        sums_(context.NumGroups()),
        births_(context.NumGroups()),
        num_steps_(context.NumGroups()) {}

  std::string Name() const override { return "attention_mean"; }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }

  void Append(int group, std::span<const Position> positions) override {
    RowScorer::Append(group, positions);
    sums_.Append(group, positions.size());
    std::ranges::fill(births_.Append(group, positions.size()), num_steps_[group]);
  }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    if (!ShowsDecodeMass(signals, step)) return;
    num_steps_[group] += 1;
    AddMeanMass(signals, layout_.QueryHeadsOf(group), sums_[group]);
  }

  void Retain(int group, std::span<const uint32_t> kept) override {
    RowScorer::Retain(group, kept);
    sums_.Retain(group, kept);
    births_.Retain(group, kept);
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

  Status SaveState(StateWriter* to) const override {
    EBB_RETURN_IF_ERROR(RowScorer::SaveState(to));
    EBB_RETURN_IF_ERROR(sums_.Save(to));
    EBB_RETURN_IF_ERROR(births_.Save(to));
    to->Numbers<float>(num_steps_);
    return OkStatus();
  }

  Status LoadState(StateReader* from) override {
    EBB_RETURN_IF_ERROR(RowScorer::LoadState(from));
    EBB_RETURN_IF_ERROR(sums_.Load(from));
    EBB_RETURN_IF_ERROR(births_.Load(from));
    EBB_RETURN_IF_ERROR(LoadList(from, &num_steps_));
    for (int group = 0; group < static_cast<int>(num_steps_.size()); ++group) {
      const size_t rows = scores_.num_rows(group);
      if (sums_.num_rows(group) != rows || births_.num_rows(group) != rows) {
        from->Fail("parts of scores of different lengths");
      }
    }
    return from->status();
  }

 private:
  const AttentionLayout layout_;
  RowScores sums_;
  RowScores births_;              // in steps that showed mass
  std::vector<float> num_steps_;  // [num_groups], exact up to 2^24
};

}  // namespace

std::unique_ptr<Scorer> MakeAttentionMeanScorer(const ScorerContext& context) {
  return std::make_unique<AttentionMeanScorer>(context);
}

}  // namespace ebb
