// Places rows in the memory hierarchy of "Not All Thoughts Need HBM" (3.2, 3.3, Algorithm 1). Every
// `interval` decode steps it ranks a group's unprotected rows, U of them alive, and sends, lowest
// scores first,
//   to T3  n_evict rows:
//            of alive:      floor(r U), literally Algorithm 1, which compounds;
//            of generated:  max(0, floor(r N) - removed), where N counts all unprotected
//                           rows, evicted ones included, and `removed` those of them that
//                           are no longer alive, for any reason;
//   to T2  floor(t2 (U - n_evict)) rows (not in Algorithm 1);
//   to T1  of the F rows that are left all but floor(beta F);
//   to T0  the rest.
// The rows in T2 and T3 therefore do not depend on beta, on T1, or on caps that are large enough. A
// row in T2 or T1 is promoted when it ranks higher again. Without T1, beta is 1.
//
// Protected rows (protection.h) are never in T2 or T3, and stay in T0 as long as T0 has room.
//
// A cap on T0 replaces beta: T0 holds the protected rows, then the rows with the highest scores, up
// to the cap; if it cannot hold all protected rows, the oldest of them go to T1. The groups share a
// cap evenly, and the placement receives it in rows (RowsAvailable). The placement keeps room for
// one interval of new or moving rows. Between intervals, each prefill chunk that exceeds T0's cap
// divides the rows again among T0 and T1: rows make room for the whole next chunk, so that a prompt
// is read in the same chunks as with a full cache. Rows that T1's cap does not hold stay in T0.
//
// Caps evict rows only if the user allows eviction (a share, or --evict caps), T0 has a cap, and T1
// has a cap or is none. T3 then receives the lowest scores that exceed the caps, in prefill too; in
// a draft it finally also receives protected rows, except the first few of the sequence. Otherwise
// caps evict nothing, and Check() refuses rows that they cannot hold.
//
// The placement decides from its input alone, so a roll-back needs no code here.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/base/text/size_text.h"
#include "src/policy/placements.h"
#include "src/policy/protection.h"
#include "src/policy/selection.h"
#include "src/policy/tier_plan.h"

namespace ebb {
namespace {

std::string Percent(double share) { return fmt::format("{:.6g}%", 100 * share); }

size_t Less(size_t a, size_t b) { return a > b ? a - b : 0; }

// Removes the rows in T2 from the ranges.
void LeaveOutT2(std::span<const Tier> tiers, std::vector<RowRange>* rows) {
  if (tiers.empty()) return;
  std::vector<RowRange> left;
  for (const RowRange& range : *rows) {
    for (size_t i = range.begin; i < range.end; ++i) {
      if (tiers[i] == Tier::kT2) continue;
      if (left.empty() || left.back().end != i) left.push_back({i, i});
      left.back().end = i + 1;
    }
  }
  *rows = std::move(left);
}

class HierarchyPlacement final : public StatelessPlacement {
 public:
  explicit HierarchyPlacement(const PlacementOptions& options)
      : sinks_(options.sinks.value_or(kDefaultSinks)),
        window_(options.window.value_or(kDefaultWindow)),
        interval_(options.interval.value_or(kDefaultInterval)),
        tiers_(options.tiers),
        planner_(tiers_.shares, CapsOf(tiers_.engine, options.rows_available, interval_),
                 options.protected_rows),
        protected_(options.protected_rows) {}

  // Checks the options before a prompt is read.
  Status CheckOptions() const {
    if (tiers_.shares.evict_beyond_caps && !caps().Bind()) {
      return InvalidArgument("tiers.evict_beyond_caps",
                             "expected a cap on T0, and one on T1 unless there is no T1");
    }
    const size_t num_protected = static_cast<size_t>(sinks_) + static_cast<size_t>(window_);
    const Status status = CheckCaps(num_protected, 0);
    return status.ok() ? OkStatus() : InvalidArgument(status.message());
  }

  std::string Name() const override {
    const auto& [engine, shares] = tiers_;
    std::string t0 = Percent(HasT1() ? shares.t0_share.value_or(kDefaultT0Share) : 1);
    if (engine.t0_cap_bytes > 0) t0 = fmt::format("{} bytes", engine.t0_cap_bytes);
    std::string t1 = HasT1() ? "" : ",t1=none";
    if (engine.t1_cap_bytes > 0) t1 = fmt::format(",t1={} bytes", engine.t1_cap_bytes);
    const std::string of = shares.evict_of == EvictOf::kAlive ? "alive" : "generated";
    const CompressedType t2_type = engine.t2_type.value_or(kDefaultT2Type);
    return fmt::format(
        "hierarchy(t0={}{},t2={}:{},evict={} of {},sinks={},window={},interval={})", t0, t1,
        Percent(shares.t2_share), CompressedTypeName(t2_type), Percent(shares.evict_share),
        planner_.EvictsBeyondCaps() ? of + " or caps" : of, sinks_, window_, interval_);
  }
  bool NeedsScores() const override { return true; }

