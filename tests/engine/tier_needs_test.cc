// What sessions will take of the tiers can be asked before they are opened, and T0 can be kept for
// them.
#include <ostream>

#include "src/session/session_impl.h"
#include "tests/engine/sessions/session_cases.h"
#include "tests/engine/sessions/session_fixture.h"
#include "tests/support/numbers.h"

#include <gmock/gmock.h>

namespace ebb {
namespace {

using ::testing::HasSubstr;

constexpr int kNeedsPromptTokens = 60;
constexpr int kMostTokens = 900;

TieredPolicy InTiers(const TierSetting& tiers) {
  TieredPolicy policy = Tiered(tiers);
  policy.window = 32;
  policy.interval = 16;
  return policy;
}

std::vector<SessionCase> NeedsCases() {
  std::vector<SessionCase> cases;
  const auto add = [&](std::string name, TieredPolicy policy) {
    SessionCase one = {.name = std::move(name), .options = {}, .tiers = policy.engine};
    one.options.policy = std::move(policy);
    cases.push_back(std::move(one));
  };
  constexpr uint64_t kCap = uint64_t{2} << 20;
  add("full", PolicySpec());
  for (const char* name : {"streaming", "h2o", "attention", "rkv", "lazy_eviction", "epikv"}) {
    add(name, PolicySpec{.name = name, .budget = *ParseBudget("200")});
  }
  add("beyond_the_prompt", PolicySpec{.name = "attention", .budget = *ParseBudget("+100")});
  add("compression", PolicySpec{.name = "attention", .budget = *ParseBudget("1/8")});
  add("percent", PolicySpec{.name = "attention", .budget = *ParseBudget("25%")});
  add("t1_host", InTiers({.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.4}}));
  add("t1_file", InTiers({.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0}}));
  add("t2", InTiers({.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                     .shares = {.t0_share = 0.5, .t2_share = 0.4}}));
  add("t1_none", InTiers({.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
                          .shares = {.t2_share = 0.6}}));
  add("evict",
      InTiers({.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.5, .evict_share = 0.3}}));
  add("caps", InTiers({.engine = {.t0_cap_bytes = kCap, .t1 = T1Place::kHost}}));
  add("evict_caps", InTiers({.engine = {.t0_cap_bytes = kCap, .t1 = T1Place::kNone},
                             .shares = {.evict_beyond_caps = true}}));
  // Policies evict, and the tiers place the rows that stay.
  const auto add_stack = [&](std::string name, PolicySpec policy, const TierSetting& tiers) {
    TieredPolicy stacked = Tiered(tiers);
    stacked.name = policy.name;
    stacked.budget = policy.budget;
    stacked.window.reset();
    stacked.interval.reset();
    add(std::move(name), stacked);
  };
  const TierSetting old = {.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
                           .shares = {.t2_rows = T2Rows::kOld}};
  for (const char* policy : {"h2o", "streaming", "attention", "lag_kv"}) {
    const PolicySpec spec = {.name = policy, .budget = *ParseBudget("300")};
    add_stack(std::string(policy) + "_over_old", spec, old);
    add_stack(std::string(policy) + "_over_t1", spec,
              {.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.3}});
    add_stack(std::string(policy) + "_over_t2", spec,
              {.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
               .shares = {.t2_share = 0.5}});
  }
  for (const T1Place t1 : {T1Place::kHost, T1Place::kFile}) {
    SessionCase select = {.name = t1 == T1Place::kHost ? "select_host" : "select_file"};
    select.options.policy.tiers = TierShares{.t0_share = 0.3, .t1_read = T1Read::kSelect};
    select.tiers = EngineTiers{.t1 = t1};
    cases.push_back(select);
  }
  SessionCase lossless = {.name = "lossless", .options = {}};
  lossless.options.policy = {.name = "attention", .budget = *ParseBudget("200")};
  lossless.options.lossless.emplace();
  cases.push_back(lossless);
  lossless.name = "lossless_t1";
  lossless.options.policy = InTiers({.shares = {.t0_share = 0.3, .evict_share = 0.1}});
  lossless.tiers = EngineTiers{.t1 = T1Place::kHost};
  cases.push_back(lossless);
  return cases;
}

struct Peaks {
  size_t t0 = 0, t1 = 0, t2 = 0;
};

class TierNeedsTest : public ::testing::TestWithParam<SessionCase> {};

// Decodes up to kMostTokens tokens behind a prompt and returns the most bytes of each tier.
Peaks PeaksOf(const Engine& engine, Session& session, size_t prompt_tokens) {
  Peaks peaks;
  const auto look = [&] {
    peaks.t0 = std::max(peaks.t0, engine.arena_accounting(Tier::kT0).used_bytes);
    peaks.t1 = std::max(peaks.t1, engine.arena_accounting(Tier::kT1).used_bytes);
    peaks.t2 = std::max(peaks.t2, engine.arena_accounting(Tier::kT2).used_bytes);
  };
  ExpectOk(session.Prefill(SomeTokens(prompt_tokens)));
  look();
  for (const Token token : SomeTokens(kMostTokens - prompt_tokens, 3)) {
    ExpectOk(session.Decode(token));
    look();
  }
  return peaks;
}

