// Scores a row by its position, so that the oldest is evicted first. A score is exact up to
// position 2^24.
#include <algorithm>

#include "src/policy/scorers/column_scorer.h"

namespace ebb {
namespace {

class RecencyScorer final : public ColumnScorer {
 public:
  using ColumnScorer::ColumnScorer;

  std::string Name() const override { return "recency"; }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {}; }

 protected:
  void InitRows(int group, std::span<const Position> positions) override {
    std::ranges::copy(positions, scores_[group].last(positions.size()).begin());
  }
};

}  // namespace

std::unique_ptr<Scorer> MakeRecencyScorer(const ScorerContext& context) {
  return std::make_unique<RecencyScorer>(context);
}

}  // namespace ebb
