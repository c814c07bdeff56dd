// Lossless sessions: whatever drafts, however often it is wrong, the bits are the full cache's.
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ebb/generate.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE(
    "tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");

constexpr int kPromptTokens = 40;

struct Place {
  std::string name;
  T1Place t1 = T1Place::kNone;
};

struct Draft {
  std::string name;
  PolicySpec policy;
};

EngineOptions EngineAt(const Place& place, const Draft& draft, int threads = 1) {
  EngineOptions options = {.threads = threads};
  options.tiers = EngineTiers{.t1 = place.t1};
  if (draft.policy.tiers.has_value()) options.tiers->t2_type = CompressedType::kInt4;
  return options;
}

SessionOptions SessionWith(const Draft& draft, const LosslessOptions& lossless = {}) {
  return {.policy = draft.policy, .lossless = lossless};
}

std::vector<Draft> Drafts() {
  std::vector<Draft> drafts = {
      {"streaming", {.name = "streaming", .sinks = 4, .window = 12}},
      {"attention", SmallPolicy("attention", "10%")},
      {"attentionByHead", SmallPolicy("attention", "25%")},
      {"h2o", SmallPolicy("h2o", "24")},
      {"tova", SmallPolicy("tova", "24")},
      {"rkv", {.name = "rkv", .budget = *ParseBudget("48")}},
      {"epikv", SmallPolicy("epikv", "10%")},
      {"quest", {.name = "quest", .params = {{"page", "8"}}, .budget = *ParseBudget("24")}},
      {"full", {.name = "full"}},
  };
  drafts[2].policy.granularity = Granularity::kHead;
  Draft tiers = {.name = "tiers", .policy = SmallPolicy("attention", "10%")};
  tiers.policy.budget = {};
  tiers.policy.tiers = TierShares{.t0_share = 0.2, .evict_share = 0.1};
  drafts.push_back(tiers);
  tiers.name = "int4";
  tiers.policy.tiers = TierShares{.t0_share = 1, .t2_share = 1};
  drafts.push_back(tiers);
  return drafts;
}

// Guesses the tokens that a test is going to append, each right with a probability.
class Oracle {
 public:
  Oracle(std::span<const Token> to_come, double right, uint32_t seed)
      : to_come_(to_come), right_(right), random_(seed) {}
  [[nodiscard]] Guess From(size_t next) {
    return [this, next](std::span<const float>) mutable -> std::optional<Token> {
      if (next >= to_come_.size()) return std::nullopt;
      const Token token = to_come_[next++];
      if (std::uniform_real_distribution<>()(random_) < right_) return token;
      return (token + 1) % SmallModel()->shape().vocab_size;
    };
  }

 private:
  std::span<const Token> to_come_;
  double right_;
  std::mt19937 random_;
};

void ExpectSame(const Session& full, const Session& lossless) {
  ASSERT_EQ(lossless.next_position(), full.next_position());
  ASSERT_TRUE(std::ranges::equal(lossless.tokens(), full.tokens()));
  ASSERT_EQ(lossless.logits_hash(), full.logits_hash()) << full.next_position();
}

class LosslessAt : public testing::TestWithParam<std::tuple<Place, Draft>> {
 protected:
  [[nodiscard]] static const Place& place() { return std::get<0>(GetParam()); }
  [[nodiscard]] static const Draft& draft() { return std::get<1>(GetParam()); }
  void SetUp() override {
    const auto engine = Engine::Create(SmallModel(), EngineAt(place(), draft()));
    if (engine.status().code() == StatusCode::kUnsupported) {
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();  // a disk without direct reads
    }
  }
};

