// Tests plans for the memory of this process, with a small model of random weights.
#include "ebb/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "src/base/sanitizers.h"
#include "tests/support/numbers.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::HasSubstr;

constexpr int kContext = 1 << 16;  // 64 MiB of rows

class MemoryPlanTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const TempFolder folder;
    const Status status = WriteRandomGguf({.context = kContext}, folder.File("model.gguf"));
    ASSERT_TRUE(status.ok()) << status.ToString();
    model_ = *Model::Load({.path = folder.File("model.gguf")});
  }
  static void TearDownTestSuite() { model_.reset(); }

  // Returns the bytes that a whole context of the full cache takes.
  static uint64_t FullBytes(int prompt_tokens = 0) {
    const auto plan = PlanMemory(
        *model_, {.memory_bytes = uint64_t{64} << 30, .prompt_tokens = prompt_tokens}, {}, {});
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return plan->bytes.Memory();
  }
  static void ExpectRefused(const EngineOptions& engine, const SessionOptions& session,
                            const std::string& why) {
    const auto plan = PlanMemory(*model_, {.memory_bytes = uint64_t{64} << 30}, engine, session);
    ASSERT_FALSE(plan.ok()) << why;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(plan.status().field(), "memory_bytes");
    EXPECT_THAT(plan.status().message(), HasSubstr(why));
  }

  static std::shared_ptr<const Model> model_;
};

std::shared_ptr<const Model> MemoryPlanTest::model_;

TEST_F(MemoryPlanTest, TakesTheGentlestSettingThatFits) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer's shadow memory counts as the program's";
  const uint64_t full = FullBytes();
  const auto enough = PlanMemory(*model_, {.memory_bytes = full + kMiB}, {}, {});
  ASSERT_TRUE(enough.ok()) << enough.status().ToString();
  EXPECT_EQ(enough->setting.name, "full");
  EXPECT_TRUE(enough->is_chosen);
  EXPECT_FALSE(enough->setting.tiers.has_value());
  EXPECT_EQ(enough->context, kContext);
  const auto less = PlanMemory(*model_, {.memory_bytes = full - 16 * kMiB}, {}, {});
  ASSERT_TRUE(less.ok()) << less.status().ToString();
  ASSERT_TRUE(less->setting.tiers.has_value());
  EXPECT_LE(less->bytes.Memory(), full - 16 * kMiB);
  EXPECT_EQ(less->limits.memory_bytes, full - 16 * kMiB);
}

TEST_F(MemoryPlanTest, APolicyExcludesSettingsThatPlaceRowsByPosition) {
  const auto by_position = [](const SessionOptions& session) {
    return FitRequestOf(*model_, {}, session, /*prompt_tokens=*/0).places_by_position;
  };
  EXPECT_TRUE(by_position({}));
  SessionOptions policy, scorer, interval;
  policy.policy.name = "h2o";
  scorer.policy.scorer = "lag_kv";
  interval.policy.interval = 32;
  for (const SessionOptions& session : {policy, scorer, interval}) {
    EXPECT_FALSE(by_position(session));
  }
}

TEST_F(MemoryPlanTest, AShortGenerationTakesLess) {
  MemoryRequest brief = {.memory_bytes = FullBytes(500) - 16 * kMiB, .prompt_tokens = 500};
  const auto whole_context = PlanMemory(*model_, brief, {}, {});
  ASSERT_TRUE(whole_context.ok()) << whole_context.status().ToString();
  EXPECT_NE(whole_context->setting.name, "full");
  brief.max_tokens = 100;
  const auto plan = PlanMemory(*model_, brief, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->setting.name, "full");
  EXPECT_EQ(plan->context, 600);
  // A generation never takes more than the context, however large max_tokens is.
  brief.max_tokens = 1 << 30;
  brief.memory_bytes = uint64_t{64} << 30;
  const auto whole = PlanMemory(*model_, brief, {}, {.context = 4000});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_EQ(whole->context, 4000);
}

TEST_F(MemoryPlanTest, TiersThatWereAskedForStayAndAreChecked) {
  EngineOptions engine;
  SessionOptions session;
  SetTiers(TierSetting{.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.5}}, &engine,
           &session);
  const auto plan = PlanMemory(*model_, {.memory_bytes = uint64_t{64} << 30}, engine, session);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->setting.name, "as asked for");
  EXPECT_FALSE(plan->is_chosen);
  EXPECT_EQ(plan->setting.tiers->engine.t1, T1Place::kHost);
  EXPECT_GT(plan->bytes.t1_memory, 0U);
  const auto small = PlanMemory(*model_, {.memory_bytes = kMiB}, engine, session);
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.status().code(), StatusCode::kOutOfMemory);
  const auto nothing = PlanMemory(*model_, {.memory_bytes = kMiB}, {}, {});
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.status().code(), StatusCode::kOutOfMemory);
}

TEST_F(MemoryPlanTest, PromptsAtAnyTimeTakeTheirBuffersBesideTheCache) {
  MemoryRequest request = {.memory_bytes = uint64_t{64} << 30, .prompt_tokens = 4000};
  const auto first = PlanMemory(*model_, request, {}, {});
  request.prompt_tokens = kPromptsOfConversation;
  const auto any = PlanMemory(*model_, request, {}, {});
  ASSERT_TRUE(first.ok() && any.ok());
  EXPECT_GT(any->bytes.Memory(), first->bytes.Memory());
}

