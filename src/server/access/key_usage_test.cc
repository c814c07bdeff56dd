#include "src/server/access/key_usage.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(KeyUsage, WithoutLimitsEverythingBeginsAndNothingIsTold) {
  KeyUsage usage;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(usage.Begin({}, 0).has_value());
  usage.Charge({}, 1'000'000, 0);
  EXPECT_FALSE(usage.Begin({}, 0).has_value());
  EXPECT_THAT(usage.Headers({}, 0), IsEmpty());
}

TEST(KeyUsage, SoManyRunAtATime) {
  const KeyLimits limits = {.concurrent = 2};
  KeyUsage usage;
  EXPECT_FALSE(usage.Begin(limits, 0).has_value());
  EXPECT_FALSE(usage.Begin(limits, 0).has_value());
  const auto refusal = usage.Begin(limits, 100);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->limit, UsageLimit::kConcurrent);
  EXPECT_GT(refusal->retry_after, 0);
  EXPECT_EQ(usage.num_running(), 2u);
  usage.End();
  EXPECT_FALSE(usage.Begin(limits, 100).has_value());
}

TEST(KeyUsage, ARefusedRequestComesThroughAfterTheTimeThatItWasTold) {
  const KeyLimits limits = {.requests_per_minute = 6};
  KeyUsage usage;
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(usage.Begin(limits, 1).has_value()) << i;
  const auto refusal = usage.Begin(limits, 1);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->limit, UsageLimit::kRequests);
  EXPECT_DOUBLE_EQ(refusal->retry_after, 10);
  EXPECT_TRUE(usage.Begin(limits, 10.9).has_value());
  EXPECT_FALSE(usage.Begin(limits, 11.001).has_value());
  EXPECT_TRUE(usage.Begin(limits, 11.001).has_value());
}

TEST(KeyUsage, TokensLeaveADebtThatIsPaidInTime) {
  const KeyLimits limits = {.tokens_per_minute = 600};
  KeyUsage usage;
  EXPECT_FALSE(usage.Begin(limits, 0).has_value());
  usage.Charge(limits, 1200, 0);
  const auto refusal = usage.Begin(limits, 0);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->limit, UsageLimit::kTokens);
  EXPECT_NEAR(refusal->retry_after, 60.1, 1e-9);
  EXPECT_TRUE(usage.Begin(limits, 60).has_value());
  EXPECT_FALSE(usage.Begin(limits, 60.2).has_value());
  // A bucket never holds more than a minute's worth.
  usage.Charge(limits, 600, 10'000);
  EXPECT_TRUE(usage.Begin(limits, 10'000).has_value());
}

TEST(KeyUsage, HeadersTellWhatIsLeftAndWhenAllIsBack) {
  const KeyLimits limits = {.concurrent = 9, .requests_per_minute = 60, .tokens_per_minute = 100};
  KeyUsage usage;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(usage.Begin(limits, 0).has_value());
  usage.Charge(limits, 150, 0);
  EXPECT_THAT(usage.Headers(limits, 0), ElementsAre(Pair("X-RateLimit-Limit-Requests", "60"),
                                                    Pair("X-RateLimit-Remaining-Requests", "58"),
                                                    Pair("X-RateLimit-Reset-Requests", "2s"),
                                                    Pair("X-RateLimit-Limit-Tokens", "100"),
                                                    Pair("X-RateLimit-Remaining-Tokens", "0"),
                                                    Pair("X-RateLimit-Reset-Tokens", "1m30s")));
}

// In random traces, no time window may admit more requests than a full bucket and its refill within
// the window.
TEST(KeyUsage, RandomTracesKeepTheRate) {
  const KeyLimits limits = {.requests_per_minute = 30};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    KeyUsage usage;
    std::vector<double> begun;
    double now = 0;
    for (int i = 0; i < 2000; ++i) {
      now += static_cast<double>(random() % 1000) / 400;
      if (!usage.Begin(limits, now).has_value()) begun.push_back(now);
    }
    for (size_t first = 0; first < begun.size(); ++first) {
      for (size_t last = first; last < begun.size(); ++last) {
        const double seconds = begun[last] - begun[first];
        ASSERT_LE(static_cast<double>(last - first + 1), 30 + seconds / 2 + 1e-6) << seed;
      }
    }
    // Requests come faster than the rate, so that almost all of the rate must be used.
    EXPECT_GE(static_cast<double>(begun.size()), now / 2 * 0.95);
  }
}

}  // namespace
}  // namespace ebb::server
