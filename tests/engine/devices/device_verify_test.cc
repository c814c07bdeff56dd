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

EngineOptions OnSimulatedDevice(T1Mode mode, const TierSpec& tiers) {
  return {.threads = 1, .tiers = tiers, .device = *ParseDevice("ggml-sim"), .t1_mode = mode};
}

TierSpec Tiers(double t0_share, double evict_share = 0) {
  return {.t0_share = t0_share, .t1 = T1Place::kHost, .evict_share = evict_share};
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
  const auto think = [&](const EngineOptions& options) {
    return Think(*model, GetParam(), options);
  };
  const LongThought full = think({.threads = 1, .device = *ParseDevice("ggml-sim")});
  EXPECT_EQ(think(OnSimulatedDevice(T1Mode::kStream, Tiers(0.3))).hash, full.hash);
  // Each thought takes a minute and a half: one of them is asked everything.
  if (GetParam() != kThoughtPrompts[0]) return;
  for (const double share : {1.0, 0.5}) {
    EXPECT_EQ(think(OnSimulatedDevice(T1Mode::kStream, Tiers(share))).hash, full.hash) << share;
  }
  EXPECT_NE(think(OnSimulatedDevice(T1Mode::kStream, Tiers(0.5, 0.1))).hash, full.hash);
  const LongThought computed = think(OnSimulatedDevice(T1Mode::kCompute, Tiers(0.3)));
  EXPECT_EQ(computed.device.t1_mode, T1Mode::kCompute);
  EXPECT_NE(computed.hash, full.hash);
  // Up to a tie the text is the same.
  const auto [at, end] = std::ranges::mismatch(computed.tokens, full.tokens);
  EXPECT_GT(at - computed.tokens.begin(), 64);
}
INSTANTIATE_TEST_SUITE_P(Prompts, DeviceVerify, testing::ValuesIn(kThoughtPrompts));

}  // namespace
}  // namespace ebb
