// Evicts as H2O does (Zhang et al., 2023, as in its published code): each group keeps its `recent`
// newest rows and, of the other rows, the `heavy` rows with the highest scores. After each step and
// each prefill chunk that leaves a group with more than heavy + recent rows, the other rows are
// evicted at once. The prompt is not protected. Rows at the first `sinks` positions stay, and count
// as heavy.
//
// A budget B is split into recent and heavy = B - recent rows, unless the user gave heavy or
// recent:
//   even:     recent is B - B/2 ("Inference-Time Hyper-Scaling", App. F.1);
//   quarter:  recent is min(128, B/4) ("EpiKV", App. D);
//   fixed:    recent is a constant, at most B.
// A percentage refers to all tokens so far, because only the recent rows are protected. Without a
// budget heavy is 4 and recent 512, the defaults of the published code; its simulation, with 10 %
// and 10 %, corresponds to a budget of 20 %. Sinks that use up all heavy rows are refused, because
// scores would then decide nothing.
//
// With an interval above 1 the placement decides once per interval, so that up to interval - 1 more
// rows live in between. With dense prefill it evicts nothing in prefill steps; the first decode
// step then decides about all rows.
//
// Other policies use the same rule with other settings, see kRules:
//   vatp            as H2O, sinks stay (published code)
//   tova            no recent rows, dense prefill (published code; "Inference-Time Hyper-Scaling",
//                   App. F.1) [ours: the query of the first generated token decides about a prompt
//                   that is over the budget, the source takes the prompt's last]
//   rkv             8 recent rows, every 128 steps (published code)
//   lazy_eviction   the last W rows are recent, every W steps, dense prefill ("LazyEviction", Eq. 5
//                   of App. A) [ours: W is 64 unless an interval is given]
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/placements.h"
#include "src/policy/selection.h"

namespace ebb {
namespace {

constexpr int kDefaultHeavy = 4;
constexpr int kDefaultRecent = 512;
constexpr size_t kQuarterAtMost = 128;

enum class SplitRule { kEven, kQuarter, kFixed };
enum class Prefill { kDecides, kDense };
enum class WithoutBudget { kPublishedRows, kRefused };

struct Rule {
  SplitRule split = SplitRule::kEven;
  int recent = 0;  // of kFixed; kInterval: as many as an interval has steps
  int sinks = 0;
  int interval = 1;
  Prefill prefill = Prefill::kDecides;
  WithoutBudget without_budget = WithoutBudget::kPublishedRows;
};
constexpr int kInterval = -1;

constexpr Rule kH2o = {};
constexpr Rule kVatp = {.sinks = 4};
constexpr Rule kTova = {.split = SplitRule::kFixed,
                        .prefill = Prefill::kDense,
                        .without_budget = WithoutBudget::kRefused};
constexpr Rule kRkv = {.split = SplitRule::kFixed,
                       .recent = 8,
                       .interval = 128,
                       .without_budget = WithoutBudget::kRefused};
constexpr Rule kLazy = {.split = SplitRule::kFixed,
                        .recent = kInterval,
                        .interval = 64,
                        .prefill = Prefill::kDense,
                        .without_budget = WithoutBudget::kRefused};

struct Split {
  size_t heavy = 0;
  size_t recent = 0;
};

Split SplitRows(const Rule& rule, size_t num_rows) {
  size_t recent = num_rows - num_rows / 2;
  if (rule.split == SplitRule::kQuarter) recent = std::min(kQuarterAtMost, num_rows / 4);
  if (rule.split == SplitRule::kFixed) {
    recent = std::min(static_cast<size_t>(rule.recent), num_rows);
  }
  return {num_rows - recent, recent};
}

class HeavyRecentPlacement final : public StatelessPlacement {
 public:
  // `fixed` is the split unless the budget is a percentage, which is split again at each decision.
  HeavyRecentPlacement(const Budget& budget, const Split& fixed, const Rule& rule)
      : budget_(budget), fixed_(fixed), rule_(rule) {}

  std::string Name() const override {
    std::string rows = fmt::format("heavy={},recent={}", fixed_.heavy, fixed_.recent);
    if (budget_.unit == Budget::Unit::kPercent) {
      rows = BudgetKeyValue(budget_);
      if (rule_.split == SplitRule::kQuarter) rows += ",recent=quarter";
      if (rule_.split == SplitRule::kFixed) rows += fmt::format(",recent={}", rule_.recent);
    }
    return fmt::format("heavy_recent:{}{},interval={}{}", rows,
                       rule_.sinks > 0 ? fmt::format(",sinks={}", rule_.sinks) : "", rule_.interval,
                       rule_.prefill == Prefill::kDense ? ",prefill=dense" : "");
  }
  bool NeedsScores() const override { return true; }
  bool GroupsAreIndependent() const override { return true; }

  bool Due(const PlacementInput& input, size_t num_rows) const override {
    if (rule_.prefill == Prefill::kDense && input.step_kind == StepKind::kPrefill) return false;
    const Split split = SplitAt(input.next_position);
    return num_rows > split.heavy + split.recent && OnInterval(input, rule_.interval);
  }

