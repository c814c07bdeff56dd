// The hierarchy on the default model, over thoughts of 2,000 tokens: what a user would see with
//   ebb run --raw -p PROMPT -n 2000 --temp 0 --ignore-eos --t0 30% --t1 file --evict 5% --json
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "tests/support/default_model.h"
#include "tests/support/engine/long_thought.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

constexpr int kThreads = 1;  // a busy machine makes more of them spin

LongThought Under(const std::shared_ptr<const Model>& model, const std::string& prompt,
                  const std::optional<TierSetting>& tiers) {
  if (!tiers.has_value()) return Think(model, prompt, {.threads = kThreads});
  return Think(model, prompt, {.threads = kThreads, .tiers = tiers->engine}, tiers->shares);
}

int64_t RowsInT1(const LongThought& thought) {
  return thought.cache.tiers[static_cast<int>(Tier::kT1)].rows;
}

TierSetting InFile(double t0_share, double evict_share = 0) {
  return {.engine = {.t1 = T1Place::kFile},
          .shares = {.t0_share = t0_share, .evict_share = evict_share}};
}

class LongThoughts : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (DefaultModelPath().empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
    auto model = Model::Load({.path = DefaultModelPath()});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *std::move(model);
    const auto engine = Engine::Create(model_, {.threads = kThreads, .tiers = InFile(1).engine});
    if (engine.status().code() == StatusCode::kUnsupported) {
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();  // a disk without direct reads
    }
  }
  std::shared_ptr<const Model> model_;
};

TEST_P(LongThoughts, AnyShareOfT0GivesTheBitsOfTheFullCache) {
  const LongThought full = Under(model_, GetParam(), std::nullopt);
  // One of the thoughts, which take long, is asked everything.
  const bool is_first = GetParam() == kThoughtPrompts[0];
  for (const double share : is_first ? std::vector{1.0, 0.7, 0.5, 0.3} : std::vector{0.3}) {
    const LongThought outcome = Under(model_, GetParam(), InFile(share));
    EXPECT_EQ(outcome.hash, full.hash) << share;
    EXPECT_EQ(RowsInT1(outcome) > 0, share < 1) << share;
    EXPECT_EQ(outcome.cache.rows_evicted, 0) << share;
  }
  if (!is_first) return;
  const LongThought evicted = Under(model_, GetParam(), InFile(0.5, 0.1));
  EXPECT_NE(evicted.hash, full.hash);
  EXPECT_GT(evicted.cache.rows_evicted, 0);
}
INSTANTIATE_TEST_SUITE_P(Prompts, LongThoughts, testing::ValuesIn(kThoughtPrompts));

// "Not All Thoughts Need HBM", its grid of T0 and evicted shares.
using Grid = LongThoughts;
TEST_P(Grid, WhatIsEvictedDecidesAndWhereTheRestLiesDoesNot) {
  std::map<double, uint64_t> of_column;
  for (const double evict : {0.03, 0.05, 0.1}) {
    for (const double share : {0.3, 0.5, 0.7}) {
      const LongThought outcome = Under(model_, GetParam(), InFile(share, evict));
      const auto [column, first] = of_column.emplace(evict, outcome.hash);
      EXPECT_EQ(outcome.hash, column->second) << share << " in T0, evicted " << evict;
      EXPECT_GT(outcome.cache.rows_evicted, 0);
    }
  }
  EXPECT_NE(of_column[0.03], of_column[0.05]);
  EXPECT_NE(of_column[0.05], of_column[0.1]);
}
INSTANTIATE_TEST_SUITE_P(Paper, Grid, testing::Values(kThoughtPrompts[0]));

}  // namespace
}  // namespace ebb