// Decoding, reading and rolling back in random order; guesses of which one in eight is wrong.
TEST_P(LosslessAt, EveryStepHasTheBitsOfTheFullCache) {
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  auto engine = MakeEngine(EngineAt(place(), draft()));
  auto lossless = Open(*engine, SessionWith(draft(), {.draft_min = 2, .draft_max = 20}));
  std::mt19937 random(5);
  const auto both = [&](const auto& act) {
    for (Session* session : {full.get(), lossless.get()}) ExpectOk(act(*session));
  };
  both([](Session& s) { return s.Prefill(SomeTokens(kPromptTokens)).status; });
  for (int round = 0; round < 6; ++round) {
    const std::vector<Token> text = SomeTokens(60, round);
    Oracle oracle(text, 0.87, round);
    for (size_t i = 0; i < text.size(); ++i) {
      ExpectOk(full->Decode(text[i]));
      ExpectOk(lossless->Decode(text[i], i % 13 == 0 ? nullptr : oracle.From(i + 1)));
      ASSERT_NO_FATAL_FAILURE(ExpectSame(*full, *lossless));
    }
    if (round % 2 == 0) {
      const auto back = static_cast<Position>(random() % 90);
      both([&](Session& s) { return s.TruncateTo(s.next_position() - back); });
    }
    if (round % 3 != 1) {
      const std::vector<Token> more = SomeTokens(1 + random() % 70, 50 + round);
      both([&](Session& s) { return s.Prefill(more).status; });
    }
    if (full->logits().empty()) both([](Session& s) { return s.Decode(1).status; });
  }
  const LosslessReport& report = *lossless->lossless_report();
  EXPECT_GT(report.drafted, 100);
  EXPECT_GT(report.accepted, report.drafted / 5);  // how long runs are follows the clock
  EXPECT_LT(report.accepted, report.drafted);
  EXPECT_EQ(lossless->accounting().rows_evicted, 0);
  lossless.reset();
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    EXPECT_EQ(engine->arena_accounting(tier).used_bytes, 0U);
  }
}

// All tokens of a run are folded a few at a time, and so are their logits.
TEST_P(LosslessAt, TheLongestRunsHaveTheBitsOfTheFullCache) {
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  auto engine = MakeEngine(EngineAt(place(), draft()));
  auto lossless =
      Open(*engine, SessionWith(draft(), {.draft_min = kMostDrafted, .draft_max = kMostDrafted}));
  for (Session* session : {full.get(), lossless.get()}) {
    ExpectOk(session->Prefill(SomeTokens(kPromptTokens)));
  }
  const std::vector<Token> text = SomeTokens(3 * kMostDrafted, 21);
  Oracle oracle(text, 0.995, 4);
  for (size_t i = 0; i < text.size(); ++i) {
    ExpectOk(full->Decode(text[i]));
    ExpectOk(lossless->Decode(text[i], oracle.From(i + 1)));
    ASSERT_NO_FATAL_FAILURE(ExpectSame(*full, *lossless));
  }
  const LosslessReport& report = *lossless->lossless_report();
  EXPECT_GE(report.drafted, 2 * (kMostDrafted - 1));
  EXPECT_GT(report.accepted, kMostDrafted);
}

// A text that goes on as it went before, but for one token in fourteen, with roll-backs; guesses of
// the draft are mostly wrong.
TEST_P(LosslessAt, WhatIsLookedUpHasTheBitsOfTheFullCache) {
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  auto engine = MakeEngine(EngineAt(place(), draft()));
  auto lossless = Open(*engine, SessionWith(draft(), {.draft_min = 2, .draft_max = 40}));
  std::vector<Token> text = SomeTokens(70, 9);
  for (Session* session : {full.get(), lossless.get()}) {
    ExpectOk(session->Prefill(SomeTokens(kPromptTokens)));
  }
  std::mt19937 random(11);
  for (int round = 0; round < 5; ++round) {
    Oracle oracle(text, 0.3, round);
    for (size_t i = 0; i < text.size(); ++i) {
      ExpectOk(full->Decode(text[i]));
      ExpectOk(lossless->Decode(text[i], oracle.From(i + 1), 50));
      ASSERT_NO_FATAL_FAILURE(ExpectSame(*full, *lossless));
    }
    if (round % 2 == 1) {
      const auto back = static_cast<Position>(random() % 80);
      for (Session* session : {full.get(), lossless.get()}) {
        ExpectOk(session->TruncateTo(session->next_position() - back));
      }
    }
    for (Token& token : text) {
      if (random() % 14 == 0) token = (token + 1) % SmallModel()->shape().vocab_size;
    }
  }
  const LosslessReport& report = *lossless->lossless_report();
  EXPECT_GT(report.accepted_looked_up, 50);
  EXPECT_LT(report.accepted_looked_up, report.looked_up);
  EXPECT_LE(report.looked_up, report.drafted);
}