  bool SetT0Share(double share) override {
    if (!HasT1() || caps().t0 != kNoRowCap) return false;
    planner_.SetT0Share(share);
    return true;
  }

  Status Check(const PlacementInput& input) const override {
    if (!caps().Bind() || protected_ == Protected::kMayGo) return OkStatus();
    Rows rows;
    GroupRows counts;
    const TierPlan plan = MakePlan(input, &rows, &counts);
    return CheckCaps(counts.num_protected, plan.num_full);
  }

  bool Due(const PlacementInput& input, size_t num_rows) const override {
    if (input.step_kind == StepKind::kPrefill) return num_rows > RowsInT0(input);
    return OnInterval(input, interval_);
  }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const size_t num_rows = input.positions.size();
    GroupRows counts;
    const TierPlan plan = MakePlan(input, &rows_, &counts);
    const bool reads = input.step_kind == StepKind::kPrefill;
    targets_.resize(num_rows);
    for (size_t i = 0; i < num_rows; ++i) {
      const bool in_t2 = reads && !input.tiers.empty() && input.tiers[i] == Tier::kT2;
      targets_[i] = in_t2 ? Tier::kT2 : Tier::kT0;
    }
    MarkUnprotected(input, plan);
    MarkOldestProtected(0, plan.num_protected_t1, Tier::kT1);
    MarkOldestProtected(kDefaultSinks, plan.num_protected_evict, Tier::kT3);
    for (size_t i = 0; i < num_rows; ++i) {
      const Tier now = input.tiers.empty() ? Tier::kT0 : input.tiers[i];
      if (targets_[i] == now) continue;
      moves->push_back({.row = static_cast<uint32_t>(i), .to = targets_[i]});
    }
  }

  std::string Explain(const PlacementInput& input, size_t row) const override {
    Rows rows;
    GroupRows counts;
    const TierPlan plan = MakePlan(input, &rows, &counts);
    const auto holds = [row](const RowRange& range) {
      return row >= range.begin && row < range.end;
    };
    if (std::ranges::any_of(rows.candidates, holds))
      return ExplainCandidate(input, rows, plan, row);
    if (std::ranges::any_of(rows.alive, holds))
      return "rows of T2 stay there while a prompt is read";
    return ExplainProtected(input, row) + ProtectedText(plan);
  }

 private:
  struct Rows {
    std::vector<PositionRange> ever;   // unprotected positions, alive or not
    std::vector<RowRange> alive;       // of them
    std::vector<RowRange> candidates;  // of them, those that the decision is about
  };

  [[nodiscard]] bool HasT1() const { return tiers_.engine.t1 != T1Place::kNone; }
  [[nodiscard]] const TierCaps& caps() const { return planner_.caps(); }

  TierPlan MakePlan(const PlacementInput& input, Rows* rows, GroupRows* counts) const {
    FindUnprotected(input.kinds, sinks_, window_, &rows->ever);
    FindRows(input.positions, rows->ever, &rows->alive);
    rows->candidates = rows->alive;
    counts->num_ever = CountPositions(rows->ever);
    counts->num_alive = CountRows(rows->alive);
    // Check() may be called without positions; all protected rows are alive then.
    counts->num_protected = input.positions.empty() ? input.kinds.size() - counts->num_ever
                                                    : input.positions.size() - counts->num_alive;
    if (input.step_kind == StepKind::kDecode) return planner_.Decide(*counts);
    LeaveOutT2(input.tiers, &rows->candidates);
    const size_t num_rows = CountRows(rows->candidates);
    // After a roll-back, rows in T2 may be protected again; they stay in T2 and must not count
    // here.
    const auto in_t2 = static_cast<size_t>(std::ranges::count(input.tiers, Tier::kT2));
    counts->num_protected -= in_t2 - (counts->num_alive - num_rows);
    counts->num_alive = num_rows;
    return planner_.Divide(*counts, RowsInT0(input));
  }

  // Returns the score and the outcome for each rank: "score 0.0123, rank 31 of 204 from the lowest:
  // 1 to 20 are evicted, 21 to 60 go to T2, ...".
  std::string ExplainCandidate(const PlacementInput& input, const Rows& rows, const TierPlan& plan,
                               size_t row) const {
    std::string text = ScoreText(input.scores, rows.candidates, row);
    size_t begin = 1;
    const auto add = [&](size_t count, std::string_view what) {
      if (count > 0)
        text +=
            fmt::format("{} {} to {} {}", begin == 1 ? ":" : ",", begin, begin + count - 1, what);
      begin += count;
    };
    add(plan.num_evict, "are evicted");
    add(plan.num_t2, "go to T2");
    add(plan.num_t1, "go to T1");
    add(CountRows(rows.candidates) - (begin - 1), "stay in T0");
    return text;
  }