TEST_P(TierNeedsTest, HoldAllThatASessionTakesAndLittleMore) {
  const SessionOptions& options = GetParam().options;
  if (options.lossless.has_value()) {
    EBB_CPU_ONLY(
        "tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");
  }
  const auto engine = MakeEngine(EngineOptionsFor(GetParam().tiers));
  const auto needs = engine->CountNeeds(options, kNeedsPromptTokens, kMostTokens);
  ASSERT_TRUE(needs.ok()) << needs.status().ToString();
  const auto session = Open(*engine, options);
  const Peaks peaks = PeaksOf(*engine, *session, kNeedsPromptTokens);
  EXPECT_LE(peaks.t0, needs->t0_bytes);
  EXPECT_LE(peaks.t1, needs->t1_bytes);
  EXPECT_LE(peaks.t2, needs->t2_bytes);
  EXPECT_LE(needs->t0_floor_bytes, needs->t0_bytes);
  // A page of each stream, of which the small model has four, in each tier.
  const size_t page_bytes = Internals::SequenceOf(*session).cache().layout().format().PageBytes();
  const bool evicts = EvictsByItself(options.policy);
  if (options.policy.tiers.has_value() && !options.lossless.has_value() && !evicts) {
    EXPECT_GE(peaks.t0 + 4 * 2 * page_bytes, needs->t0_bytes);
    EXPECT_GE(peaks.t1 + 4 * 2 * page_bytes, needs->t1_bytes);
    EXPECT_GE(peaks.t2 + 4 * page_bytes, needs->t2_bytes);
  }
}

