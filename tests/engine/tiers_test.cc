// The hierarchy at work: exact where it promises to be, wherever rows lie; hard caps; faults.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "src/session/session_impl.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/logits.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

using testing::HasSubstr;

constexpr int kPromptTokens = 40;
constexpr int kDecodeTokens = 220;

const std::vector<Token>& Text() {
  static const std::vector<Token> kText = SomeTokens(kPromptTokens + kDecodeTokens);
  return kText;
}

struct Setting {
  TierSetting tiers;
  Granularity granularity = Granularity::kToken;
  int threads = 1;
};

PolicySpec PolicyOf(const Setting& setting) {
  PolicySpec policy = {.name = "attention", .granularity = setting.granularity};
  policy.tiers = setting.tiers.shares;
  policy.window = 8;
  policy.interval = 8;
  return policy;
}

std::unique_ptr<Engine> EngineOf(const Setting& setting) {
  return MakeEngine({.threads = setting.threads, .tiers = setting.tiers.engine});
}

void Read(Session& session) { ExpectOk(session.Prefill(std::span(Text()).first(kPromptTokens))); }

void Decode(Session& session, int from, int to) {
  for (int i = from; i < to; ++i) ExpectOk(session.Decode(Text()[kPromptTokens + i]));
}

struct Outcome {
  uint64_t hash = 0;
  CacheAccounting cache;
};

Outcome RunAll(const Setting& setting, int decode_tokens = kDecodeTokens) {
  auto engine = EngineOf(setting);
  auto session = Open(*engine, PolicyOf(setting));
  Read(*session);
  Decode(*session, 0, decode_tokens);
  return {.hash = session->logits_hash(), .cache = session->accounting()};
}

uint64_t HashOfFullCache() {
  static const uint64_t kHash = [] {
    auto engine = MakeEngine();
    auto session = Open(*engine);
    Read(*session);
    Decode(*session, 0, kDecodeTokens);
    return session->logits_hash();
  }();
  return kHash;
}

int64_t RowsIn(const CacheAccounting& cache, Tier tier) {
  return cache.tiers[static_cast<int>(tier)].rows;
}

class ExactTiers : public testing::TestWithParam<std::tuple<T1Place, Granularity>> {
 protected:
  void SetUp() override {
    const Setting setting = Of(1);
    const auto engine = Engine::Create(SmallModel(), {.threads = 1, .tiers = setting.tiers.engine});
    if (engine.status().code() == StatusCode::kUnsupported) {
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();  // a disk without direct reads
    }
  }
  [[nodiscard]] static Setting Of(double t0_share, double evict_share = 0) {
    Setting setting = {.granularity = std::get<1>(GetParam())};
    setting.tiers.shares.t0_share = t0_share;
    setting.tiers.shares.evict_share = evict_share;
    setting.tiers.engine.t1 = std::get<0>(GetParam());
    return setting;
  }
};

TEST_P(ExactTiers, AnyShareOfT0GivesTheBitsOfTheFullCache) {
  for (const double share : {1.0, 0.7, 0.5, 0.3, 0.0}) {
    const Outcome outcome = RunAll(Of(share));
    EXPECT_EQ(outcome.hash, HashOfFullCache()) << share;
    EXPECT_EQ(RowsIn(outcome.cache, Tier::kT1) > 0, share < 1) << share;
    EXPECT_EQ(outcome.cache.rows_evicted, 0);
  }
}

TEST_P(ExactTiers, WhatIsEvictedDoesNotDependOnTheShareOfT0) {
  const Outcome all = RunAll(Of(1, 0.1));
  EXPECT_NE(all.hash, HashOfFullCache());
  EXPECT_GT(all.cache.rows_evicted, 0);
  for (const double share : {0.7, 0.3}) {
    const Outcome outcome = RunAll(Of(share, 0.1));
    EXPECT_EQ(outcome.hash, all.hash) << share;
    EXPECT_EQ(outcome.cache.rows_evicted, all.cache.rows_evicted);
  }
}

