// A decision of the memory hierarchy, in numbers of rows of one group: Algorithm 1 of "Not All
// Thoughts Need HBM" with T2 put in, as pure counts. The placement
// (placements/hierarchy_placement.cc) then says which rows they are; `ebb fit` follows the counts
// alone.
#ifndef EBB_POLICY_TIER_PLAN_H_
#define EBB_POLICY_TIER_PLAN_H_

#include <cstddef>

#include "ebb/policy.h"
#include "ebb/recent_windows.h"
#include "ebb/tiers.h"
#include "ebb/types.h"
#include "src/base/page_units.h"

namespace ebb {

// 29 % of 100 rows are 29 rows, although 0.29 * 100 is a little less than 29.
[[nodiscard]] size_t FloorShare(double share, size_t num_rows);

// The most rows of which no more than `room` stay in full precision once T2 has its share.
[[nodiscard]] size_t MostAlive(double t2_share, size_t room);

inline constexpr size_t kNoRowCap = RowsAvailable::kNoCap;

// The number of rows that the tiers may hold of each group after a decision.
struct TierCaps {
  size_t t0 = kNoRowCap;
  size_t t1 = kNoRowCap;  // 0: there is no T1

  [[nodiscard]] bool Bind() const { return t0 != kNoRowCap && t1 != kNoRowCap; }
};

// The caps of `spec`, under which each tier has so many rows, less those of an interval, which come
// between two decisions.
[[nodiscard]] TierCaps CapsOf(const TierSpec& spec, const RowsAvailable& rows, int interval);

// Placements that decide by position alone keep the first page of positions and the newest
// positions in T0, and all pages between them, the old rows, in a lower tier.
inline constexpr Position kFirstInT0 = kFirstRowsInT0;
// The newest rows in T0, less one and less those of a page that is being filled.
inline constexpr Position kNewestAboveT1 = kNewestBesideSelectedT1.least - 1;
inline constexpr Position kNewestAboveT2 = kNewestBesideT2.least - 1;
static_assert(kFirstInT0 == kRowsPerPage && kNewestBesideT2.most == kNewestAboveT2 + kRowsPerPage &&
              kNewestBesideSelectedT1.most == kNewestAboveT1 + kRowsPerPage);
// Returns the most rows that T0 holds between steps: a page more than the newest ones, which is
// being filled.
[[nodiscard]] constexpr size_t MostInT0(Position newest) {
  return static_cast<size_t>(kFirstInT0 + newest) + kRowsPerPage;
}
// Returns the end of the old positions, which begin at kFirstInT0, of a sequence of `num_tokens`.
[[nodiscard]] constexpr Position EndOfOldRows(Position num_tokens, Position newest) {
  const Position older = num_tokens - 1 - newest;
  return older <= kFirstInT0 ? kFirstInT0 : older / kFirstInT0 * kFirstInT0;
}
[[nodiscard]] constexpr bool IsOldRow(Position position, Position end) {
  return position >= kFirstInT0 && position < end;
}

// One group before a decision.
struct GroupRows {
  size_t num_protected = 0;  // in full precision
  size_t num_ever = 0;       // that were ever unprotected
  size_t num_alive = 0;      // of them, those that the decision is about
};

struct TierPlan {
  size_t num_protected_t1 = 0;
  size_t num_protected_evict = 0;
  // How many of the rows that are alive and unprotected go where, lowest scores first.
  size_t num_evict = 0;
  size_t num_t2 = 0;
  size_t num_full = 0;  // in T0 and T1
  size_t num_t1 = 0;    // of them
};

class TierPlanner {
 public:
  TierPlanner(const TierSpec& spec, const TierCaps& caps)
      : spec_(spec), t0_share_(spec.t0_share), caps_(caps) {}

  // Returns the tiers that the constructor took; SetT0Share() does not change them.
  [[nodiscard]] const TierSpec& spec() const { return spec_; }
  [[nodiscard]] const TierCaps& caps() const { return caps_; }
  // Whether what two caps leave out goes, beside the share that was asked for.
  [[nodiscard]] bool EvictsBeyondCaps() const {
    return (spec_.evict_share > 0 || spec_.evict_beyond_caps) && caps_.Bind();
  }
  // T0's share of the rows in full precision; see Placement::SetT0Share().
  void SetT0Share(double share) { t0_share_ = share; }

  // At an interval of decode.
  [[nodiscard]] TierPlan Decide(const GroupRows& rows) const;
  // Rows of full precision alone, among T0, of which `t0_rows` may be used, and T1; only rows
  // beyond the caps are evicted.
  [[nodiscard]] TierPlan Divide(const GroupRows& rows, size_t t0_rows) const;
  // Whether the caps hold what must stay in full precision.
  [[nodiscard]] bool Holds(size_t num_protected, size_t num_full) const {
    return !caps_.Bind() || num_protected + num_full <= caps_.t0 + caps_.t1;
  }

 private:
  [[nodiscard]] size_t NumToEvict(const GroupRows& rows) const;
  void Split(const GroupRows& rows, size_t t0_rows, TierPlan* plan) const;

  TierSpec spec_;
  double t0_share_;
  TierCaps caps_;
};

}  // namespace ebb

#endif  // EBB_POLICY_TIER_PLAN_H_