TEST_P(TierNeedsTest, TheFloorHoldsWhatStaysWithTheLeastShareOfT0) {
  const SessionOptions& options = GetParam().options;
  if (options.lossless.has_value()) {
    EBB_CPU_ONLY(
        "tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");
  }
  const auto engine = MakeEngine(EngineOptionsFor(GetParam().tiers));
  const auto session = Open(*engine, options);
  ExpectOk(session->Prefill(SomeTokens(kNeedsPromptTokens)));
  for (const Token token : SomeTokens(300, 3)) ExpectOk(session->Decode(token));
  if (!session->SetT0Share(0).ok()) return;  // nothing of it is elastic
  const auto needs = engine->CountNeeds(options, kNeedsPromptTokens, kMostTokens);
  ASSERT_TRUE(needs.ok()) << needs.status().ToString();
  for (const Token token : SomeTokens(300, 4)) {
    ExpectOk(session->Decode(token));
    EXPECT_LE(engine->arena_accounting(Tier::kT0).used_bytes, needs->t0_floor_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, TierNeedsTest, ::testing::ValuesIn(NeedsCases()),
                         [](const auto& test) { return test.param.name; });

// These policies evict rows of a prompt too, so that the prompt protects fewer rows from T1 and T2.
TEST(TierNeeds, HoldWhenAPolicyEvictsRowsOfThePrompt) {
  constexpr size_t kLongPrompt = 500;
  for (const char* const name : {"h2o", "streaming", "tova"}) {
    for (const T1Place t1 : {T1Place::kHost, T1Place::kNone}) {
      SCOPED_TRACE(testing::Message() << name << " " << T1PlaceName(t1));
      TieredPolicy policy = Tiered({.engine = {.t1 = t1, .t2_type = CompressedType::kInt8},
                                    .shares = {.t0_share = t1 == T1Place::kNone ? 1 : 0.3,
                                               .t2_share = t1 == T1Place::kNone ? 0.5 : 0}});
      policy.name = name;
      policy.budget = *ParseBudget("300");
      policy.window.reset();
      SessionOptions options;
      options.policy = policy;
      const auto engine = MakeEngine(EngineOptionsFor(policy.engine));
      const auto needs = engine->CountNeeds(options, kLongPrompt, kMostTokens);
      ASSERT_TRUE(needs.ok()) << needs.status().ToString();
      const auto session = Open(*engine, options);
      const Peaks peaks = PeaksOf(*engine, *session, kLongPrompt);
      EXPECT_GT(peaks.t1 + peaks.t2, 0u);
      EXPECT_LE(peaks.t0, needs->t0_bytes);
      EXPECT_LE(peaks.t1, needs->t1_bytes);
      EXPECT_LE(peaks.t2, needs->t2_bytes);
    }
  }
}

TEST(TierNeedsRefusal, NumbersOfTokensThatNoSessionHas) {
  const auto engine = MakeEngine();
  for (const auto& [prompt, most] : {std::pair{-1, 5}, {6, 5}, {1, 1 << 20}}) {
    const Status status = engine->CountNeeds({}, prompt, most).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << prompt << " " << most;
    EXPECT_THAT(status.message(), HasSubstr("of a session with a context of 2048"));
  }
  SessionOptions endless;
  endless.policy = {.name = "streaming", .budget = *ParseBudget("200")};
  endless.past_context = PastContext::kReRotate;
  EXPECT_TRUE(engine->CountNeeds(endless, 1, 1 << 20).ok());
}

TEST(TierNeedsRefusal, OptionsThatOpenNoSession) {
  const auto engine = MakeEngine();
  SessionOptions options;
  options.policy.name = "nothing";
  EXPECT_THAT(engine->CountNeeds(options, 1, 5).status().message(), HasSubstr("unknown policy"));
  options.policy = InTiers({});
  EXPECT_EQ(engine->CountNeeds(options, 1, 5).status().message(),
            engine->OpenSession(options).status().message());
}

TEST(TierNeedsRefusal, CapsThatHoldTooLittle) {
  SessionOptions options;
  options.policy = InTiers({});
  const auto engine = MakeEngine(
      EngineOptionsFor(EngineTiers{.t0_cap_bytes = uint64_t{2} << 20, .t1 = T1Place::kNone}));
  EXPECT_EQ(engine->CountNeeds(options, 100, 2000).status().code(), StatusCode::kT0Full);
  EXPECT_TRUE(engine->CountNeeds(options, 100, 400).ok());
}

// T0 of 4 MiB, of which each session of kMostTokens takes about 1 MiB.
class T0FloorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.policy = InTiers({.shares = {.t0_share = 1}});
    engine_ =
        MakeEngine(EngineOptionsFor(EngineTiers{.t0_cap_bytes = 4 * kMiB, .t1 = T1Place::kHost}));
  }
  // Until T0 has no room for more.
  Status Fill(Session* session) {
    EBB_RETURN_IF_ERROR(session->Prefill(SomeTokens(kNeedsPromptTokens)).status);
    for (const Token token : SomeTokens(1800, 3))
      EBB_RETURN_IF_ERROR(session->Decode(token).status);
    return OkStatus();
  }
  SessionOptions options_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(T0FloorTest, IsThereHoweverMuchOthersTake) {
  SessionOptions kept = options_;
  kept.t0_floor_bytes = engine_->CountNeeds(options_, kNeedsPromptTokens, kMostTokens)->t0_bytes;
  const auto session = Open(*engine_, kept);
  EXPECT_EQ(engine_->arena_accounting().pledged_bytes, kept.t0_floor_bytes);
  std::vector<std::unique_ptr<Session>> others;
  Status full;
  while (full.ok()) {
    others.push_back(Open(*engine_, options_));
    full = Fill(others.back().get());
  }
  EXPECT_EQ(full.code(), StatusCode::kT0Full) << full.ToString();
  EXPECT_THAT(full.message(), HasSubstr("beside what is kept for other sequences"));
  ExpectOk(session->Prefill(SomeTokens(kNeedsPromptTokens)));
  for (const Token token : SomeTokens(kMostTokens - kNeedsPromptTokens, 3)) {
    ExpectOk(session->Decode(token));
  }
  // The others are as they were: one goes on once another gives room.
  const auto before = others.back()->next_position();
  others.erase(others.begin());
  ExpectOk(others.back()->Decode(1));
  EXPECT_EQ(others.back()->next_position(), before + 1);
}

TEST_F(T0FloorTest, WhatT0DoesNotHoldIsRefusedBeforeASessionOpens) {
  SessionOptions kept = options_;
  kept.t0_floor_bytes = 3 * kMiB;
  auto first = engine_->OpenSession(kept);
  ASSERT_TRUE(first.ok());
  const Status refused = engine_->OpenSession(kept).status();
  EXPECT_EQ(refused.code(), StatusCode::kT0Full);
  EXPECT_THAT(refused.message(), HasSubstr("a floor of "));
  EXPECT_EQ((*first)->Fork().status().code(), StatusCode::kT0Full);
  EXPECT_EQ((*first)->SetT0Floor(5 * kMiB).code(), StatusCode::kT0Full);
  EXPECT_EQ(engine_->arena_accounting().pledged_bytes, 3 * kMiB);
  ExpectOk((*first)->SetT0Floor(kMiB));
  EXPECT_TRUE(engine_->OpenSession(kept).ok());
  *first = nullptr;
  EXPECT_EQ(engine_->arena_accounting().pledged_bytes, 0u);
}

TEST_F(T0FloorTest, AForkHasAFloorOfItsOwn) {
  SessionOptions kept = options_;
  kept.t0_floor_bytes = kMiB;
  auto session = Open(*engine_, kept);
  ExpectOk(session->Prefill(SomeTokens(200)));
  const size_t pledged = engine_->arena_accounting().pledged_bytes;
  auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  EXPECT_GT(engine_->arena_accounting().pledged_bytes, pledged + kMiB / 2);
  // Pages that are the other's go, and count as none of its own.
  ExpectOk((*fork)->TruncateTo(2));
  EXPECT_GT(engine_->arena_accounting().pledged_bytes, pledged + kMiB / 2);
  session = nullptr;
  *fork = nullptr;
  EXPECT_EQ(engine_->arena_accounting().pledged_bytes, 0u);
  EXPECT_EQ(engine_->arena_accounting().used_bytes, 0u);
}

}  // namespace
}  // namespace ebb
