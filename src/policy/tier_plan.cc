#include "src/policy/tier_plan.h"

#include <algorithm>
#include <cmath>

namespace ebb {
namespace {

size_t Less(size_t a, size_t b) { return a > b ? a - b : 0; }

}  // namespace

size_t FloorShare(double share, size_t num_rows) {
  constexpr double kRounding = 1e-6;
  return static_cast<size_t>(std::floor(share * static_cast<double>(num_rows) + kRounding));
}

size_t MostAlive(double t2_share, size_t room) {
  if (t2_share >= 1) return std::numeric_limits<size_t>::max();
  // kMost is beyond any context, and small enough to be exact in a double.
  constexpr size_t kMost = size_t{1} << 40;
  const auto fits = [&](size_t rows) { return rows - FloorShare(t2_share, rows) <= room; };
  if (fits(kMost)) return kMost;
  size_t low = 0, high = kMost;  // the one fits, the other does not
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

TierCaps CapsOf(const EngineTiers& tiers, const RowsAvailable& rows, int interval) {
  const auto spare = static_cast<size_t>(interval);
  TierCaps caps;
  if (tiers.t0_cap_bytes > 0) caps.t0 = Less(rows.t0, spare);
  if (tiers.t1_cap_bytes > 0) caps.t1 = Less(rows.t1, spare);
  if (tiers.t1 == T1Place::kNone) caps.t1 = 0;
  return caps;
}

// Returns the number of rows to evict: the user's share or, if caps may evict rows and this is
// more, the rows that the caps do not hold.
size_t TierPlanner::NumToEvict(const GroupRows& rows) const {
  const size_t num_gone = rows.num_ever - rows.num_alive;
  const size_t of_share = shares_.evict_of == EvictOf::kAlive
                              ? FloorShare(shares_.evict_share, rows.num_alive)
                              : Less(FloorShare(shares_.evict_share, rows.num_ever), num_gone);
  if (!EvictsBeyondCaps()) return of_share;
  const size_t room = Less(caps_.t0 + caps_.t1, rows.num_protected);
  return std::max(of_share, Less(rows.num_alive, MostAlive(shares_.t2_share, room)));
}

// Fills T0 up to its cap and sends the rest to T1. If both caps are too small, the plan exceeds
// them, and Holds() reports that.
void TierPlanner::Split(const GroupRows& rows, size_t t0_rows, TierPlan* plan) const {
  plan->num_full = rows.num_alive - plan->num_evict - plan->num_t2;
  plan->num_protected_t1 = std::min(Less(rows.num_protected, t0_rows), caps_.t1);
  const size_t t1_room = caps_.t1 - plan->num_protected_t1;
  const size_t wanted_in_t0 = caps_.t0 == kNoRowCap ? FloorShare(t0_share_, plan->num_full)
                                                    : Less(t0_rows, rows.num_protected);
  plan->num_t1 = std::min(Less(plan->num_full, wanted_in_t0), t1_room);
  if (protected_ == Protected::kStay) return;
  const size_t may_go = Less(rows.num_protected, static_cast<size_t>(kDefaultSinks));
  plan->num_protected_evict = std::min(may_go, Less(rows.num_protected, t0_rows));
}

TierPlan TierPlanner::Decide(const GroupRows& rows) const {
  TierPlan plan;
  plan.num_evict = NumToEvict(rows);
  plan.num_t2 = FloorShare(shares_.t2_share, rows.num_alive - plan.num_evict);
  Split(rows, caps_.t0, &plan);
  return plan;
}

TierPlan TierPlanner::Divide(const GroupRows& rows, size_t t0_rows) const {
  TierPlan plan;
  if (EvictsBeyondCaps()) {
    const size_t too_many = Less(rows.num_protected + rows.num_alive, t0_rows + caps_.t1);
    plan.num_evict = std::min(rows.num_alive, too_many);
  }
  Split(rows, t0_rows, &plan);
  return plan;
}

}  // namespace ebb