  // Returns the text that names the rule which protects the row.
  [[nodiscard]] std::string ExplainProtected(const PlacementInput& input, size_t row) const {
    const Position position = input.positions[row];
    if (input.kinds[position] == TokenKind::kGiven) return "protected: a token of a prompt";
    const auto generated =
        std::count(input.kinds.begin(), input.kinds.begin() + position, TokenKind::kGenerated);
    if (generated < sinks_)
      return fmt::format("protected: one of the first {} generated tokens", sinks_);
    return fmt::format("protected: one of the newest {} tokens", window_);
  }

  static std::string ProtectedText(const TierPlan& plan) {
    std::string text;
    if (plan.num_protected_evict > 0) {
      text += fmt::format("; the oldest {} of these are evicted, since caps do not hold them",
                          plan.num_protected_evict);
    }
    if (plan.num_protected_t1 > 0) {
      text += fmt::format("; the oldest {} of these lie in T1, since T0's cap does not hold them",
                          plan.num_protected_t1);
    }
    return text;
  }

  // Returns how many rows T0 may hold after it keeps room for the tokens to come.
  [[nodiscard]] size_t RowsInT0(const PlacementInput& input) const {
    if (caps().t0 == kNoRowCap) return kNoRowCap;
    return Less(caps().t0, Less(input.tokens_to_come, static_cast<size_t>(interval_)));
  }

  Status CheckCaps(size_t num_protected, size_t num_others) const {
    if (planner_.Holds(num_protected, num_others)) return OkStatus();
    const std::string t1 = HasT1() ? fmt::format("T1 of {} {} likewise",
                                                 SizeText(tiers_.engine.t1_cap_bytes), caps().t1)
                                   : std::string("there is no T1");
    return T0Full(fmt::format(
        "T0 of {} holds {} rows of each group and {} in reserve, {}; {} rows must stay in "
        "full precision ({} protected, {} others)",
        SizeText(tiers_.engine.t0_cap_bytes), caps().t0, interval_, t1, num_protected + num_others,
        num_protected, num_others));
  }

  void MarkUnprotected(const PlacementInput& input, const TierPlan& plan) {
    // Keeps rows in T2 that are no candidates, which happens in prefill.
    for (const RowRange& range : rows_.alive) {
      std::fill(targets_.begin() + range.begin, targets_.begin() + range.end, Tier::kT2);
    }
    const size_t t2_end = plan.num_evict + plan.num_t2;
    const size_t ends[] = {plan.num_evict, t2_end, t2_end + plan.num_t1};
    const std::span<const uint32_t> cut = selection_.Cut(input.scores, rows_.candidates, ends);
    for (size_t i = 0; i < ends[0]; ++i) targets_[cut[i]] = Tier::kT3;
    for (size_t i = ends[1]; i < ends[2]; ++i) targets_[cut[i]] = Tier::kT1;
    for (size_t i = ends[2]; i < cut.size(); ++i) targets_[cut[i]] = Tier::kT0;
  }

  // Sends `num_rows` of the oldest protected rows to `tier`, after skipping the `first` oldest
  // ones; rows in T2 do not count.
  void MarkOldestProtected(size_t first, size_t num_rows, Tier tier) {
    if (num_rows == 0) return;
    auto unprotected = rows_.alive.begin();
    size_t seen = 0;
    for (size_t i = 0; seen < first + num_rows && i < targets_.size();) {
      if (unprotected != rows_.alive.end() && i == unprotected->begin) {
        i = (unprotected++)->end;
        continue;
      }
      if (targets_[i] != Tier::kT2 && seen++ >= first) targets_[i] = tier;
      ++i;
    }
  }

  const int sinks_;
  const int window_;
  const int interval_;
  const TierSetting tiers_;
  TierPlanner planner_;
  const Protected protected_;
  Rows rows_;
  std::vector<Tier> targets_;  // [num_rows]
  RowSelection selection_;
};

Status CheckShare(std::string_view what, double share) {
  if (share >= 0 && share <= 1) return OkStatus();
  return InvalidArgument(fmt::format("{} of {}: expected 0% to 100%", what, Percent(share)));
}

}  // namespace

Result<std::unique_ptr<Placement>> MakeHierarchyPlacement(const PlacementOptions& options) {
  const auto& [engine, shares] = options.tiers;
  EBB_RETURN_IF_ERROR(CheckShare("T0", shares.t0_share.value_or(kDefaultT0Share)));
  EBB_RETURN_IF_ERROR(CheckShare("T2", shares.t2_share));
  EBB_RETURN_IF_ERROR(CheckShare("evicted share", shares.evict_share));
  if (engine.t1 == T1Place::kNone && engine.t1_cap_bytes > 0) {
    return InvalidArgument(
        fmt::format("T1 is none and has a cap of {}", SizeText(engine.t1_cap_bytes)));
  }
  auto placement = std::make_unique<HierarchyPlacement>(options);
  EBB_RETURN_IF_ERROR(placement->CheckOptions());
  return std::unique_ptr<Placement>(std::move(placement));
}

}  // namespace ebb
