// Scores rows by the model's own eviction marks (Dynamic Memory Sparsification, "Inference-Time
// Hyper-Scaling", 3.2 and 3.3, and its published code). In each (layer, kv head), the eviction
// logit alpha that the model computes for token t + shift decides on the row of token t, so
//   s_t = -alpha_{t + shift}
// A score below 0 marks the row; the score is 0 until token t + shift has been computed. The model
// file gives the shift: 1 for the released models; 0 if a token decides on its own row; the
// window's length if rows are evicted as soon as they are marked (5.3). At layer and token
// granularity alpha is the mean over the group's (layer, kv head) pairs [ours: the source decides
// per head].
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "src/policy/scorers/column_scorer.h"
#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

class DmsScorer final : public ColumnScorer {
 public:
  explicit DmsScorer(const ScorerContext& context)
      : ColumnScorer(context), shift_(context.eviction_shift) {}

  std::string Name() const override {
    return shift_ == 1 ? "dms" : fmt::format("dms:shift={}", shift_);
  }
  SignalNeeds Needs() const override { return {.eviction_logits = true}; }

  void ObserveGroup(int group, const GroupSignals&, const StepSignals& step) override {
    const std::span<float> scores = scores_[group];
    const std::span<const Position> positions = positions_[group];
    const Position first = step.first_position - shift_;
    // Rows may be missing in between, because a roll-back or another placement removed them.
    for (size_t row = FirstRowFrom(group, first); row < scores.size(); ++row) {
      const int64_t token = int64_t{positions[row]} - first;
      // `token` is below 0 only if a forged saved state has positions out of order.
      if (token < 0 || token >= step.num_tokens) break;
      scores[row] = 0.0f - MeanLogit(group, static_cast<int>(token), step);
    }
  }

 protected:
  void InitRows(int group, std::span<const Position> positions) override {
    if (positions.empty()) return;
    std::ranges::copy(positions, positions_[group].last(positions.size()).begin());
    // After a roll-back, other tokens take the place of those that decided on these rows, so the
    // rows are undecided again.
    const size_t undecided = FirstRowFrom(group, positions.front() - shift_);
    std::ranges::fill(scores_[group].subspan(undecided), 0.0f);
  }

 private:
  // Returns the first row at or after `position`. Searches only as many of the newest rows as there
  // are positions from there on, because a search through all rows would wait for memory.
  [[nodiscard]] size_t FirstRowFrom(int group, Position position) {
    const std::span<const Position> positions = positions_[group];
    if (positions.empty()) return 0;
    const int64_t most = int64_t{positions.back()} - position + 1;
    const auto size = static_cast<int64_t>(positions.size());
    const auto begin = positions.begin() + (size - std::clamp<int64_t>(most, 0, size));
    return std::lower_bound(begin, positions.end(), position) - positions.begin();
  }

  // Returns the mean eviction logit of the group. A NaN becomes 0, which marks nothing.
  [[nodiscard]] float MeanLogit(int group, int token, const StepSignals& step) const {
    float sum = 0;
    const int first = layout_.FirstStreamOf(group), streams = layout_.NumStreamsOf(group);
    for (int s = first; s < first + streams; ++s) {
      const int layer = layout_.LayerOf(s);
      const int at = token * layout_.NumKvHeads(layer) + layout_.KvHeadOf(s);
      sum += step.eviction_logits[layer][at];
    }
    return FiniteOr0(sum / static_cast<float>(streams));
  }

  const int shift_;  // tokens
  Column<Position> positions_{this};
};

}  // namespace

std::unique_ptr<Scorer> MakeDmsScorer(const ScorerContext& context) {
  return std::make_unique<DmsScorer>(context);
}

}  // namespace ebb