// Few tokens: more threads than cores spin for one another.
TEST_P(ExactTiers, ThreadsChangeNothing) {
  Setting setting = Of(0.4);
  const Outcome one = RunAll(setting, 40);
  EXPECT_GT(RowsIn(one.cache, Tier::kT1), 0);
  for (const int threads : {2, 3}) {
    setting.threads = threads;
    EXPECT_EQ(RunAll(setting, 40).hash, one.hash) << threads;
  }
}

TEST_P(ExactTiers, WhatIsCompressedDoesNotDependOnTheShareOfT0) {
  Setting setting = Of(1);
  setting.tiers.engine.t2_type = CompressedType::kInt8;
  setting.tiers.shares.t2_share = 0.5;
  const Outcome all = RunAll(setting);
  EXPECT_NE(all.hash, HashOfFullCache());
  EXPECT_GT(RowsIn(all.cache, Tier::kT2), 0);
  for (const double share : {0.6, 0.2}) {
    setting.tiers.shares.t0_share = share;
    const Outcome outcome = RunAll(setting);
    EXPECT_EQ(outcome.hash, all.hash) << share;
    EXPECT_EQ(RowsIn(outcome.cache, Tier::kT2), RowsIn(all.cache, Tier::kT2));
  }
}

TEST_P(ExactTiers, RollingBackAndReadingMoreGivesTheBitsOfTheFullCache) {
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  const Setting setting = Of(0.3);
  auto engine = EngineOf(setting);
  auto tiered = Open(*engine, PolicyOf(setting));
  for (Session* session : {full.get(), tiered.get()}) {
    Read(*session);
    Decode(*session, 0, 120);
    ExpectOk(session->TruncateTo(kPromptTokens + 50));
    Decode(*session, 50, 90);
    ExpectOk(session->Prefill(SomeTokens(70, 4)));
    Decode(*session, 90, 130);
  }
  EXPECT_GT(RowsIn(tiered->accounting(), Tier::kT1), 0);
  EXPECT_EQ(tiered->logits_hash(), full->logits_hash());
}

