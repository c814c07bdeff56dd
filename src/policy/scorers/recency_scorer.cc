// A row's score is its position: the oldest goes first. Exact up to position 2^24.
#include <algorithm>

#include "src/policy/row_scores.h"
#include "src/policy/scorers.h"

namespace ebb {
namespace {

class RecencyScorer final : public Scorer {
 public:
  explicit RecencyScorer(const ScorerContext& context) : scores_(context.NumGroups()) {}

  std::string Name() const override { return "recency"; }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {}; }
  void Append(int group, std::span<const Position> positions) override {
    std::copy(positions.begin(), positions.end(), scores_.Append(group, positions.size()).begin());
  }
  void Retain(int group, std::span<const uint32_t> kept) override { scores_.Retain(group, kept); }
  std::span<const float> Scores(int group) override { return scores_[group]; }
  Status SaveState(StateWriter* to) const override { return scores_.Save(to); }
  Status LoadState(StateReader* from) override { return scores_.Load(from); }

 private:
  RowScores scores_;
};

}  // namespace

std::unique_ptr<Scorer> MakeRecencyScorer(const ScorerContext& context) {
  return std::make_unique<RecencyScorer>(context);
}

}  // namespace ebb
