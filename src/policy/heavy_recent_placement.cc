// H2O (Zhang et al., 2023, as in its published code): each group keeps its `recent` newest rows
// and, of the others, the `heavy` with the highest scores. Whenever it holds more than heavy +
// recent rows, after each step and after each prefill chunk, the rest goes at once. The prompt is
// not protected.
//
// A budget B splits evenly, heavy = B/2 and recent = B - heavy, unless one of them is given. A
// percentage is of all tokens so far, since nothing but the recent rows is protected. Without a
// budget heavy is 4 and recent 512, the defaults of the published code.
//
// An interval above 1 makes the decisions lag: up to interval - 1 more rows live in between.
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/placements.h"
#include "src/policy/selection.h"

namespace ebb {
namespace {

constexpr int kDefaultHeavy = 4;
constexpr int kDefaultRecent = 512;

struct Split {
  size_t heavy = 0;
  size_t recent = 0;
};

Split SplitEvenly(size_t num_rows) { return {num_rows / 2, num_rows - num_rows / 2}; }

class HeavyRecentPlacement final : public StatelessPlacement {
 public:
  // `fixed` holds unless the budget is a percentage.
  HeavyRecentPlacement(const Budget& budget, const Split& fixed, int interval)
      : budget_(budget), fixed_(fixed), interval_(interval) {}

  std::string Name() const override {
    const std::string rows = budget_.unit == Budget::Unit::kPercent
                                 ? BudgetKeyValue(budget_)
                                 : fmt::format("heavy={},recent={}", fixed_.heavy, fixed_.recent);
    return fmt::format("heavy_recent:{},interval={}", rows, interval_);
  }
  bool NeedsScores() const override { return true; }

  bool Due(const PlacementInput& input, size_t num_rows) const override {
    const Split split = SplitAt(input.next_position);
    return num_rows > split.heavy + split.recent && OnInterval(input, interval_);
  }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const Split split = SplitAt(input.next_position);
    const size_t num_rows = input.positions.size();
    if (num_rows <= split.heavy + split.recent) return;
    const RowRange all_but_recent = {0, num_rows - split.recent};
    AppendEvictions(
        selection_.First(input.scores, {&all_but_recent, 1}, num_rows - split.recent - split.heavy),
        moves);
  }

 private:
  Split SplitAt(Position num_tokens) const {
    if (budget_.unit != Budget::Unit::kPercent) return fixed_;
    return SplitEvenly(RowsAllowed(budget_, num_tokens));
  }

  const Budget budget_;
  const Split fixed_;
  const int interval_;
  RowSelection selection_;
};

std::optional<size_t> Param(const PlacementOptions& options, const std::string& key) {
  const auto found = options.params.find(key);
  if (found == options.params.end()) return std::nullopt;
  return static_cast<size_t>(found->second);
}

Result<Split> SplitBudget(const PlacementOptions& options) {
  const std::optional<size_t> heavy = Param(options, "heavy");
  const std::optional<size_t> recent = Param(options, "recent");
  if (options.budget.unit == Budget::Unit::kPercent) {
    if (!heavy && !recent) return Split{};
    return InvalidArgument(fmt::format(
        "policy \"{}\": a budget in percent splits evenly, heavy= and recent= do not apply",
        options.policy));
  }
  if (options.budget.unit == Budget::Unit::kNone) {
    return Split{heavy.value_or(kDefaultHeavy), recent.value_or(kDefaultRecent)};
  }
  const size_t rows = RowsAllowed(options.budget, 0);
  if (!heavy && !recent) return SplitEvenly(rows);
  const size_t given = heavy.value_or(0) + recent.value_or(0);
  if (given > rows || (heavy && recent && given != rows)) {
    return InvalidArgument(
        fmt::format("policy \"{}\": heavy and recent make {} rows, the budget is {}",
                    options.policy, given, options.budget_text));
  }
  return heavy ? Split{*heavy, rows - *heavy} : Split{rows - *recent, *recent};
}

}  // namespace

Result<std::unique_ptr<Placement>> MakeHeavyRecentPlacement(const PlacementOptions& options) {
  EBB_ASSIGN_OR_RETURN(const Split split, SplitBudget(options));
  if (options.budget.unit != Budget::Unit::kPercent && split.heavy + split.recent == 0) {
    return InvalidArgument(
        fmt::format("policy \"{}\": heavy=0,recent=0 keeps no row", options.policy));
  }
  return std::unique_ptr<Placement>(
      std::make_unique<HeavyRecentPlacement>(options.budget, split, options.interval.value_or(1)));
}

}  // namespace ebb
