// The decision of Dynamic Memory Sparsification (003, 3.2 and 3.3, and its published code): a row
// whose score is below 0 stays visible to the queries that are at most `window` tokens after it,
// and is evicted when the next one would be further. So in prefill and decode alike, whatever the
// size of the prefill steps: where a row goes in the midst of one, the later queries of the step do
// not see it. The model decides how much goes: there is no budget, and rows that are not marked
// stay.
//
// The eviction logit of token t + shift decides on the row of token t. The last query of a step of
// n tokens from `first` on, first + n - 1, must not see marked rows before first + n - 1 - window.
// Their logits, up to that of token first + n - 2 - window + shift, are there when the step begins
// if n is at most window - shift + 1: so long may a step be, and all that it must hide is known.
// The rows that it brings itself are then seen by all of it.
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/placements.h"
#include "src/policy/score_loops.h"

namespace ebb {
namespace {

class DelayedPlacement final : public StatelessPlacement {
 public:
  DelayedPlacement(int window, int shift) : window_(window), shift_(shift) {}

  std::string Name() const override { return fmt::format("delayed:window={}", window_); }
  bool NeedsScores() const override { return true; }
  bool Due(const PlacementInput& input, size_t num_rows) const override {
    return num_rows > 0 && input.next_position > window_;
  }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const size_t num_old = NumUnseenBy(input.next_position, input);
    // If no row is marked, this one pass at the speed of memory is all work.
    if (!(LowestScore(input.scores.first(num_old)) < 0)) return;
    for (uint32_t row = 0; row < num_old; ++row) {
      if (input.scores[row] < 0) moves->push_back({.row = row, .to = Tier::kT3});
    }
  }

  int LongestStep() const override { return window_ - shift_ + 1; }
  void FindExpiring(const PlacementInput& input, std::vector<Expiry>* expiring) const override {
    const size_t num_old = NumUnseenBy(input.next_position - 1, input);
    for (uint32_t row = 0; row < num_old; ++row) {
      if (input.scores[row] < 0) expiring->push_back({row, input.positions[row] + window_});
    }
  }

 private:
  // The rows that a query at this position would not see were they marked.
  [[nodiscard]] size_t NumUnseenBy(Position query, const PlacementInput& input) const {
    const auto& positions = input.positions;
    return std::lower_bound(positions.begin(), positions.end(), query - window_) -
           positions.begin();
  }

  const int window_;  // tokens
  const int shift_;   // tokens
};

}  // namespace

Result<std::unique_ptr<Placement>> MakeDelayedPlacement(const PlacementOptions& options) {
  const int window = options.window.value_or(options.eviction_window);
  if (window < 1) {
    return InvalidArgument(
        fmt::format("policy \"{}\": window {}: expected 1 or more", options.policy, window));
  }
  if (window < options.eviction_shift) {
    return InvalidArgument(
        fmt::format("policy \"{}\": window {}: expected {} or more: in this model the token that "
                    "marks a row is {} tokens after it (attention.dms.shift)",
                    options.policy, window, options.eviction_shift, options.eviction_shift));
  }
  return std::unique_ptr<Placement>(
      std::make_unique<DelayedPlacement>(window, options.eviction_shift));
}

}  // namespace ebb
