// Evicts rows under a budget and uses no other tier: the baseline of "Not All Thoughts Need HBM"
// (2.2, 4.3) whose accuracy collapses there. Every `interval` decode steps it evicts the
// unprotected rows with the lowest scores, until
//   rows B:    the group has at most B rows, protected ones included;
//   percent p: at most ceil(p/100 * N) unprotected rows are left, where N counts all
//              unprotected rows, evicted ones included;
//   +B:        at most B unprotected rows are left.
// A percentage thus refers to everything generated so far, not to the rows alive. Taken of the rows
// alive (Algorithm 1 to the letter), the evicted share would compound at each decision.
//
// Protected rows (3.2) are all given tokens, the first `sinks` generated tokens, and the newest
// `window` tokens. They are never evicted; Check() refuses a budget in rows that cannot hold them.
// Nothing is evicted in prefill. Between two decisions the group has up to `interval` - 1 rows more
// than the budget.
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/placements.h"
#include "src/policy/protection.h"
#include "src/policy/selection.h"

namespace ebb {
namespace {

class BudgetPlacement final : public StatelessPlacement {
 public:
  explicit BudgetPlacement(const PlacementOptions& options)
      : budget_(options.budget),
        budget_text_(options.budget_text),
        sinks_(options.sinks.value_or(kDefaultSinks)),
        window_(options.window.value_or(kDefaultWindow)),
        interval_(options.interval.value_or(kDefaultInterval)) {}

  // Checks the options before a prompt is read.
  Status CheckOptions() const { return CheckProtected(0); }

  std::string Name() const override {
    return fmt::format("budget:{},sinks={},window={},interval={}", BudgetKeyValue(budget_), sinks_,
                       window_, interval_);
  }
  bool NeedsScores() const override { return true; }
  Status Check(const PlacementInput& input) const override {
    return CheckProtected(CountGiven(input.kinds));
  }

  bool Due(const PlacementInput& input, size_t num_rows) const override {
    if (input.step_kind == StepKind::kPrefill || !OnInterval(input, interval_)) return false;
    return budget_.unit != Budget::Unit::kRows || num_rows > RowsAllowed(budget_, 0);
  }

  size_t RowsAfter(size_t num_tokens, size_t num_given, StepKind kind) const override {
    const size_t num_protected = std::min(
        num_tokens, num_given + static_cast<size_t>(sinks_) + static_cast<size_t>(window_));
    if (kind == StepKind::kPrefill) return num_tokens;
    const size_t allowed = RowsAllowed(budget_, num_tokens - num_protected);
    return std::min(num_tokens,
                    budget_.unit == Budget::Unit::kRows ? allowed : num_protected + allowed);
  }
  int Interval() const override { return interval_; }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    FindUnprotected(input.kinds, sinks_, window_, &ever_unprotected_);
    FindRows(input.positions, ever_unprotected_, &candidates_);
    size_t num_rows = input.positions.size();
    if (budget_.unit != Budget::Unit::kRows) num_rows = CountRows(candidates_);
    const size_t num_allowed = RowsAllowed(budget_, CountPositions(ever_unprotected_));
    if (num_rows <= num_allowed) return;
    AppendEvictions(selection_.First(input.scores, candidates_, num_rows - num_allowed), moves);
  }

 private:
  Status CheckProtected(int64_t num_given) const {
    if (budget_.unit != Budget::Unit::kRows) return OkStatus();
    const int64_t num_protected = num_given + sinks_ + window_;
    if (budget_.value >= static_cast<double>(num_protected)) return OkStatus();
    return InvalidArgument(
        fmt::format("budget of {} is smaller than the {} protected rows ({}{} sinks + {} window)",
                    budget_text_, num_protected,
                    num_given > 0 ? fmt::format("prompt {} + ", num_given) : "", sinks_, window_));
  }

  const Budget budget_;
  const std::string budget_text_;
  const int sinks_;
  const int window_;
  const int interval_;
  std::vector<PositionRange> ever_unprotected_;
  std::vector<RowRange> candidates_;
  RowSelection selection_;
};

}  // namespace

Result<std::unique_ptr<Placement>> MakeBudgetPlacement(const PlacementOptions& options) {
  EBB_RETURN_IF_ERROR(NeedsBudget(options));
  auto placement = std::make_unique<BudgetPlacement>(options);
  EBB_RETURN_IF_ERROR(placement->CheckOptions());
  return std::unique_ptr<Placement>(std::move(placement));
}

}  // namespace ebb
