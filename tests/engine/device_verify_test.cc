// Beside a simulated device on the default model, over 2,000 tokens: what a user would see with
//   ebb run --raw -p PROMPT -n 2000 --temp 0 --ignore-eos --device sim --t0 30% --json
//   ebb fidelity --dequantize --kv-type f32 --device sim --t1-mode compute --t0 30% --tokens 2064
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ebb/engine.h"
#include "ebb/fidelity.h"
#include "ebb/model.h"
#include "tests/support/default_model.h"
#include "tests/support/long_thought.h"

namespace ebb {
namespace {

constexpr int kPromptTokens = 64;

std::shared_ptr<const Model> Load(WeightMode weights) {
  auto model = Model::Load({.path = DefaultModelPath(), .weights = weights});
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return model.ok() ? *std::move(model) : nullptr;
}

// 25 GB/s each way, 10 us.
EngineOptions Beside(T1Mode mode, const TierSpec& tiers) {
  return {.threads = 1, .tiers = tiers, .device = *ParseDevice("sim"), .t1_mode = mode};
}

TierSpec Tiers(double t0_share, double evict_share = 0) {
  return {.t0_share = t0_share, .t1 = T1Place::kHost, .evict_share = evict_share};
}

void ExpectCriticalPath(const DeviceReport& device) {
  EXPECT_GT(device.decode_steps, 0);
  EXPECT_NEAR(device.decode_seconds, device.critical_path_seconds,
              0.05 * device.critical_path_seconds);
}

class DeviceVerify : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (DefaultModelPath().empty()) GTEST_SKIP() << kNoDefaultModel;
  }
};

TEST_P(DeviceVerify, StreamingAnyShareGivesTheBitsOfTheFullCache) {
  const auto model = Load(ModelOptions().weights);
  ASSERT_NE(model, nullptr);
  const LongThought full = Think(model, GetParam(), {.threads = 1});
  for (const double share : {1.0, 0.7, 0.5, 0.3}) {
    const LongThought outcome = Think(model, GetParam(), Beside(T1Mode::kStream, Tiers(share)));
    EXPECT_EQ(outcome.hash, full.hash) << share;
    ExpectCriticalPath(outcome.device);
  }
  const LongThought evicted = Think(model, GetParam(), Beside(T1Mode::kStream, Tiers(0.5, 0.1)));
  EXPECT_NE(evicted.hash, full.hash);
}
INSTANTIATE_TEST_SUITE_P(Prompts, DeviceVerify, testing::ValuesIn(kThoughtPrompts));

using ComputeVerify = DeviceVerify;
TEST_P(ComputeVerify, AttendingOnTheHostIsExactUpToRounding) {
  const auto model = Load(WeightMode::kDequantize);
  ASSERT_NE(model, nullptr);
  EngineOptions options = Beside(T1Mode::kCompute, Tiers(0.3));
  options.kv_type = RowType::kF32;
  EngineOptions plain = {.threads = 1, .kv_type = RowType::kF32};
  const std::vector<Token> text = Think(model, GetParam(), plain).tokens;
  const auto engine = Engine::Create(model, options);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  FidelityOptions fidelity = {.prompt_tokens = kPromptTokens};
  fidelity.setting.policy = {.name = "attention", .tiers = options.tiers};
  const auto report = MeasureFidelity(**engine, {&text, 1}, fidelity);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_GT(report->tokens, kThoughtTokens - kPromptTokens);
  EXPECT_LE(report->max_logit_difference, 1e-3);
  EXPECT_GT(report->max_logit_difference, 0);
  EXPECT_LE(report->mean_kl.value, 1e-7);
  EXPECT_EQ((*engine)->device_report().t1_mode, T1Mode::kCompute);
  ExpectCriticalPath((*engine)->device_report());
}
INSTANTIATE_TEST_SUITE_P(Prompts, ComputeVerify, testing::Values(kThoughtPrompts[0]));

}  // namespace
}  // namespace ebb