TEST_P(ExactTiers, SequencesSideBySideAreWhatTheyAreAlone) {
  const Setting setting = Of(0.4, 0.1);
  const uint64_t alone = RunAll(setting).hash;
  auto engine = EngineOf(setting);
  auto first = Open(*engine, PolicyOf(setting));
  auto second = Open(*engine, PolicyOf(setting));
  Read(*first);
  Read(*second);
  for (int i = 0; i < kDecodeTokens; ++i) {
    Decode(*first, i, i + 1);
    Decode(*second, i, i + 1);
  }
  EXPECT_EQ(first->logits_hash(), alone);
  EXPECT_EQ(second->logits_hash(), alone);
  first.reset();
  second.reset();
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    EXPECT_EQ(engine->arena_accounting(tier).used_bytes, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(PlacesAndGranularities, ExactTiers,
                         testing::Combine(testing::Values(T1Place::kHost, T1Place::kFile),
                                          testing::Values(Granularity::kToken, Granularity::kLayer,
                                                          Granularity::kHead)),
                         [](const auto& info) {
                           return std::string(T1PlaceName(std::get<0>(info.param))) + "_" +
                                  std::string(GranularityName(std::get<1>(info.param)));
                         });

double LargestDifferenceToFull(CompressedType type) {
  Setting setting;
  setting.tiers = {.engine = {.t1 = T1Place::kNone, .t2_type = type},
                   .shares = {.t0_share = 1, .t2_share = 1}};
  auto engine = EngineOf(setting);
  auto session = Open(*engine, PolicyOf(setting));
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  double largest = 0;
  for (Session* s : {full.get(), session.get()}) Read(*s);
  for (int i = 0; i < kDecodeTokens; ++i) {
    Decode(*full, i, i + 1);
    Decode(*session, i, i + 1);
    largest = std::max<double>(largest, LargestDifference(Logits(*full), Logits(*session)));
  }
  EXPECT_GT(RowsIn(session->accounting(), Tier::kT2), 0);
  return largest / StandardDeviation(Logits(*full));
}

TEST(CompressedTier, EightBitsStayNearTheFullCacheAndFourBitsAreFurther) {
  const double int8 = LargestDifferenceToFull(CompressedType::kInt8);
  const double int4 = LargestDifferenceToFull(CompressedType::kInt4);
  EXPECT_GT(int8, 0);
  EXPECT_LT(int8, 0.1);
  EXPECT_LT(int4, 1);
  EXPECT_LT(int8, int4);
}

TEST(CompressedTier, LaterTurnsReadItToo) {
  Setting setting;
  setting.tiers = {.engine = {.t2_type = CompressedType::kInt8},
                   .shares = {.t0_share = 0.5, .t2_share = 0.6}};
  auto engine = EngineOf(setting);
  auto session = Open(*engine, PolicyOf(setting));
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  for (Session* s : {full.get(), session.get()}) {
    Read(*s);
    Decode(*s, 0, 100);
    ExpectOk(s->Prefill(SomeTokens(30, 9)));
  }
  EXPECT_GT(RowsIn(session->accounting(), Tier::kT2), 0);
  const std::vector<float> expected = Logits(*full);
  EXPECT_LT(LargestDifference(expected, Logits(*session)), 0.1 * StandardDeviation(expected));
}

TEST(TierOptions, WhatTheEngineHasNotIsRefused) {
  auto engine = MakeEngine();
  Setting setting;
  EXPECT_EQ(engine->OpenSession({.policy = PolicyOf(setting)}).status().code(),
            StatusCode::kInvalidArgument);
  auto tiered = EngineOf(setting);
  setting.tiers.shares.t2_share = 0.5;
  EXPECT_EQ(tiered->OpenSession({.policy = PolicyOf(setting)}).status().message(),
            "the engine was made without a T2");
  setting.tiers.shares.t2_share = 0;
  EXPECT_EQ(
      tiered->OpenSession({.policy = PolicyOf(setting), .past_context = PastContext::kReRotate})
          .status()
          .code(),
      StatusCode::kInvalidArgument);
}

// Evicts the first row and sends every odd position to T1, every fourth one to T2.
class ByPosition final : public Placement {
 public:
  [[nodiscard]] static Tier TierOf(Position position) {
    if (position % 4 == 0) return Tier::kT2;
    return position % 2 == 1 ? Tier::kT1 : Tier::kT0;
  }
  std::string Name() const override { return "by position"; }
  bool NeedsScores() const override { return false; }
  bool Due(const PlacementInput& input, size_t) const override {
    return input.step_kind == StepKind::kDecode;
  }
  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    moves->push_back({.row = 0, .to = Tier::kT3});
    for (uint32_t row = 1; row < input.positions.size(); ++row) {
      moves->push_back({.row = row, .to = TierOf(input.positions[row])});
    }
  }
};

TEST(Tiers, APolicyThatTurnsKeysIsRefused) {
  Setting setting = {.tiers = {.engine = {.t1 = T1Place::kHost}}};
  const auto engine = EngineOf(setting);
  SessionOptions options;
  options.policy.tiers = setting.tiers.shares;
  options.make_policy = [](const PolicyContext& context) -> Result<Policy> {
    EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy({.name = "full"}, context));
    policy.key_turns = KeyTurns::kAfterEviction;
    return policy;
  };
  const Status status = engine->OpenSession(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("cannot be re-rotated"));
}

TEST(Tiers, RowsGoWhereTheyWereSentThoughOthersWereEvicted) {
  Setting setting = {.tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                               .shares = {.t2_share = 0.5}}};
  const auto engine = EngineOf(setting);
  SessionOptions options;
  options.make_policy = [](const PolicyContext& context) -> Result<Policy> {
    EBB_ASSIGN_OR_RETURN(Policy policy,
                         MakePolicy({.name = "streaming", .budget = *ParseBudget("64")}, context));
    policy.placement = std::make_unique<ByPosition>();
    return policy;
  };
  const auto session = Open(*engine, options);
  Read(*session);
  for (int step = 0; step < 20; ++step) {
    Decode(*session, step, step + 1);
    SequenceCache& cache = Internals::SequenceOf(*session).cache();
    const auto positions = cache.positions(0);
    const auto tiers = cache.tiers(0);
    ASSERT_EQ(positions.front(), step + 1);
    for (size_t row = 0; row < positions.size(); ++row) {
      EXPECT_EQ(tiers[row], ByPosition::TierOf(positions[row])) << step << ", row " << row;
    }
  }
}

}  // namespace
}  // namespace ebb
