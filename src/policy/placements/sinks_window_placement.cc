// Evicts as StreamingLLM does (Xiao et al., 2023, as in its published code): the first `sinks`
// positions of the sequence and the newest `window` rows stay, and all rows in between are evicted,
// after each step and after each prefill chunk. This placement does not re-rotate keys.
//
// A budget B is sinks + window. A percentage refers to the tokens after the sinks, rounded up.
// Without a budget sinks is 4 and window 512, the defaults of the published code. With an interval
// above 1 the placement decides once per interval.
//
// streaming_rerotated re-rotates keys after each decision, so that RoPE positions equal the
// positions within the cache, like in the published code, up to a common offset: the keys of the
// sinks are rotated towards the window, and the window's keys are rotated only when the context is
// full. It decides every 64 steps [ours; the code each step].
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/placements.h"

namespace ebb {
namespace {

constexpr int kStreamingSinks = 4;
constexpr int kStreamingWindow = 512;
constexpr int kLaggedInterval = 64;

class SinksWindowPlacement final : public StatelessPlacement {
 public:
  // `window` is the window unless the budget is a percentage.
  SinksWindowPlacement(const Budget& budget, int sinks, size_t window, int interval)
      : budget_(budget), sinks_(sinks), window_(window), interval_(interval) {}

  std::string Name() const override {
    const std::string window = budget_.unit == Budget::Unit::kPercent
                                   ? BudgetKeyValue(budget_)
                                   : fmt::format("window={}", window_);
    return fmt::format("sinks_window:sinks={},{},interval={}", sinks_, window, interval_);
  }
  bool NeedsScores() const override { return false; }

  bool Due(const PlacementInput& input, size_t num_rows) const override {
    return num_rows > sinks_ + WindowAt(input.next_position) && OnInterval(input, interval_);
  }

  size_t RowsAfter(size_t num_tokens, size_t /*num_given*/, StepKind /*kind*/) const override {
    return std::min(num_tokens, sinks_ + WindowAt(static_cast<Position>(num_tokens)));
  }
  int Interval() const override { return interval_; }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const std::span<const Position> positions = input.positions;
    const auto first = std::lower_bound(positions.begin(), positions.end(), sinks_);
    const size_t window = WindowAt(input.next_position);
    for (size_t row = first - positions.begin(); row + window < positions.size(); ++row) {
      moves->push_back({.row = static_cast<uint32_t>(row), .to = Tier::kT3});
    }
  }

 private:
  size_t WindowAt(Position num_tokens) const {
    if (budget_.unit != Budget::Unit::kPercent) return window_;
    return RowsAllowed(budget_, std::max(0, num_tokens - sinks_));
  }

  const Budget budget_;
  const int sinks_;
  const size_t window_;
  const int interval_;
};

Result<size_t> WindowOf(const PlacementOptions& options, int sinks) {
  if (options.budget.unit == Budget::Unit::kNone) {
    return static_cast<size_t>(options.window.value_or(kStreamingWindow));
  }
  if (options.budget.unit == Budget::Unit::kPercent) {
    if (!options.window) return size_t{0};
    return InvalidArgument(fmt::format(
        "policy \"{}\": a budget in percent sets the window; give no window", options.policy));
  }
  const int64_t window = static_cast<int64_t>(RowsAllowed(options.budget, 0)) - sinks;
  if (window < 1) {
    return InvalidArgument(fmt::format("budget of {} has no room for a window after {} sinks",
                                       options.budget_text, sinks));
  }
  if (options.window && *options.window != window) {
    return InvalidArgument(fmt::format(
        "policy \"{}\": {} sinks and a window of {} are not the budget of {}; leave one out",
        options.policy, sinks, *options.window, options.budget_text));
  }
  return static_cast<size_t>(window);
}

Result<std::unique_ptr<Placement>> Make(const PlacementOptions& options, int interval) {
  const int sinks = options.sinks.value_or(kStreamingSinks);
  EBB_ASSIGN_OR_RETURN(const size_t window, WindowOf(options, sinks));
  if (window == 0 && options.budget.unit != Budget::Unit::kPercent) {
    return InvalidArgument(
        fmt::format("policy \"{}\": a window of 0 tokens hides the text", options.policy));
  }
  return std::unique_ptr<Placement>(std::make_unique<SinksWindowPlacement>(
      options.budget, sinks, window, options.interval.value_or(interval)));
}

}  // namespace

Result<std::unique_ptr<Placement>> MakeSinksWindowPlacement(const PlacementOptions& options) {
  return Make(options, 1);
}
Result<std::unique_ptr<Placement>> MakeLaggedSinksWindowPlacement(const PlacementOptions& options) {
  return Make(options, kLaggedInterval);
}

}  // namespace ebb
