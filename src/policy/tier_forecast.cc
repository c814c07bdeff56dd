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

// Forecast simulates the decisions of the hierarchy's placement as counts of rows.
class Forecast {
 public:
  explicit Forecast(const ForecastRequest& request)
      : request_(request),
        planner_(request.tiers.shares, CapsOf(request), request.protected_rows) {}

  Result<RowsOverTime> Follow() {
    const size_t most = request_.most_tokens;
    const size_t prompt = std::min(request_.prompt_tokens, most);
    const auto interval = static_cast<size_t>(request_.interval);
    RowsOverTime rows;
    rows.last.t0 = prompt;
    if (prompt > planner_.caps().t0) {
      EBB_RETURN_IF_ERROR(Decide(prompt, StepKind::kPrefill, &rows.last));
    }
    rows.peaks = rows.last;
    for (size_t tokens = prompt; tokens < most;) {
      const size_t num_new = std::min(interval, most - tokens);
      tokens += num_new;
      rows.last.t0 += num_new;
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
    GroupRows group;
    group.num_ever = Less(tokens, request_.prompt_tokens + request_.sinks + request_.window);
    group.num_protected = tokens - group.num_ever;
    group.num_alive = group.num_ever - evicted_;
    const TierPlan plan = kind == StepKind::kDecode ? planner_.Decide(group)
                                                    : planner_.Divide(group, planner_.caps().t0);
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
    return OkStatus();
  }

  const ForecastRequest& request_;
  const TierPlanner planner_;
  size_t evicted_ = 0;
};

// Returns how many of the newest rows stay in T0 if rows are placed by position alone, as with
// selective reading and old rows in T2 (see tier_plan.h); nullopt for other tiers.
std::optional<Position> NewestAbove(const TierSetting& tiers) {
  if (CompressesOldRows(tiers.shares)) return kNewestAboveT2;
  if (ReadsSelectively(tiers.shares) && tiers.engine.t1 != T1Place::kNone) return kNewestAboveT1;
  return std::nullopt;
}

// kChunkTokens is the number of prompt tokens that are read at once, before their rows leave T0.
constexpr size_t kChunkTokens = 512;

RowsOverTime RowsByPosition(const ForecastRequest& request, Position newest) {
  RowsOverTime rows;
  const Position end = EndOfOldRows(static_cast<Position>(request.most_tokens), newest);
  const size_t old = Less(std::min(static_cast<size_t>(end), request.most_tokens), kFirstInT0);
  (CompressesOldRows(request.tiers.shares) ? rows.last.t2 : rows.last.t1) = old;
  rows.last.t0 = request.most_tokens - old;
  rows.peaks = rows.last;
  const size_t chunk = std::min(kChunkTokens, request.prompt_tokens);
  rows.peaks.t0 = std::min(request.most_tokens, MostInT0(newest) + chunk);
  return rows;
}

}  // namespace

Result<RowsOverTime> ForecastRows(const ForecastRequest& request) {
  const std::optional<Position> newest = NewestAbove(request.tiers);
  if (newest.has_value()) return RowsByPosition(request, *newest);
  return Forecast(request).Follow();
}

size_t FloorRows(const ForecastRequest& request) {
  const std::optional<Position> newest = NewestAbove(request.tiers);
  if (newest.has_value()) return std::min(request.most_tokens, MostInT0(*newest));
  const size_t held = request.prompt_tokens + request.sinks + request.window + request.interval;
  const size_t cap = CapsOf(request).t0;
  const size_t most = cap == kNoRowCap ? kNoRowCap : cap + static_cast<size_t>(request.interval);
  return std::min({held, request.most_tokens, most});
}

std::optional<size_t> RowsOfSelectiveStep(const TierSetting& tiers, size_t most_tokens) {
  if (!ReadsSelectively(tiers.shares) || tiers.engine.t1 == T1Place::kNone) return std::nullopt;
  return std::min(MostInT0(kNewestAboveT1) + kRowsPerPage, most_tokens);
}

}  // namespace ebb
