#include "src/policy/tier_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ebb/policy.h"
#include "src/policy/tier_plan.h"

namespace ebb {
namespace {

size_t Less(size_t a, size_t b) { return a > b ? a - b : 0; }

TierCaps CapsOf(const ForecastRequest& request) {
  return CapsOf(request.tiers.engine, request.rows_available, request.interval);
}

// Retained counts the rows of a group that the retention leaves.
class Retained {
 public:
  explicit Retained(const ForecastRequest& request)
      : placement_(request.retention),
        prompt_(std::min(request.prompt_tokens, request.most_tokens)),
        chunk_(request.chunk_tokens) {}

  // Returns the rows at the end of the prompt, and the most rows while it was read.
  [[nodiscard]] size_t AfterPrompt() const { return RowsAfter(prompt_, StepKind::kPrefill); }
  [[nodiscard]] size_t PeakOfPrompt() const {
    const size_t before = Less(prompt_, chunk_);
    return std::min(prompt_, RowsAfter(before, StepKind::kPrefill) + chunk_);
  }
  // Returns the rows once there are `tokens` tokens, and the most rows until then that are in the
  // cache together, prompt excluded. REQUIRES: tokens >= the prompt.
  [[nodiscard]] size_t After(size_t tokens) const {
    const size_t generated = tokens - prompt_, since = generated % Interval();
    if (generated == since) return AfterPrompt() + generated;
    return std::min(tokens, RowsAfter(tokens - since, StepKind::kDecode) + since);
  }
  // Returns whether rows of the prompt may leave.
  [[nodiscard]] bool EvictsGivenRows(size_t tokens) const {
    return placement_ != nullptr &&
           placement_->RowsAfter(tokens, tokens, StepKind::kDecode) < tokens;
  }
  [[nodiscard]] size_t PeakUntil(size_t tokens) const {
    const size_t generated = tokens - prompt_, decided = generated - generated % Interval();
    if (decided == 0) return After(tokens);
    // Before the last decision there were the rows of one interval more.
    return std::max(After(tokens), After(prompt_ + decided - 1) + 1);
  }

 private:
  [[nodiscard]] size_t RowsAfter(size_t tokens, StepKind kind) const {
    return placement_ == nullptr ? tokens
                                 : std::min(tokens, placement_->RowsAfter(tokens, prompt_, kind));
  }
  [[nodiscard]] size_t Interval() const {
    return placement_ == nullptr ? 1 : static_cast<size_t>(std::max(placement_->Interval(), 1));
  }

  const Placement* const placement_;
  const size_t prompt_;
  const size_t chunk_;
};

// Forecast simulates the decisions of the hierarchy's placement as counts of rows.
class Forecast {
 public:
  explicit Forecast(const ForecastRequest& request)
      : request_(request),
        retained_(request),
        evicts_given_rows_(retained_.EvictsGivenRows(request.most_tokens)),
        planner_(request.tiers.shares, CapsOf(request), request.protected_rows) {}

  Result<RowsOverTime> Follow() {
    const size_t most = request_.most_tokens;
    const size_t prompt = std::min(request_.prompt_tokens, most);
    const auto interval = static_cast<size_t>(request_.interval);
    RowsOverTime rows;
    rows.last.t0 = retained_.AfterPrompt();
    size_t peak = retained_.PeakOfPrompt();
    if (rows.last.t0 > planner_.caps().t0) {
      EBB_RETURN_IF_ERROR(Decide(prompt, StepKind::kPrefill, &rows.last));
      peak = rows.last.t0;
    }
    rows.peaks = rows.last;
    rows.peaks.t0 = peak;
    for (size_t tokens = prompt; tokens < most;) {
      const size_t num_new = std::min(interval, most - tokens);
      tokens += num_new;
      rows.last.t0 = std::min(rows.last.t0 + num_new, retained_.PeakUntil(tokens));
      rows.peaks.t0 = std::max(rows.peaks.t0, rows.last.t0);
      if (num_new < interval) break;
      EBB_RETURN_IF_ERROR(Decide(tokens, StepKind::kDecode, &rows.last));
      rows.peaks.t1 = std::max(rows.peaks.t1, rows.last.t1);
      rows.peaks.t2 = std::max(rows.peaks.t2, rows.last.t2);
    }
    return rows;
  }

