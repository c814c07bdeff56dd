// Decides as Dynamic Memory Sparsification does ("Inference-Time Hyper-Scaling", 3.2 and 3.3, and
// its published code): a row with a score below 0 is visible to the queries at most `window` tokens
// after it, and is evicted before the first query after those. This holds in prefill and decode
// alike, for any size of prefill steps: if a row expires within a step, the later queries of that
// step do not see it. The model decides how many rows are evicted: there is no budget, and unmarked
// rows stay.
//
// The eviction logit of token t + shift marks the row of token t. In a step of n tokens from
// `first` on, the last query, at first + n - 1, must not see marked rows before first + n - 1 -
// window. Their marks come from tokens up to first + n - 2 - window + shift, which precede the step
// if n is at most window - shift + 1. Therefore LongestStep() returns that number: every row that
// expires within a step is then known before the step, and the step's own rows are visible to all
// of its queries.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/policy/placements.h"
#include "src/policy/score_loops.h"

namespace ebb {
namespace {

class DelayedPlacement final : public StatelessPlacement {
 public:
  DelayedPlacement(int window, int shift, double expected_compression)
      : window_(window), shift_(shift), expected_compression_(expected_compression) {}

  std::string Name() const override { return fmt::format("delayed:window={}", window_); }
  bool NeedsScores() const override { return true; }
  bool Due(const PlacementInput& input, size_t num_rows) const override {
    return num_rows > 0 && input.next_position > window_;
  }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const size_t num_old = NumUnseenBy(input.next_position, input);
    // Reads only the scores if no row is marked, which is the common case.
    if (!(LowestScore(input.scores.first(num_old)) < 0)) return;
    for (uint32_t row = 0; row < num_old; ++row) {
      if (input.scores[row] < 0) moves->push_back({.row = row, .to = Tier::kT3});
    }
  }

  int LongestStep() const override { return window_ - shift_ + 1; }
  int DecidedAfter() const override { return window_; }
  size_t RowsAfter(size_t num_tokens, size_t /*num_given*/, StepKind /*kind*/) const override {
    const auto window = static_cast<size_t>(window_);
    if (num_tokens <= window) return num_tokens;
    return window + static_cast<size_t>(std::ceil(static_cast<double>(num_tokens - window) /
                                                  expected_compression_));
  }
  void FindExpiring(const PlacementInput& input, std::vector<Expiry>* expiring) const override {
    const size_t num_old = NumUnseenBy(input.next_position - 1, input);
    for (uint32_t row = 0; row < num_old; ++row) {
      if (input.scores[row] < 0) expiring->push_back({row, input.positions[row] + window_});
    }
  }

 private:
  // Returns how many of the oldest rows a query at this position may not see if they are marked.
  [[nodiscard]] size_t NumUnseenBy(Position query, const PlacementInput& input) const {
    const auto& positions = input.positions;
    return std::lower_bound(positions.begin(), positions.end(), query - window_) -
           positions.begin();
  }

  const int window_;  // tokens
  const int shift_;   // tokens
  const double expected_compression_;
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
  return std::unique_ptr<Placement>(std::make_unique<DelayedPlacement>(
      window, options.eviction_shift, std::max(options.expected_compression, 1.0)));
}

}  // namespace ebb
