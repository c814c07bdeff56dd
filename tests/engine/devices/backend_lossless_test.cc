// Lossless sessions on a backend's device: exact up to rounding.
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/devices/backend_fixture.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it opens devices of its own");

struct Draft {
  std::string name;
  PolicySpec policy;
  EngineTiers tiers;
};

std::vector<Draft> Drafts() {
  PolicySpec by_head = SmallPolicy("attention", "25%");
  by_head.granularity = Granularity::kHead;
  std::vector<Draft> drafts = {
      {"streaming", {.name = "streaming", .sinks = 4, .window = 12}},
      {"attention_by_head", by_head},
      {"h2o", SmallPolicy("h2o", "24")},
      {"tova", SmallPolicy("tova", "24")},
      {"epikv", SmallPolicy("epikv", "10%")},
      {"quest", {.name = "quest", .params = {{"page", "8"}}, .budget = *ParseBudget("24")}},
      {"full", {.name = "full"}},
  };
  for (Draft& draft : drafts) draft.tiers.t1 = T1Place::kHost;
  drafts[0].tiers.t1 = T1Place::kFile;
  drafts[3].tiers.t1 = T1Place::kNone;
  Draft tiers = {.name = "tiers",
                 .policy = {.name = "attention", .window = 8, .interval = 8},
                 .tiers = {.t1 = T1Place::kHost}};
  tiers.policy.tiers = TierShares{.t0_share = 0.2, .evict_share = 0.1};
  drafts.push_back(tiers);
  return drafts;
}

std::unique_ptr<Engine> LosslessEngine(const std::optional<EngineTiers>& tiers = std::nullopt,
                                       const std::string& attention = "auto") {
  EngineOptions options = {.threads = 1,
                           .device = *ParseDevice(TestDevice("attention=" + attention))};
  options.tiers = tiers;
  return MakeEngineOf(DeviceModel(), options);
}

SessionOptions Lossless(const PolicySpec& policy, LosslessOptions lossless = {}) {
  lossless.verify = LosslessOptions::Verify::kFast;
  return {.policy = policy, .lossless = lossless};
}

// Guesses the tokens that are appended next, one in eight of them wrongly.
Guess Guessing(std::span<const Token> text, size_t next, std::mt19937* random) {
  return [=](std::span<const float>) mutable -> std::optional<Token> {
    if (next >= text.size()) return std::nullopt;
    const Token token = text[next++];
    return (*random)() % 8 > 0 ? token : (token + 1) % DeviceModel()->shape().vocab_size;
  };
}

class BackendLosslessTest : public testing::TestWithParam<Draft> {};

TEST_P(BackendLosslessTest, IsTheFullCacheUpToRounding) {
  for (const std::string attention : {"auto", "flash", "eager"}) {
    auto full_engine = LosslessEngine({}, attention);
    auto engine = LosslessEngine(GetParam().tiers, attention);
    auto full = Open(*full_engine);
    auto session = Open(*engine, Lossless(GetParam().policy, {.draft_min = 2, .draft_max = 20}));
    std::mt19937 random(5);
    for (Session* each : {full.get(), session.get()}) Read(*each);
    double largest = 0;
    for (int round = 0; round < 3; ++round) {
      const std::vector<Token> text = SomeTokens(60, round);
      for (size_t i = 0; i < text.size(); ++i) {
        ExpectOk(full->Decode(text[i]));
        ExpectOk(session->Decode(text[i], Guessing(text, i + 1, &random)));
        largest = std::max(largest, LargestDifference(Logits(*full), Logits(*session)));
      }
      for (Session* each : {full.get(), session.get()}) {
        ExpectOk(each->TruncateTo(each->next_position() - 10 * (round + 1)));
        ExpectOk(each->Prefill(SomeTokens(30, 50 + round)));
      }
      largest = std::max(largest, LargestDifference(Logits(*full), Logits(*session)));
    }
    EXPECT_LT(largest, kFlashError) << attention;
    const LosslessReport& report = *session->lossless_report();
    EXPECT_GT(report.drafted, 40);
    EXPECT_GT(report.accepted, 10);
    EXPECT_LT(report.accepted, report.drafted);
    EXPECT_EQ(session->accounting().rows_evicted, 0);
    session.reset();
    for (const Tier tier : {Tier::kT0, Tier::kT1}) {
      EXPECT_EQ(engine->arena_accounting(tier).used_bytes, 0U);
    }
  }
}