TEST_F(MemoryPlanTest, ABudgetIsPartOfTheRequest) {
  SessionOptions budget;
  budget.policy = {.name = "h2o", .budget = {Budget::Unit::kPercent, 50}};
  const MemoryRequest request = {.memory_bytes = uint64_t{64} << 30};
  const auto half = PlanMemory(*model_, request, {}, budget);
  const auto all = PlanMemory(*model_, request, {}, {});
  ASSERT_TRUE(half.ok() && all.ok());
  EXPECT_FALSE(half->setting.tiers.has_value());
  EXPECT_LT(half->bytes.t0, all->bytes.t0 * 6 / 10);
}

TEST_F(MemoryPlanTest, WhatSaysTooHowMuchStaysIsRefused) {
  SessionOptions lossless;
  lossless.lossless.emplace();
  ExpectRefused({}, lossless, "lossless generation");
  SessionOptions rotating;
  rotating.past_context = PastContext::kReRotate;
  ExpectRefused({}, rotating, "cannot be combined with re-rotated keys");
}

TEST_F(MemoryPlanTest, BesideADeviceItIsOfTheDevicesMemory) {
  EngineOptions engine;
  engine.device = {.kind = DeviceKind::kBackend, .name = "ggml-cpu"};
  MemoryRequest request = {.memory_bytes = 1024 * kMiB, .prompt_tokens = 100, .max_tokens = 7900};
  const auto all = PlanMemory(*model_, request, engine, {.context = 8000});
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  EXPECT_EQ(all->setting.name, "full");
  EXPECT_EQ(all->limits.device_bytes, 1024 * kMiB);
  EXPECT_LE(all->bytes.DeviceMemory(), 1024 * kMiB);
  request.memory_bytes = all->bytes.DeviceMemory() - 1;
  const auto less = PlanMemory(*model_, request, engine, {.context = 8000});
  ASSERT_TRUE(less.ok()) << less.status().ToString();
  EXPECT_NE(less->setting.name, "full");
  EXPECT_LT(less->bytes.DeviceMemory(), all->bytes.DeviceMemory());
  request.memory_bytes = kMiB;
  const auto none = PlanMemory(*model_, request, engine, {.context = 8000});
  EXPECT_EQ(none.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(none.status().message().find("of the device's memory"), std::string::npos);
}

TEST_F(MemoryPlanTest, T2LiesOnDevicesAsTheirAttentionReadsIt) {
  EngineOptions engine;
  EXPECT_FALSE(FitRequestOf(*model_, engine, {}, 0).t2_on_device);
  for (const auto& [name, has_own_nodes] :
       {std::pair("ggml-cpu", true), std::pair("ggml-sim", true), std::pair("CUDA0", true),
        std::pair("cuda", true), std::pair("vulkan0", false), std::pair("rpc:host:1", false)}) {
    engine.device = {.kind = DeviceKind::kBackend, .name = name};
    const FitRequest own = FitRequestOf(*model_, engine, {}, 0);
    EXPECT_TRUE(own.t2_on_device) << name;
    EXPECT_EQ(own.t2_in_ggml_blocks, !has_own_nodes) << name;
    engine.device.attention = DeviceAttention::kFlash;
    const FitRequest flash = FitRequestOf(*model_, engine, {}, 0);
    EXPECT_TRUE(flash.t2_on_device && flash.t2_in_ggml_blocks) << name;
  }
}

TEST_F(MemoryPlanTest, OptionsBecomeTheRequestOfOneSequence) {
  EngineOptions engine;
  engine.kv_type = RowType::kF32;
  engine.kv_cap_bytes = 5 * kMiB;
  engine.prefill_chunk = 64;
  SessionOptions session = {.context = 700};
  session.policy = {.name = "windowed:h2o", .sinks = 3, .window = 40, .interval = 16};
  const FitRequest request = FitRequestOf(*model_, engine, session, 9000);
  EXPECT_EQ(request.context, 700);
  EXPECT_EQ(request.prompt_tokens, 700);
  EXPECT_EQ(request.kv_type, RowType::kF32);
  EXPECT_EQ(request.kv_cap_bytes, 5 * kMiB);
  EXPECT_EQ(request.prefill_chunk, 64);
  EXPECT_EQ(request.sinks, 3);
  EXPECT_EQ(request.window, 40);
  EXPECT_EQ(request.interval, 16);
  EXPECT_EQ(request.granularity, Granularity::kHead);
  EXPECT_EQ(FitRequestOf(*model_, {}, {}, 0).granularity, Granularity::kToken);
}

TEST_F(MemoryPlanTest, TheProgramIsMeasuredInSteps) {
  const auto result = MeasureFitModel(*model_);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const FitModel& measured = *result;
  EXPECT_GE(measured.program_bytes, 14 * kMiB);
  EXPECT_EQ(measured.weight_bytes, FitModelOf(*model_)->weight_bytes);
}

}  // namespace
}  // namespace ebb
