// The counts of a decision against the words of Algorithm 1, over a grid.
#include "src/policy/tier_plan.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace ebb {
namespace {

TEST(TierPlan, WithoutCapsEachTierHasItsShareOfWhatTheOneBelowLeaves) {
  for (const int percent_evict : {0, 10, 35, 100}) {
    for (const int percent_t2 : {0, 25, 100}) {
      for (const int percent_t0 : {0, 30, 100}) {
        for (size_t alive = 0; alive < 300; alive += 7) {
          const TierShares spec = {.t0_share = percent_t0 / 100.0,
                                   .t2_share = percent_t2 / 100.0,
                                   .evict_share = percent_evict / 100.0,
                                   .evict_of = EvictOf::kAlive};
          const TierPlan plan = TierPlanner(spec, {}).Decide(
              {.num_protected = 50, .num_ever = alive + 13, .num_alive = alive});
          EXPECT_EQ(plan.num_evict, alive * percent_evict / 100);
          const size_t stay = alive - plan.num_evict;
          EXPECT_EQ(plan.num_t2, stay * percent_t2 / 100);
          EXPECT_EQ(plan.num_full, stay - plan.num_t2);
          EXPECT_EQ(plan.num_full - plan.num_t1, plan.num_full * percent_t0 / 100);
          EXPECT_EQ(plan.num_protected_t1 + plan.num_protected_evict, 0u);
        }
      }
    }
  }
}

TEST(TierPlan, OfRowsEverUnprotectedTheShareIsReachedWhoeverRemovedThem) {
  const TierPlanner planner({.evict_share = 0.5}, {});
  for (size_t gone = 0; gone <= 200; ++gone) {
    const TierPlan plan = planner.Decide({.num_ever = 200, .num_alive = 200 - gone});
    EXPECT_EQ(gone + plan.num_evict, std::max<size_t>(gone, 100));
  }
}

TEST(TierPlan, TwoCapsHoldWhatIsLeftAndTheRestGoesOnlyWhereItMay) {
  for (const size_t t0 : {64, 128, 500}) {
    for (const size_t t1 : {0, 64, 200}) {
      for (const double t2 : {0.0, 0.3}) {
        for (size_t alive = 0; alive < 900; alive += 31) {
          const GroupRows rows = {.num_protected = 40, .num_ever = alive, .num_alive = alive};
          TierShares spec = {.t2_share = t2};
          const TierPlanner refusing(spec, {.t0 = t0, .t1 = t1});
          EXPECT_EQ(refusing.Decide(rows).num_evict, 0u);
          spec.evict_beyond_caps = true;
          const TierPlanner evicting(spec, {.t0 = t0, .t1 = t1});
          const TierPlan plan = evicting.Decide(rows);
          EXPECT_TRUE(evicting.Holds(rows.num_protected, plan.num_full));
          EXPECT_LE(plan.num_t1 + plan.num_protected_t1, t1);
          EXPECT_LE(rows.num_protected + plan.num_full - plan.num_t1 - plan.num_protected_t1, t0);
          // No more than needed: one row more would not fit.
          if (plan.num_evict > 0) {
            const size_t stay = alive - plan.num_evict + 1;
            EXPECT_FALSE(evicting.Holds(rows.num_protected, stay - FloorShare(t2, stay)));
          } else {
            EXPECT_TRUE(refusing.Holds(rows.num_protected, refusing.Decide(rows).num_full));
          }
        }
      }
    }
  }
}

TEST(TierPlan, ASplitOfAPromptCompressesNothingAndKeepsToWhatT0MayUse) {
  const TierPlanner planner({.t2_share = 0.5, .evict_share = 0.5}, {.t0 = 100, .t1 = 1000});
  const TierPlan plan = planner.Divide({.num_protected = 30, .num_alive = 200}, /*t0_rows=*/60);
  EXPECT_EQ(plan.num_t2, 0u);
  EXPECT_EQ(plan.num_evict, 0u);
  EXPECT_EQ(plan.num_t1, 170u);
}

TEST(TierPlan, ASetShareOfT0ChangesNothingBelow) {
  TierPlanner planner({.t0_share = 0.5, .t2_share = 0.2, .evict_share = 0.1}, {});
  const GroupRows rows = {.num_protected = 10, .num_ever = 1000, .num_alive = 950};
  const TierPlan before = planner.Decide(rows);
  planner.SetT0Share(0.1);
  const TierPlan after = planner.Decide(rows);
  EXPECT_EQ(after.num_evict, before.num_evict);
  EXPECT_EQ(after.num_t2, before.num_t2);
  EXPECT_EQ(after.num_full - after.num_t1, before.num_full / 10);
}

}  // namespace
}  // namespace ebb
