#include "ebb/sampler.h"
#include "tests/support/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ebb {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(LogprobsTest, AreLogarithmsOfTheSoftmax) {
  // Probabilities 1/8, 1/2, 1/8, 1/4, far above where exp() of a float ends.
  const std::vector<float> logits = {1000, 1000 + std::log(4.0F), 1000, 1000 + std::log(2.0F)};
  const Logprobs found = LogprobsOf(logits, 2, 3);
  EXPECT_EQ(found.chosen.token, 2);
  EXPECT_NEAR(found.chosen.logprob, std::log(0.125), 1e-4);
  ASSERT_EQ(found.top.size(), 3U);
  EXPECT_EQ(found.top[0].token, 1);
  EXPECT_NEAR(found.top[0].logprob, std::log(0.5), 1e-4);
  EXPECT_EQ(found.top[1].token, 3);
  EXPECT_EQ(found.top[2].token, 0);  // as likely as 2
}

TEST(LogprobsTest, AllThereAreWhenMoreAreAsked) {
  const std::vector<float> logits = {1, 2};
  EXPECT_EQ(LogprobsOf(logits, 0, 10).top.size(), 2U);
  EXPECT_TRUE(LogprobsOf(logits, 0, 0).top.empty());
}

TEST(LogprobsTest, ATokenRuledOutHasNone) {
  const Logprobs found = LogprobsOf(std::vector<float>{0, -kInf}, 1, 2);
  EXPECT_EQ(found.chosen.logprob, -kInf);
  EXPECT_EQ(found.top[0].logprob, 0);
  EXPECT_EQ(found.top[1].logprob, -kInf);
}

TEST(LogprobsTest, NoDistributionHasNone) {
  for (const std::vector<float>& logits :
       {std::vector<float>{0, kNan, 1}, {-kInf, -kInf}, {0, kInf}}) {
    const Logprobs found = LogprobsOf(logits, 0, 2);
    EXPECT_TRUE(std::isnan(found.chosen.logprob));
    EXPECT_TRUE(found.top.empty());
  }
}

}  // namespace
}  // namespace ebb