  size_t RowsAfter(size_t num_tokens, size_t /*num_given*/, StepKind kind) const override {
    if (rule_.prefill == Prefill::kDense && kind == StepKind::kPrefill) return num_tokens;
    const Split split = SplitAt(static_cast<Position>(num_tokens));
    return std::min(num_tokens, split.heavy + split.recent);
  }
  int Interval() const override { return rule_.interval; }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const Split split = SplitAt(input.next_position);
    const std::span<const Position> positions = input.positions;
    if (positions.size() <= split.heavy + split.recent) return;
    const size_t sinks =
        std::lower_bound(positions.begin(), positions.end(), rule_.sinks) - positions.begin();
    const RowRange candidates = {std::min(sinks, positions.size() - split.recent),
                                 positions.size() - split.recent};
    thread_local RowSelection selection;
    AppendEvictions(selection.First(input.scores, {&candidates, 1},
                                    positions.size() - split.recent - split.heavy),
                    moves);
  }

 private:
  Split SplitAt(Position num_tokens) const {
    if (budget_.unit != Budget::Unit::kPercent) return fixed_;
    return SplitRows(rule_, RowsAllowed(budget_, num_tokens));
  }

  const Budget budget_;
  const Split fixed_;
  const Rule rule_;
};

Result<Split> SplitBudget(const PlacementOptions& options, const Rule& rule) {
  const std::optional<int> heavy = options.params.Find("heavy");
  const std::optional<int> recent = options.params.Find("recent");
  if (options.budget.unit == Budget::Unit::kPercent) {
    if (!heavy && !recent) return Split{};
    return InvalidArgument(fmt::format(
        "policy \"{}\": a budget in percent splits evenly, heavy= and recent= do not apply",
        options.policy));
  }
  if (options.budget.unit == Budget::Unit::kNone) {
    return Split{static_cast<size_t>(heavy.value_or(kDefaultHeavy)),
                 static_cast<size_t>(recent.value_or(kDefaultRecent))};
  }
  const size_t rows = RowsAllowed(options.budget, 0);
  if (!heavy && !recent) return SplitRows(rule, rows);
  const size_t given = size_t(heavy.value_or(0)) + size_t(recent.value_or(0));
  if (given > rows || (heavy && recent && given != rows)) {
    return InvalidArgument(
        fmt::format("policy \"{}\": heavy and recent make {} rows, the budget is {}",
                    options.policy, given, options.budget_text));
  }
  return heavy ? Split{size_t(*heavy), rows - *heavy} : Split{rows - *recent, size_t(*recent)};
}

Result<std::unique_ptr<Placement>> Make(const PlacementOptions& options, Rule rule) {
  if (rule.without_budget == WithoutBudget::kRefused) EBB_RETURN_IF_ERROR(NeedsBudget(options));
  if (options.params.Word("split", "even") == "quarter") rule.split = SplitRule::kQuarter;
  rule.sinks = options.params.Int("sinks", rule.sinks);
  rule.interval = options.interval.value_or(rule.interval);
  if (rule.recent == kInterval) rule.recent = rule.interval;
  EBB_ASSIGN_OR_RETURN(const Split split, SplitBudget(options, rule));
  if (options.budget.unit != Budget::Unit::kPercent) {
    if (split.heavy + split.recent == 0) {
      return InvalidArgument(
          fmt::format("policy \"{}\": heavy=0,recent=0 keeps no row", options.policy));
    }
    if (split.heavy < static_cast<size_t>(rule.sinks)) {
      return InvalidArgument(fmt::format("policy \"{}\": {} sinks do not fit into {} heavy rows",
                                         options.policy, rule.sinks, split.heavy));
    }
  }
  const bool is_default =
      options.budget.unit == Budget::Unit::kNone && !options.params.Find("heavy").has_value();
  if (is_default && rule.sinks > 0 && split.heavy == static_cast<size_t>(rule.sinks)) {
    return InvalidArgument(fmt::format(
        "policy \"{}\": without a budget its {} heavy rows are its sinks, so that no score would "
        "decide; it needs a budget, or more than {} heavy rows",
        options.policy, split.heavy, rule.sinks));
  }
  // A percentage may allow fewer rows than are recent while the sequence is short; a budget in rows
  // may not.
  if (rule.split == SplitRule::kFixed && options.budget.unit == Budget::Unit::kRows &&
      options.budget.value <= rule.recent) {
    return InvalidArgument(
        fmt::format("policy \"{}\": a budget of {} has no room beside the {} newest rows",
                    options.policy, options.budget_text, rule.recent));
  }
  return std::unique_ptr<Placement>(
      std::make_unique<HeavyRecentPlacement>(options.budget, split, rule));
}

}  // namespace

Result<std::unique_ptr<Placement>> MakeHeavyRecentPlacement(const PlacementOptions& options) {
  return Make(options, kH2o);
}
Result<std::unique_ptr<Placement>> MakeVatpPlacement(const PlacementOptions& options) {
  return Make(options, kVatp);
}
Result<std::unique_ptr<Placement>> MakeTovaPlacement(const PlacementOptions& options) {
  return Make(options, kTova);
}
Result<std::unique_ptr<Placement>> MakeRkvPlacement(const PlacementOptions& options) {
  return Make(options, kRkv);
}
Result<std::unique_ptr<Placement>> MakeLazyPlacement(const PlacementOptions& options) {
  return Make(options, kLazy);
}

}  // namespace ebb