// What the guesses are is the draft's own affair here.
TEST_P(LosslessAt, GeneratesTheTextOfTheFullCache) {
  for (const float temperature : {0.0F, 0.8F}) {
    const auto generate = [&](Session& session) {
      ExpectOk(session.Prefill(SomeTokens(kPromptTokens, 2)));
      auto sampler = Sampler::Create(
          *SmallModel(), {.temperature = temperature, .repeat_penalty = 1.1F, .seed = 4});
      EXPECT_TRUE(sampler.ok());
      return Generate(session, **sampler,
                      {.max_tokens = 150, .on_end = GenerateOptions::OnEnd::kIgnore});
    };
    auto full_engine = MakeEngine();
    auto full = Open(*full_engine);
    auto engine = MakeEngine(EngineAt(place(), draft()));
    auto lossless = Open(*engine, SessionWith(draft(), {.draft_min = 2, .draft_max = 7}));
    const GenerateResult expected = generate(*full);
    const GenerateResult result = generate(*lossless);
    EXPECT_EQ(result.answer.tokens, expected.answer.tokens);
    EXPECT_EQ(result.text, expected.text);
    EXPECT_EQ(result.finish_reason, FinishReason::kLength);
    ExpectSame(*full, *lossless);
    EXPECT_GT(lossless->lossless_report()->drafted, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    PlacesAndDrafts, LosslessAt,
    testing::Combine(testing::Values(Place{"Memory"}, Place{"Host", T1Place::kHost},
                                     Place{"File", T1Place::kFile}),
                     testing::ValuesIn(Drafts())),
    [](const auto& info) { return std::get<0>(info.param).name + std::get<1>(info.param).name; });

const Draft& Streaming() {
  static const Draft kDraft = Drafts().front();
  return kDraft;
}
const Place kHost = {"Host", T1Place::kHost};

// Few tokens: more threads than cores spin for one another.
TEST(Lossless, ThreadsChangeNothing) {
  const std::vector<Token> text = SomeTokens(24, 3);
  const auto hash = [&](const Place& place, int threads) {
    auto engine = MakeEngine(EngineAt(place, Streaming(), threads));
    auto session = Open(*engine, SessionWith(Streaming(), {.draft_min = 20}));
    ExpectOk(session->Prefill(SomeTokens(250)));
    Oracle oracle(text, 0.8, 1);
    for (size_t i = 0; i < text.size(); ++i) {
      ExpectOk(session->Decode(text[i], oracle.From(i + 1)));
    }
    return session->logits_hash();
  };
  const uint64_t one = hash(kHost, 1);
  for (const Place& place : {kHost, Place{"File", T1Place::kFile}}) {
    EXPECT_EQ(hash(place, 2), one) << place.name;
    EXPECT_EQ(hash(place, 3), one) << place.name;
  }
}

TEST(Lossless, FastIsTheFullCacheUpToRounding) {
  auto full_engine = MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  auto full = Open(*full_engine);
  EngineOptions options = EngineAt(kHost, Streaming());
  options.kv_type = RowType::kF32;
  auto engine = MakeEngine(options);
  auto lossless =
      Open(*engine,
           SessionWith(Streaming(), {.verify = LosslessOptions::Verify::kFast, .draft_min = 12}));
  const std::vector<Token> text = SomeTokens(120, 8);
  Oracle oracle(text, 1, 1);
  for (Session* session : {full.get(), lossless.get()}) {
    ExpectOk(session->Prefill(SomeTokens(kPromptTokens)));
  }
  for (size_t i = 0; i < text.size(); ++i) {
    ExpectOk(full->Decode(text[i]));
    ExpectOk(lossless->Decode(text[i], oracle.From(i + 1)));
    ASSERT_LT(LargestDifference(Logits(*full), Logits(*lossless)), 1e-3) << i;
  }
  EXPECT_EQ(lossless->lossless_report()->accepted, lossless->lossless_report()->drafted);
}

// Whatever that costs.
TEST(Lossless, FromAMinimumOfOneEveryStepHasAGuess) {
  for (const double right : {0.0, 0.5}) {
    auto engine = MakeEngine(EngineAt(kHost, Streaming()));
    auto session = Open(*engine, SessionWith(Streaming(), {.draft_min = 1, .looks_up = false}));
    ExpectOk(session->Prefill(SomeTokens(kPromptTokens)));
    const std::vector<Token> text = SomeTokens(200, 3);
    Oracle oracle(text, right, 1);
    for (size_t i = 0; i < text.size(); ++i) {
      const LosslessReport before = *session->lossless_report();
      ExpectOk(session->Decode(text[i], oracle.From(i + 1)));
      const LosslessReport& after = *session->lossless_report();
      if (i + 1 == text.size() || after.verify_steps == before.verify_steps) continue;
      ASSERT_GT(after.drafted, before.drafted) << i;
    }
  }
}

TEST(Lossless, TellsWhatIsDraftedAndNothingElse) {
  auto engine = MakeEngine(EngineAt(kHost, Streaming()));
  auto session = Open(*engine, SessionWith(Streaming(), {.draft_min = 7, .draft_max = 7}));
  ExpectOk(session->Prefill(SomeTokens(kPromptTokens)));
  EXPECT_TRUE(session->drafted().empty());
  const std::vector<Token> text = SomeTokens(50, 3);
  Oracle oracle(text, 1, 1);
  for (size_t i = 0; i < text.size(); ++i) {
    ExpectOk(session->Decode(text[i], oracle.From(i + 1)));
    const size_t to_come = std::min(6 - i % 7, text.size() - 1 - i);
    ASSERT_TRUE(std::ranges::equal(session->drafted(), std::span(text).subspan(i + 1, to_come)))
        << i;
  }
}

TEST(Lossless, NothingIsLookedUpWhereThatIsNotWanted) {
  const auto looked_up = [](const LosslessOptions& options, int most_guesses) {
    auto engine = MakeEngine(EngineAt(kHost, Streaming()));
    auto session = Open(*engine, SessionWith(Streaming(), options));
    const std::vector<Token> text = SomeTokens(50, 3);
    ExpectOk(session->Prefill(SomeTokens(kPromptTokens)));
    Oracle oracle(text, 0, 1);
    for (int round = 0; round < 4; ++round) {
      for (size_t i = 0; i < text.size(); ++i) {
        ExpectOk(session->Decode(text[i], oracle.From(i + 1), most_guesses));
      }
    }
    return session->lossless_report()->looked_up;
  };
  EXPECT_GT(looked_up({.draft_min = 2}, kMostDrafted), 0);
  EXPECT_EQ(looked_up({.draft_min = 2, .looks_up = false}, kMostDrafted), 0);
  EXPECT_EQ(looked_up({.draft_min = 8, .draft_max = 8}, kMostDrafted), 0);
  EXPECT_EQ(looked_up({.draft_min = 2}, 0), 0);
}

TEST(Lossless, WhatWasRolledBackIsNotLookedUp) {
  auto engine = MakeEngine(EngineAt(kHost, Streaming()));
  auto session = Open(*engine, SessionWith(Streaming(), {.draft_min = 2}));
  const std::vector<Token> first = SomeTokens(80, 3), second = SomeTokens(60, 4);
  ExpectOk(session->Prefill(SomeTokens(kPromptTokens)));
  const auto decode = [&](const std::vector<Token>& text) {
    Oracle oracle(text, 0, 1);
    const int64_t before = session->lossless_report()->accepted_looked_up;
    for (size_t i = 0; i < text.size(); ++i) ExpectOk(session->Decode(text[i], oracle.From(i + 1)));
    return session->lossless_report()->accepted_looked_up - before;
  };
  (void)decode(first);
  EXPECT_GT(decode(first), 20);
  ExpectOk(session->TruncateTo(kPromptTokens));
  ExpectOk(session->Prefill(second));
  EXPECT_GT(decode(second), 20);
  ExpectOk(session->TruncateTo(kPromptTokens));
  EXPECT_EQ(decode(first), 0);
}

TEST(Lossless, SessionsSideBySideAreWhatTheyAreAlone) {
  const std::vector<Token> text = SomeTokens(100, 3);
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  auto engine = MakeEngine(EngineAt(kHost, Streaming()));
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(Open(*engine, SessionWith(Streaming(), {.draft_min = 8 * i + 2})));
    ExpectOk(sessions[i]->Prefill(SomeTokens(kPromptTokens)));
  }
  auto fast =
      Open(*engine,
           SessionWith(Streaming(), {.verify = LosslessOptions::Verify::kFast, .draft_min = 12}));
  ExpectOk(fast->Prefill(SomeTokens(kPromptTokens)));
  ExpectOk(full->Prefill(SomeTokens(kPromptTokens)));
  Oracle oracle(text, 0.95, 1);
  for (size_t i = 0; i < text.size(); ++i) {
    ExpectOk(full->Decode(text[i]));
    ExpectOk(fast->Decode(text[i], oracle.From(i + 1)));
    for (auto& session : sessions) {
      ExpectOk(session->Decode(text[i], oracle.From(i + 1)));
      ASSERT_NO_FATAL_FAILURE(ExpectSame(*full, *session));
    }
  }
}

TEST(Lossless, TheContextsEndIsReachedToken) {
  auto engine = MakeEngine(EngineAt(kHost, Streaming()));
  SessionOptions options = SessionWith(Streaming(), {.draft_min = 8});
  options.context = 64;
  auto session = Open(*engine, options);
  const std::vector<Token> text = SomeTokens(40, 3);
  Oracle oracle(text, 1, 1);
  ExpectOk(session->Prefill(SomeTokens(kPromptTokens)));
  for (int i = 0; i < 24; ++i) ExpectOk(session->Decode(text[i], oracle.From(i + 1)));
  EXPECT_EQ(session->Decode(1).status.code(), StatusCode::kContextFull);
  EXPECT_EQ(session->next_position(), 64);
}

TEST(Lossless, WhatItCannotDoIsRefused) {
  auto engine = MakeEngine(EngineAt(kHost, Streaming()));
  const auto refusal = [&](const SessionOptions& options) {
    const Status status = engine->OpenSession(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    return status.message();
  };
  const Draft turning = {"turning", {.name = "streaming_rerotated", .sinks = 4, .window = 12}};
  EXPECT_TRUE(refusal(SessionWith(turning)).find("re-rotates keys") != std::string::npos);
  SessionOptions past = SessionWith(Streaming());
  past.past_context = PastContext::kReRotate;
  (void)refusal(past);
  EXPECT_EQ(Open(*engine, SessionWith(Streaming()))->SetT0Share(0.5).message(),
            "the share of T0 cannot change in a lossless session, whose draft is the rows of T0");
  const EngineTiers capped = {.t0_cap_bytes = size_t{4} << 20, .t1 = T1Place::kNone};
  SessionOptions without_t1 = {.policy = {.tiers = TierShares()}, .lossless = LosslessOptions()};
  EXPECT_EQ(MakeEngine({.threads = 1, .tiers = capped})->OpenSession(without_t1).status().message(),
            "a cap on T0 needs a T1 in a lossless session: T0 has to hold the draft alone");
  for (const auto& [min, max] : {std::pair(-1, 4), {0, 0}, {5, 4}, {1, kMostDrafted + 1}}) {
    (void)refusal(SessionWith(Streaming(), {.draft_min = min, .draft_max = max}));
  }
}

}  // namespace
}  // namespace ebb
