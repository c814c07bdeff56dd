// Dynamic Memory Sparsification ("Inference-Time Hyper-Scaling", 003, 3.2 and 3.3, and its
// published code): the model itself marks rows. The eviction logit alpha that is computed with
// token t + shift decides on the row of token t of that (layer, kv head), so
//   s_t = -alpha_{t + shift}
// which is below 0 where the row is marked; 0 until token t + shift is there. The model says its
// shift: 1 for the released ones; 0 where a token decides on its own row; as long as the window
// where rows go at once when they are marked (003, 5.3). At layer and token granularity alpha is
// the mean over the group's (layer, kv head) pairs [ours: the source decides per head].
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
    // Rows that a roll-back or another placement took leave gaps.
    for (size_t row = FirstRowFrom(group, first); row < scores.size(); ++row) {
      const int64_t token = int64_t{positions[row]} - first;
      // Below 0 in a made-up state alone, whose positions may be in any order.
      if (token < 0 || token >= step.num_tokens) break;
      scores[row] = 0.0f - MeanLogit(group, static_cast<int>(token), step);
    }
  }

 protected:
  void InitRows(int group, std::span<const Position> positions) override {
    if (positions.empty()) return;
    std::ranges::copy(positions, positions_[group].last(positions.size()).begin());
    // After a roll-back the tokens that decided on the last rows are gone; others follow.
    const size_t undecided = FirstRowFrom(group, positions.front() - shift_);
    std::ranges::fill(scores_[group].subspan(undecided), 0.0f);
  }

 private:
  // The first row at this position or behind it, looked for among no more rows than there are
  // positions from there on: a search through all of them would wait for memory.
  [[nodiscard]] size_t FirstRowFrom(int group, Position position) {
    const std::span<const Position> positions = positions_[group];
    if (positions.empty()) return 0;
    const int64_t most = int64_t{positions.back()} - position + 1;
    const auto size = static_cast<int64_t>(positions.size());
    const auto begin = positions.begin() + (size - std::clamp<int64_t>(most, 0, size));
    return std::lower_bound(begin, positions.end(), position) - positions.begin();
  }

  // NaN marks nothing.
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
