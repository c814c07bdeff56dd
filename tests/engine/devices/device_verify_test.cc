// On a simulated backend with the default model, over 2,000 tokens: what a user would see with
//   ebb run --raw -p PROMPT -n 2000 --temp 0 --ignore-eos --device ggml-sim --t0 30% --json
#include <gtest/gtest.h>

#include <algorithm>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "tests/support/default_model.h"
#include "tests/support/engine/long_thought.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EngineOptions OnSimulatedDevice(T1Mode mode) {
  return {.threads = 1,
          .tiers = EngineTiers{.t1 = T1Place::kHost},
          .device = *ParseDevice("ggml-sim"),
          .t1_mode = mode};
}

class DeviceVerify : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (DefaultModelPath().empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  }
};

TEST_P(DeviceVerify, StreamingAnyShareGivesTheBitsOfTheFullCache) {
  auto model = Model::Load({.path = DefaultModelPath(), .for_device = true});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto think = [&](T1Mode mode, const TierShares& shares) {
    return Think(*model, GetParam(), OnSimulatedDevice(mode), shares);
  };
  const LongThought full =
      Think(*model, GetParam(), {.threads = 1, .device = *ParseDevice("ggml-sim")});
  EXPECT_EQ(think(T1Mode::kStream, {.t0_share = 0.3}).hash, full.hash);
  // Each thought takes a minute and a half: one of them is asked everything.
  if (GetParam() != kThoughtPrompts[0]) return;
  for (const double share : {1.0, 0.5}) {
    EXPECT_EQ(think(T1Mode::kStream, {.t0_share = share}).hash, full.hash) << share;
  }
  EXPECT_NE(think(T1Mode::kStream, {.t0_share = 0.5, .evict_share = 0.1}).hash, full.hash);
  const LongThought computed = think(T1Mode::kCompute, {.t0_share = 0.3});
  EXPECT_EQ(computed.device.t1_mode, T1Mode::kCompute);
  EXPECT_NE(computed.hash, full.hash);
  // Up to a tie the text is the same.
  const auto [at, end] = std::ranges::mismatch(computed.tokens, full.tokens);
  EXPECT_GT(at - computed.tokens.begin(), 64);
}
INSTANTIATE_TEST_SUITE_P(Prompts, DeviceVerify, testing::ValuesIn(kThoughtPrompts));

}  // namespace
}  // namespace ebb