 private:
  Status Decide(size_t tokens, StepKind kind, RowCounts* rows) {
    const size_t retained = retained_.After(tokens);
    GroupRows group;
    group.num_ever = Less(tokens, request_.prompt_tokens + request_.sinks + request_.window);
    group.num_protected = std::min(tokens - group.num_ever, retained);
    group.num_alive = std::min(group.num_ever - evicted_, retained - group.num_protected);
    const auto plan_for = [&](const GroupRows& rows_of) {
      return kind == StepKind::kDecode ? planner_.Decide(rows_of)
                                       : planner_.Divide(rows_of, planner_.caps().t0);
    };
    const TierPlan plan = plan_for(group);
    if (!planner_.Holds(group.num_protected, plan.num_full)) {
      return T0Full(fmt::format(
          "T0 holds {} rows of each kv head and T1 {}; after {} tokens {} must stay in "
          "full precision",
          planner_.caps().t0, planner_.caps().t1, tokens, group.num_protected + plan.num_full));
    }
    evicted_ += plan.num_evict;
    rows->t2 = plan.num_t2;
    rows->t1 = plan.num_t1 + plan.num_protected_t1;
    rows->t0 = group.num_protected + plan.num_full - rows->t1;
    if (!evicts_given_rows_) return OkStatus();
    // Rows of the prompt are protected from the lower tiers as long as the retention leaves them.
    // How many it leaves depends on scores, so T0 may get all of them, and the lower tiers as many
    // rows as if there were none.
    const auto newest = static_cast<size_t>(request_.sinks + request_.window);
    group.num_protected = std::min(newest, retained);
    group.num_alive = retained - group.num_protected;
    const TierPlan without_prompt = plan_for(group);
    rows->t1 = std::max(rows->t1, without_prompt.num_t1 + without_prompt.num_protected_t1);
    rows->t2 = std::max(rows->t2, without_prompt.num_t2);
    return OkStatus();
  }

  const ForecastRequest& request_;
  const Retained retained_;
  const bool evicts_given_rows_;
  const TierPlanner planner_;
  size_t evicted_ = 0;
};

// Returns the positions that are old if rows are placed by position alone, as with selective
// reading and old rows in T2; nullopt for other tiers.
std::optional<OldPositions> OldOf(const ForecastRequest& request) {
  const auto& [engine, shares] = request.tiers;
  const int decided_after = request.retention == nullptr ? 0 : request.retention->DecidedAfter();
  if (CompressesOldRows(shares)) return OldBesideT2(shares, decided_after);
  if (ReadsSelectively(shares) && engine.t1 != T1Place::kNone) return kOldBesideT1;
  return std::nullopt;
}

// Counts the newest rows as alive, and none of the first ones.
RowsOverTime RowsByPosition(const ForecastRequest& request, const OldPositions& old) {
  const size_t most = request.most_tokens;
  const auto end = static_cast<size_t>(old.EndAfter(static_cast<Position>(most)));
  const size_t num_old = Less(std::min(end, most), static_cast<size_t>(old.first));
  const Retained retained(request);
  const TierShares& shares = request.tiers.shares;
  const size_t unprotected =
      Less(most, request.prompt_tokens + static_cast<size_t>(request.sinks + request.window));
  const bool evicts_share = shares.evict_of == EvictOf::kGenerated && shares.evict_share > 0;
  const size_t gone = evicts_share ? FloorShare(shares.evict_share, unprotected) : 0;
  const size_t all = retained.After(most) - gone;
  RowsOverTime rows;
  const size_t below = std::min(num_old, Less(all, most - num_old - (all < most ? old.first : 0)));
  (CompressesOldRows(shares) ? rows.last.t2 : rows.last.t1) = below;
  rows.last.t0 = all - below;
  rows.peaks = rows.last;
  // A step reads a whole chunk of a prompt into T0, where the rows of earlier chunks that T2 or T1
  // does not take also lie.
  const size_t of_prompt = std::min(
      {request.prompt_tokens, old.MostInT0() + request.chunk_tokens, retained.PeakOfPrompt()});
  rows.peaks.t0 =
      std::min(most, std::max(of_prompt, std::min(old.MostInT0(), retained.PeakUntil(most))));
  return rows;
}

}  // namespace

Result<RowsOverTime> ForecastRows(const ForecastRequest& request) {
  const std::optional<OldPositions> old = OldOf(request);
  if (old.has_value()) return RowsByPosition(request, *old);
  return Forecast(request).Follow();
}

RowsOverTime RetainedRows(const ForecastRequest& request) {
  const Retained retained(request);
  RowsOverTime rows;
  rows.last.t0 = retained.After(request.most_tokens);
  rows.peaks.t0 = std::max(retained.PeakOfPrompt(), retained.PeakUntil(request.most_tokens));
  return rows;
}

size_t FloorRows(const ForecastRequest& request) {
  const std::optional<OldPositions> old = OldOf(request);
  if (old.has_value()) return std::min(request.most_tokens, old->MostInT0());
  const size_t held = request.prompt_tokens + request.sinks + request.window + request.interval;
  const size_t cap = CapsOf(request).t0;
  const size_t most = cap == kNoRowCap ? kNoRowCap : cap + static_cast<size_t>(request.interval);
  return std::min({held, request.most_tokens, most});
}

std::optional<size_t> RowsOfSelectiveStep(const TierSetting& tiers, size_t most_tokens) {
  if (!ReadsSelectively(tiers.shares) || tiers.engine.t1 == T1Place::kNone) return std::nullopt;
  return std::min(kOldBesideT1.MostInT0() + kRowsPerPage, most_tokens);
}

}  // namespace ebb
