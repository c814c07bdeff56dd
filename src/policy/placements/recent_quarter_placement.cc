// Evicts as "EpiKV" (002, 3.3 and App. D) does in its RaaS, hidden-state and KV-vector policies:
// with a budget of K rows, the given tokens and the newest min(128, K/4) tokens are protected; of
// the other rows the lowest scores are evicted after each decode step. Nothing is evicted in
// prefill.
//   rows B:    the group has at most B rows, protected ones included;
//   +B:        at most B unprotected rows are left, as the paper counts;
//   percent p: at most ceil(p/100 * N) unprotected rows are left, where N counts all
//              unprotected rows, evicted ones included. K is then the same share of all tokens that
//              may become unprotected [ours].
// A window given by the user replaces K/4.
//
// The variant by segments (ThinKV as evaluated there) protects only the newest rows, and evicts
// every row with a score below 0, for which the budget of its segment has no room, even if K has
// room; so fewer than K rows may be left. Its hybrid also protects the prompt, as 3.3 says of all
// policies [ours: App. D leaves it out]. If the user chose a scorer whose sign does not mean this
// (ScorerRow::negative_means_no_room), only K counts [ours].
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/placements.h"
#include "src/policy/protection.h"
#include "src/policy/selection.h"

namespace ebb {
namespace {

constexpr size_t kWindowAtMost = 128;

enum class Rule { kPromptStays, kSegments, kPromptStaysSegments };

class RecentQuarterPlacement final : public StatelessPlacement {
 public:
  RecentQuarterPlacement(const PlacementOptions& options, Rule rule)
      : rule_(rule),
        negative_means_no_room_(rule != Rule::kPromptStays && options.negative_means_no_room),
        budget_(options.budget),
        budget_text_(options.budget_text),
        window_(options.window),
        interval_(options.interval.value_or(1)) {}

  Status CheckOptions() const { return CheckProtected(0, 0); }

  std::string Name() const override {
    const char* name = rule_ == Rule::kPromptStays ? "recent_quarter"
                       : rule_ == Rule::kSegments  ? "segments"
                                                   : "prompt_segments";
    const bool ignores_sign = rule_ != Rule::kPromptStays && !negative_means_no_room_;
    return fmt::format("{}:{},window={},interval={}{}", name, BudgetKeyValue(budget_),
                       window_ ? fmt::to_string(*window_) : "quarter", interval_,
                       ignores_sign ? ",below_0=stays" : "");
  }
  bool NeedsScores() const override { return true; }
  Status Check(const PlacementInput& input) const override {
    return CheckProtected(rule_ == Rule::kSegments ? 0 : CountGiven(input.kinds),
                          input.kinds.size());
  }

  bool Due(const PlacementInput& input, size_t num_rows) const override {
    if (input.step_kind == StepKind::kPrefill || !OnInterval(input, interval_)) return false;
    return negative_means_no_room_ || budget_.unit != Budget::Unit::kRows ||
           num_rows > RowsAllowed(budget_, 0);
  }

  size_t RowsAfter(size_t num_tokens, size_t num_given, StepKind kind) const override {
    if (kind == StepKind::kPrefill) return num_tokens;
    const size_t given = rule_ == Rule::kSegments ? 0 : std::min(num_given, num_tokens);
    const size_t num_protected = std::min(num_tokens, given + WindowAt(num_tokens - given));
    const size_t allowed = RowsAllowed(budget_, num_tokens - num_protected);
    return std::min(num_tokens,
                    budget_.unit == Budget::Unit::kRows ? allowed : num_protected + allowed);
  }
  int Interval() const override { return interval_; }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    FindEverUnprotected(input);
    FindRows(input.positions, ever_unprotected_, &candidates_);
    const size_t num_candidates = CountRows(candidates_);
    const size_t num_rows =
        budget_.unit == Budget::Unit::kRows ? input.positions.size() : num_candidates;
    const size_t num_allowed = RowsAllowed(budget_, CountPositions(ever_unprotected_));
    size_t num_evict = num_rows > num_allowed ? num_rows - num_allowed : 0;
    if (rule_ != Rule::kPromptStays) num_evict = std::max(num_evict, NumBelowZero(input.scores));
    if (num_evict == 0) return;
    AppendEvictions(selection_.First(input.scores, candidates_, num_evict), moves);
  }

 private:
  // Returns the protected newest tokens: K/4, where `num_tokens` may become unprotected.
  size_t WindowAt(size_t num_tokens) const {
    if (window_) return *window_;
    return std::min(kWindowAtMost, RowsAllowed(budget_, num_tokens) / 4);
  }

  void FindEverUnprotected(const PlacementInput& input) {
    const size_t num_tokens = input.kinds.size();
    if (rule_ == Rule::kSegments) {
      const size_t window = WindowAt(num_tokens);
      ever_unprotected_.clear();
      if (num_tokens > window) {
        ever_unprotected_.push_back({0, static_cast<Position>(num_tokens - window)});
      }
      return;
    }
    const bool by_share = budget_.unit == Budget::Unit::kPercent && !window_;
    const size_t num_generated = by_share ? num_tokens - CountGiven(input.kinds) : num_tokens;
    FindUnprotected(input.kinds, 0, static_cast<int>(WindowAt(num_generated)), &ever_unprotected_);
  }

  // Returns how many candidates have no room in their segment.
  size_t NumBelowZero(std::span<const float> scores) const {
    if (!negative_means_no_room_) return 0;
    size_t num_below = 0;
    for (const RowRange& range : candidates_) {
      for (size_t i = range.begin; i < range.end; ++i) num_below += scores[i] < 0 ? 1 : 0;
    }
    return num_below;
  }

  Status CheckProtected(int64_t num_given, size_t num_tokens) const {
    if (budget_.unit != Budget::Unit::kRows) return OkStatus();
    const size_t window = WindowAt(num_tokens);
    const int64_t num_protected = num_given + static_cast<int64_t>(window);
    if (budget_.value >= static_cast<double>(num_protected)) return OkStatus();
    return InvalidArgument(
        fmt::format("budget of {} is smaller than the {} protected rows (prompt {} + {} window)",
                    budget_text_, num_protected, num_given, window));
  }

  const Rule rule_;
  const bool negative_means_no_room_;
  const Budget budget_;
  const std::string budget_text_;
  const std::optional<int> window_;
  const int interval_;
  std::vector<PositionRange> ever_unprotected_;
  std::vector<RowRange> candidates_;
  RowSelection selection_;
};

Result<std::unique_ptr<Placement>> Make(const PlacementOptions& options, Rule rule) {
  EBB_RETURN_IF_ERROR(NeedsBudget(options));
  auto placement = std::make_unique<RecentQuarterPlacement>(options, rule);
  EBB_RETURN_IF_ERROR(placement->CheckOptions());
  return std::unique_ptr<Placement>(std::move(placement));
}

}  // namespace

Result<std::unique_ptr<Placement>> MakeRecentQuarterPlacement(const PlacementOptions& options) {
  return Make(options, Rule::kPromptStays);
}
Result<std::unique_ptr<Placement>> MakeSegmentPlacement(const PlacementOptions& options) {
  return Make(options, Rule::kSegments);
}
Result<std::unique_ptr<Placement>> MakePromptSegmentPlacement(const PlacementOptions& options) {
  return Make(options, Rule::kPromptStaysSegments);
}

}  // namespace ebb
