// Scores a row by its future, as a control that no policy can beat by knowing more: by the
// attention that the row will receive in a full cache. At decode step t
//   s_i = sum over the decode steps after t of the mean over layers and query heads of A[i]
// The scorer "attention" sums the same means over the steps up to t ("Not All Thoughts Need HBM",
// Eq. 1). The attention is that of the full cache, not of a cache without the evicted rows, so at
// small budgets the oracle is no upper bound [ours]. Needs one position per row.
#include <algorithm>

#include "ebb/policy.h"
#include "src/policy/row_scores.h"
#include "src/policy/scorers.h"
#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

class OracleScorer final : public Scorer {
 public:
  explicit OracleScorer(const ScorerContext& context)
      : foresight_(*context.foresight), positions_(context.NumGroups()) {}

  std::string Name() const override { return "oracle"; }
  SignalNeeds Needs() const override { return {}; }
  void Append(int group, std::span<const Position> positions) override {
    std::ranges::copy(positions, positions_.Append(group, positions.size()).begin());
  }
  void Retain(int group, std::span<const uint32_t> kept) override {
    positions_.Retain(group, kept);
  }

  std::span<const float> Scores(int group) override {
    scores_.resize(positions_.num_rows(group));
    foresight_.AttentionLeft(group, positions_[group], scores_);
    for (float& score : scores_) score = FiniteOr0(score);
    return scores_;
  }

  Status SaveState(StateWriter* to) const override { return positions_.Save(to); }
  Status LoadState(StateReader* from) override { return positions_.Load(from); }

 private:
  const Foresight& foresight_;
  RowValues<Position> positions_;
  std::vector<float> scores_;  // of the group that was asked for last
};

}  // namespace

std::unique_ptr<Scorer> MakeOracleScorer(const ScorerContext& context) {
  return std::make_unique<OracleScorer>(context);
}

}  // namespace ebb
