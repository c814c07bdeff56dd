#include "src/policy/tier_forecast.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(TierForecast, SharesFollowTheDecisions) {
  // 1,500 tokens, one of them given: the last decision is after 1 + 23 * 64 = 1,473. Of those 1,340
  // are unprotected (less 1, 4 and 128), floor(0.3 * 1,340) = 402 of them in T0.
  const Result<RowsOverTime> rows = ForecastRows(
      {.tiers = {.shares = {.t0_share = 0.3}}, .prompt_tokens = 1, .most_tokens = 1500});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->last.t1, 1340u - 402);
  EXPECT_EQ(rows->last.t0, 133u + 402 + 27);
  // The decision before left 133 + floor(0.3 * 1,276) = 515; 64 more came.
  EXPECT_EQ(rows->peaks.t0, 515u + 64);
  EXPECT_EQ(rows->peaks.t1, rows->last.t1);
}

TEST(TierForecast, CompressedAndEvictedRowsNeverDependOnT0) {
  for (const double share : {0.0, 0.5, 1.0}) {
    const Result<RowsOverTime> rows =
        ForecastRows({.tiers = {.engine = {.t2_type = CompressedType::kInt8},
                                .shares = {.t0_share = share, .t2_share = 0.5, .evict_share = 0.1}},
                      .prompt_tokens = 4,
                      .most_tokens = 1476});
    ASSERT_TRUE(rows.ok());
    // 1,340 unprotected, 134 of them gone, half of 1,206 in T2.
    EXPECT_EQ(rows->last.t2, 603u);
    EXPECT_EQ(rows->last.t0 + rows->last.t1, 136u + 603);
  }
}

TEST(TierForecast, EvictionOfAliveCompoundsAndOfGeneratedDoesNot) {
  ForecastRequest request = {
      .tiers = {.engine = {.t1 = T1Place::kNone}, .shares = {.evict_share = 0.1}},
      .most_tokens = 2048};
  const Result<RowsOverTime> generated = ForecastRows(request);
  request.tiers.shares.evict_of = EvictOf::kAlive;
  const Result<RowsOverTime> alive = ForecastRows(request);
  ASSERT_TRUE(generated.ok() && alive.ok());
  // 1,916 ever unprotected, 191 of them gone.
  EXPECT_EQ(generated->last.t0, 2048u - 191);
  EXPECT_LT(alive->last.t0, 2048u / 2);
}

TEST(TierForecast, WhereRowsMayGoTheCapsHoldAnyLength) {
  ForecastRequest request = {.tiers = {.engine = {.t0_cap_bytes = 1, .t1 = T1Place::kNone},
                                       .shares = {.evict_share = 0.01}},
                             .rows_available = {.t0 = 640},
                             .prompt_tokens = 64};
  for (const size_t most_tokens : {8000, 100000}) {
    request.most_tokens = most_tokens;
    const Result<RowsOverTime> rows = ForecastRows(request);
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    EXPECT_EQ(rows->peaks.t0, 640u) << most_tokens;
  }
}

}  // namespace
}  // namespace ebb
