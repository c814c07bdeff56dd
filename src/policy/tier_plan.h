// Plans a decision of the memory hierarchy as numbers of rows of one group: Algorithm 1 of "Not All
// Thoughts Need HBM", extended by T2. The placement (placements/hierarchy_placement.cc) then
// chooses the rows; `ebb fit` uses the counts alone.
#ifndef EBB_POLICY_TIER_PLAN_H_
#define EBB_POLICY_TIER_PLAN_H_

#include <algorithm>
#include <cstddef>

#include "ebb/policy.h"
#include "ebb/recent_windows.h"
#include "ebb/tiers.h"
#include "ebb/types.h"
#include "src/base/page_units.h"

namespace ebb {

// Returns floor(share * num_rows), tolerating rounding: 29 % of 100 rows are 29 rows, although 0.29
// * 100 is a little less than 29.
[[nodiscard]] size_t FloorShare(double share, size_t num_rows);

// Returns the largest number of rows such that at most `room` of them stay in full precision after
// T2 receives its share.
[[nodiscard]] size_t MostAlive(double t2_share, size_t room);

inline constexpr size_t kNoRowCap = RowsAvailable::kNoCap;

// TierCaps holds the most rows of each group that T0 and T1 may hold after a decision.
struct TierCaps {
  size_t t0 = kNoRowCap;
  size_t t1 = kNoRowCap;  // 0: there is no T1

  [[nodiscard]] bool Bind() const { return t0 != kNoRowCap && t1 != kNoRowCap; }
};

// Returns the caps of `tiers` in rows. `rows` are the rows that fit into each tier; the caps leave
// room for the rows of one interval, which arrive between two decisions.
[[nodiscard]] TierCaps CapsOf(const EngineTiers& tiers, const RowsAvailable& rows, int interval);

// Protected selects the treatment of protected rows for which neither T0 nor T1 has room. kStay:
// the decision is refused. kMayGo: the oldest are evicted, but never the first few rows of the
// sequence; only drafts of lossless sessions lose rows so, since their store keeps every row.
enum class Protected { kStay, kMayGo };
// Returns MakePolicy() of a policy whose placement treats protected rows so.
[[nodiscard]] Result<Policy> MakePolicy(const PolicySpec& spec, const PolicyContext& context,
                                        Protected rows);

// OldPositions says which positions are old in placements that decide by position alone: those
// between the first and the newest ones, which such placements keep in T0. Positions become old in
// blocks, so that rows move rarely and pages of lower tiers fill.
struct OldPositions {
  Position first = kFirstRowsInT0;
  Position newest = 0;  // at least; up to a block more
  Position block = kRowsPerPage;

  // Returns the end of the old positions, which begin at `first`, after `num_tokens` tokens.
  [[nodiscard]] constexpr Position EndAfter(Position num_tokens) const {
    const Position older = num_tokens - newest;
    return older <= first ? first : std::max(first, older / block * block);
  }
  [[nodiscard]] constexpr bool IsOld(Position position, Position end) const {
    return position >= first && position < end;
  }
  // Returns the most rows that T0 holds between steps: the first and newest ones, and a block that
  // is being filled.
  [[nodiscard]] constexpr size_t MostInT0() const {
    return static_cast<size_t>(first + newest - 1 + block);
  }
};
// kOldBesideT1 holds for selective reading of T1.
inline constexpr OldPositions kOldBesideT1 = {.newest = kNewestBesideSelectedT1.least};
// Returns the positions that T2Rows::kOld compresses, under a retention that decides about the
// newest `decided_after` tokens yet.
[[nodiscard]] constexpr OldPositions OldBesideT2(const TierShares& shares, int decided_after) {
  return {.first = shares.t2_first,
          .newest = std::max(shares.t2_newest, decided_after),
          .block = std::clamp(shares.t2_newest, 1, kRowsPerPage)};
}
static_assert(kNewestBesideT2.most == kNewestBesideT2.least - 1 + kRowsPerPage &&
              kNewestBesideSelectedT1.most == kNewestBesideSelectedT1.least - 1 + kRowsPerPage);

// GroupRows counts the rows of one group before a decision.
struct GroupRows {
  size_t num_protected = 0;  // in full precision
  size_t num_ever = 0;       // that were ever unprotected
  size_t num_alive = 0;      // of them, those that the decision is about
};

struct TierPlan {
  size_t num_protected_t1 = 0;
  size_t num_protected_evict = 0;
  // Counts the rows, alive and unprotected, that go to each place; the lowest scores are evicted,
  // the next ones go to T2.
  size_t num_evict = 0;
  size_t num_t2 = 0;
  size_t num_full = 0;  // in T0 and T1
  size_t num_t1 = 0;    // of them
};

class TierPlanner {
 public:
  TierPlanner(const TierShares& shares, const TierCaps& caps, Protected rows = Protected::kStay)
      : shares_(shares),
        t0_share_(shares.t0_share.value_or(kDefaultT0Share)),
        caps_(caps),
        protected_(rows) {}

  // Returns the caps that the constructor received.
  [[nodiscard]] const TierCaps& caps() const { return caps_; }
  // Returns whether rows that the caps of both T0 and T1 leave out are evicted, in addition to the
  // share that the user asked to evict.
  [[nodiscard]] bool EvictsBeyondCaps() const { return Evicts(shares_) && caps_.Bind(); }
  // Sets T0's share of the rows in full precision; see Placement::SetT0Share().
  void SetT0Share(double share) { t0_share_ = share; }

  // Returns the plan of a decision in decode: the rows to evict, to compress, and to keep in T0 and
  // T1.
  [[nodiscard]] TierPlan Decide(const GroupRows& rows) const;
  // Returns a plan that divides the rows in full precision among T0, which may use `t0_rows`, and
  // T1. Evicts only rows beyond the caps and compresses none.
  [[nodiscard]] TierPlan Divide(const GroupRows& rows, size_t t0_rows) const;
  // Returns whether the caps hold the rows that must stay in full precision.
  [[nodiscard]] bool Holds(size_t num_protected, size_t num_full) const {
    return !caps_.Bind() || num_protected + num_full <= caps_.t0 + caps_.t1;
  }

 private:
  [[nodiscard]] size_t NumToEvict(const GroupRows& rows) const;
  void Split(const GroupRows& rows, size_t t0_rows, TierPlan* plan) const;

  TierShares shares_;
  double t0_share_;
  TierCaps caps_;
  Protected protected_;
};

}  // namespace ebb

#endif  // EBB_POLICY_TIER_PLAN_H_