// Where nothing is drafted, steps are those of the full cache, over rows of the draft's and of T1.
TEST_P(BackendLosslessTest, StepsOfOneTokenHaveItsBits) {
  for (const std::string attention : {"auto", "flash", "eager"}) {
    auto full_engine = LosslessEngine({}, attention);
    auto engine = LosslessEngine(GetParam().tiers, attention);
    auto full = Open(*full_engine);
    auto session = Open(*engine, Lossless(GetParam().policy, {.draft_max = 1}));
    for (Session* each : {full.get(), session.get()}) {
      Read(*each);
      Decode(*each, 0, kDecodeTokens);
    }
    EXPECT_EQ(session->logits_hash(), full->logits_hash()) << attention;
  }
}

INSTANTIATE_TEST_SUITE_P(Drafts, BackendLosslessTest, testing::ValuesIn(Drafts()),
                         [](const auto& info) { return info.param.name; });

// The store computes the step, at granularity token, and the draft decides by head.
TEST(BackendLosslessDraftTest, SeesTheMassOfEachHead) {
  std::vector<std::vector<float>> masses;
  for (const bool is_lossless : {false, true}) {
    const PolicySpec policy = {.name = "full", .granularity = Granularity::kHead};
    auto engine = LosslessEngine(EngineTiers{.t1 = T1Place::kHost});
    SessionOptions options = is_lossless ? Lossless(policy, {.draft_max = 1}) : WithPolicy(policy);
    KeepMass(MassNeed::kSummed, &options, &masses.emplace_back());
    auto session = Open(*engine, options);
    Read(*session);
    Decode(*session, 0, 60);
  }
  EXPECT_GT(masses[0].size(), 1000U);
  EXPECT_EQ(masses[0], masses[1]);
}

// The processor attends to the draft's rows in T2.
using BackendLosslessT2Test = ByAttention;
INSTANTIATE_TEST_SUITE_P(Attention, BackendLosslessT2Test, testing::Values("auto", "flash"),
                         ByAttention::Name);

TEST_P(BackendLosslessT2Test, DraftsWithRowsInT2) {
  PolicySpec policy = {.name = "attention", .window = 8, .interval = 8};
  policy.tiers = TierShares{.t2_share = 1};
  const EngineTiers tiers = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt4};
  auto engine = LosslessEngine(tiers, GetParam()), full_engine = LosslessEngine({}, GetParam());
  auto session = Open(*engine, Lossless(policy, {.draft_min = 2})), full = Open(*full_engine);
  std::mt19937 random(5);
  const std::vector<Token> text = SomeTokens(200, 3);
  for (Session* each : {full.get(), session.get()}) Read(*each);
  double largest = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    ExpectOk(full->Decode(text[i]));
    ExpectOk(session->Decode(text[i], Guessing(text, i + 1, &random)));
    largest = std::max(largest, LargestDifference(Logits(*full), Logits(*session)));
  }
  EXPECT_GT(session->accounting().tiers[static_cast<int>(Tier::kT2)].rows, 100);
  EXPECT_LT(largest, kFlashError);
  EXPECT_GT(session->lossless_report()->accepted, 20);
}

// Beside a session that is not, in one step.
TEST(BackendLosslessBatchTest, StepsWithOthers) {
  const EngineTiers tiers = {.t1 = T1Place::kHost};
  auto engine = LosslessEngine(tiers), full_engine = LosslessEngine();
  auto session = Open(*engine, Lossless({.name = "streaming", .sinks = 4, .window = 12}));
  auto other = Open(*engine), full = Open(*full_engine);
  for (Session* each : {session.get(), other.get(), full.get()}) Read(*each);
  double largest = 0;
  for (int i = 0; i < 60; ++i) {
    const Token token = Text()[kPromptTokens + i];
    std::vector<SessionStep> batch = {{.session = session.get(), .token = token},
                                      {.session = other.get(), .token = token}};
    ExpectOk(engine->Step(batch));
    ExpectOk(full->Decode(token));
    for (Session* each : {session.get(), other.get()}) {
      largest = std::max(largest, LargestDifference(Logits(*full), Logits(*each)));
    }
  }
  EXPECT_LT(largest, kFlashError);
}

}  // namespace
}  // namespace ebb
