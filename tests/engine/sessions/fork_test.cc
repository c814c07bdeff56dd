// Sessions that fork go on as if each were alone, hold pages together and give them back; sessions
// whose rows change their tiers between steps keep their bits.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>

#include "src/session/session_impl.h"
#include "tests/engine/sessions/session_cases.h"
#include "tests/engine/sessions/session_fixture.h"

namespace ebb {
namespace {

constexpr int kForkPromptTokens = 300;
constexpr int kForkDecodeTokens = 160;

const std::vector<Token>& Prompt() {
  static const std::vector<Token> kPrompt = SomeTokens(kForkPromptTokens);
  return kPrompt;
}

std::vector<SessionCase> ForkCases() {
  std::vector<SessionCase> cases;
  const auto add = [&](const std::string& name, const TieredPolicy& policy) {
    AddCases(name, policy, &cases);
  };
  add("full", SmallPolicy("full", ""));
  for (const char* name : {"streaming", "h2o", "attention", "random"}) {
    add(name, SmallPolicy(name, name == std::string("attention") ? "340" : "30%"));
  }
  add("t1_host", Tiered({.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.4}}));
  add("t1_file", Tiered({.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0.4}}));
  add("t1_file_evict",
      Tiered({.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0.3, .evict_share = 0.1}}));
  add("t2_int8", Tiered({.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                         .shares = {.t0_share = 0.5, .t2_share = 0.4}},
                        "h2o"));
  add("t2_int4", Tiered({.engine = {.t1 = T1Place::kFile, .t2_type = CompressedType::kInt4},
                         .shares = {.t0_share = 0.5, .t2_share = 0.5, .evict_share = 0.1}}));
  SessionCase lossless = {.name = "lossless", .options = {}};
  lossless.options.policy = SmallPolicy("attention", "25%");
  lossless.options.lossless.emplace();
  cases.push_back(lossless);
  lossless.name = "lossless_t1_file";
  lossless.options.policy = Tiered({.shares = {.t0_share = 0.3, .evict_share = 0.1}});
  lossless.tiers = EngineTiers{.t1 = T1Place::kFile};
  cases.push_back(lossless);
  return cases;
}

// What the way `way` decodes, of which there are as many as one likes.
std::vector<Token> Way(uint64_t way) { return SomeTokens(kForkDecodeTokens, 100 + way); }

// The tokens of a session as a path of ways: from token i on, those of ways[k].second.
using Path = std::vector<std::pair<int, uint64_t>>;

std::vector<Token> TokensOf(const Path& path) {
  std::vector<Token> tokens;
  for (size_t k = 0; k < path.size(); ++k) {
    const int end = k + 1 < path.size() ? path[k + 1].first : kForkDecodeTokens;
    const std::vector<Token> way = Way(path[k].second);
    tokens.insert(tokens.end(), way.begin() + path[k].first, way.begin() + end);
  }
  return tokens;
}

uint64_t HashAlone(Engine& engine, const SessionOptions& options, const Path& path) {
  const auto session = Open(engine, options);
  ExpectOk(session->Prefill(Prompt()));
  for (const Token token : TokensOf(path)) ExpectOk(session->Decode(token));
  return session->logits_hash();
}

size_t UsedBytes(const Engine& engine) {
  size_t bytes = engine.newest_accounting().used_bytes;
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    bytes += engine.arena_accounting(tier).used_bytes;
  }
  return bytes;
}

class ForkTest : public ::testing::TestWithParam<SessionCase> {};

TEST_P(ForkTest, ForksOfForksGiveTheBitsOfRunningAloneAndGiveTheirPagesBack) {
  const SessionOptions& options = GetParam().options;
  if (options.lossless.has_value()) {
    EBB_CPU_ONLY(
        "tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");
  }
  const auto engine = MakeEngine(EngineOptionsFor(GetParam().tiers));
  struct Branch {
    std::unique_ptr<Session> session;
    Path path;
  };
  std::vector<Branch> branches;
  branches.push_back({Open(*engine, options), {{0, 0}}});
  ExpectOk(branches[0].session->Prefill(Prompt()));
  for (int step = 0; step < kForkDecodeTokens; ++step) {
    if (step == 0 || step == 37 || step == 90) {
      const size_t from = branches.size() - 1;
      auto fork = branches[from].session->Fork();
      ASSERT_TRUE(fork.ok()) << fork.status().ToString();
      EXPECT_EQ((*fork)->logits_hash(), branches[from].session->logits_hash());
      EXPECT_EQ(Logits(**fork), Logits(*branches[from].session));
      EXPECT_EQ((*fork)->accounting().rows_evicted,
                branches[from].session->accounting().rows_evicted);
      Path path = branches[from].path;
      path.emplace_back(step, branches.size());
      branches.push_back({*std::move(fork), path});
    }
    if (step == 120) branches.erase(branches.begin() + 1);  // one that others forked from
    for (Branch& branch : branches) {
      ExpectOk(branch.session->Decode(TokensOf(branch.path)[step]));
    }
  }
  for (const Branch& branch : branches) {
    EXPECT_EQ(branch.session->logits_hash(), HashAlone(*engine, options, branch.path));
    ExpectOk(Internals::SequenceOf(*branch.session).cache().Validate());
  }
  branches.clear();
  EXPECT_EQ(UsedBytes(*engine), 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, ForkTest, ::testing::ValuesIn(ForkCases()),
                         [](const auto& test) { return test.param.name; });

TEST(SessionForkTest, AForkTakesThePagesThatAreNotFullAndNoMore) {
  const auto engine = MakeEngine();
  const auto session = Open(*engine);
  ExpectOk(session->Prefill(SomeTokens(1000)));
  const size_t alone = engine->arena_accounting(Tier::kT0).used_bytes;
  const auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  // Of 1,000 rows the last 40 lie in a page that is not nearly full.
  const size_t pages = (1000 + kRowsPerPage - 1) / kRowsPerPage;
  EXPECT_EQ(engine->arena_accounting(Tier::kT0).used_bytes, alone + alone / pages);
  for (const Session* one : {session.get(), fork->get()}) {
    const TierAccounting t0 = one->accounting().tiers[0];
    EXPECT_EQ(t0.page_bytes, alone);
    EXPECT_EQ(t0.shared_page_bytes, alone - alone / pages);
  }
}

// R-KV works its scores out when a placement asks for them, which at most steps none does.
TEST(SessionForkTest, AForkDividesRowsByWhatTheLastStepShowed) {
  const EngineTiers tiers = {.t1 = T1Place::kHost};
  const SessionOptions options = {.policy = Tiered({.shares = {.t0_share = 0.5}}, "rkv")};
  const auto engine = MakeEngine(EngineOptionsFor(tiers));
  const auto session = Open(*engine, options);
  ExpectOk(session->Prefill(Prompt()));
  // Four tokens behind an interval of eight.
  const std::vector<Token> way = Way(0);
  for (const Token token : std::span(way).first(60)) ExpectOk(session->Decode(token));
  auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  for (Session* one : {session.get(), fork->get()}) ExpectOk(one->SetT0Share(0.3));
  SequenceCache& cache = Internals::SequenceOf(*session).cache();
  SequenceCache& of_fork = Internals::SequenceOf(**fork).cache();
  EXPECT_GT(session->accounting().tiers[1].rows, 0);
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    EXPECT_TRUE(std::ranges::equal(cache.tiers(group), of_fork.tiers(group))) << group;
  }
}

TEST(SessionForkTest, KeysOfAForkThatRotateLeaveTheOthersAsTheyAre) {
  SessionOptions options = {.policy = SmallPolicy("streaming", "128"),
                            .context = 256,
                            .past_context = PastContext::kReRotate};
  const auto engine = MakeEngine();
  const auto session = Open(*engine, options);
  const std::vector<Token> tokens = SomeTokens(600);
  const std::span<const Token> all = tokens;
  ExpectOk(session->Prefill(all.first(200)));
  const auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  for (const Token token : all.subspan(200, 300)) ExpectOk((*fork)->Decode(token));
  for (const Token token : all.subspan(200)) ExpectOk(session->Decode(token));
  const auto alone = Open(*engine, options);
  ExpectOk(alone->Prefill(all.first(200)));
  for (const Token token : all.subspan(200)) ExpectOk(alone->Decode(token));
  EXPECT_EQ(session->logits_hash(), alone->logits_hash());
}

TEST(SessionForkTest, AForkMayBeRolledBackIntoSharedPages) {
  const auto engine = MakeEngine();
  const auto session = Open(*engine);
  ExpectOk(session->Prefill(Prompt()));
  const auto fork = session->Fork();
  ASSERT_TRUE(fork.ok());
  ExpectOk((*fork)->TruncateTo(100));
  ExpectOk((*fork)->Prefill(SomeTokens(50, 3)));
  for (const Token token : Way(1)) ExpectOk(session->Decode(token));
  EXPECT_EQ(session->logits_hash(), HashAlone(*engine, {}, {{0, 1}}));
  ExpectOk((*fork)->TruncateTo(100));
  ExpectOk((*fork)->Prefill(std::span(Prompt()).subspan(100)));
  const auto alone = Open(*engine);
  ExpectOk(alone->Prefill(Prompt()));
  EXPECT_EQ(Logits(**fork), Logits(*alone));
}

TEST(SessionForkTest, WhileAPromptIsReadAForkIsRefused) {
  const auto engine = MakeEngine();
  const auto session = Open(*engine);
  ExpectOk(session->BeginPrompt(Prompt()));
  const auto fork = session->Fork();
  ASSERT_FALSE(fork.ok());
  EXPECT_EQ(fork.status().code(), StatusCode::kInvalidArgument);
}

TEST(SessionForkTest, WithoutRoomForTheCopiesAForkIsRefusedAndTheSessionGoesOn) {
  // One extent holds the session and hardly another page.
  EngineOptions options = {.threads = 1, .kv_cap_bytes = size_t{2} << 20};
  const auto engine = MakeEngine(options);
  const auto session = Open(*engine);
  const size_t row_bytes = 2 * 2 * 2 * 64 * 2;  // layers, heads, key and value of 64 f16
  const size_t most = (size_t{2} << 20) / row_bytes;
  ExpectOk(session->Prefill(SomeTokens(most - kRowsPerPage + 1)));
  const size_t used = engine->arena_accounting(Tier::kT0).used_bytes;
  const auto fork = session->Fork();
  ASSERT_FALSE(fork.ok());
  EXPECT_EQ(fork.status().code(), StatusCode::kT0Full);
  EXPECT_EQ(session->accounting().tiers[0].shared_page_bytes, 0u);
  EXPECT_EQ(engine->arena_accounting(Tier::kT0).used_bytes, used);
  ExpectOk(session->Decode(1));
}

TEST(ElasticT0Test, SharesThatChangeAndParkingChangeNoBit) {
  for (const T1Place place : {T1Place::kHost, T1Place::kFile}) {
    for (const double t2_share : {0.0, 0.4}) {
      for (const double evict_share : {0.0, 0.1}) {
        SessionOptions options;
        options.policy =
            Tiered({.shares = {.t0_share = 0.5, .t2_share = t2_share, .evict_share = evict_share}});
        const EngineTiers tiers = {.t1 = place, .t2_type = CompressedType::kInt8};
        const auto engine = MakeEngine(EngineOptionsFor(tiers));
        const auto session = Open(*engine, options);
        ExpectOk(session->Prefill(Prompt()));
        std::mt19937 random(3);
        for (const Token token : Way(0)) {
          ExpectOk(session->Decode(token));
          const auto dice = random() % 12;
          if (dice == 0) {
            ExpectOk(session->Park());
            EXPECT_EQ(session->accounting().tiers[0].rows, 0);
            EXPECT_EQ(engine->arena_accounting(Tier::kT0).used_bytes, 0u);
          }
          if (dice < 3) ExpectOk(session->SetT0Share(static_cast<double>(random() % 11) / 10));
        }
        EXPECT_EQ(session->logits_hash(), HashAlone(*engine, options, {{0, 0}}));
        ExpectOk(Internals::SequenceOf(*session).cache().Validate());
      }
    }
  }
}

TEST(ElasticT0Test, AShareMovesRowsAtOnce) {
  SessionOptions options;
  options.policy = Tiered({.shares = {.t0_share = 0.5}});
  const EngineTiers tiers = {.t1 = T1Place::kHost};
  const auto engine = MakeEngine(EngineOptionsFor(tiers));
  const auto session = Open(*engine, options);
  ExpectOk(session->Prefill(Prompt()));
  const std::vector<Token> way = Way(0);
  for (const Token token : std::span(way).first(100)) ExpectOk(session->Decode(token));
  const auto rows_in_t0 = [&] { return session->accounting().tiers[0].rows; };
  const int64_t before = rows_in_t0();
  ExpectOk(session->SetT0Share(0));
  // The prompt, the first four generated tokens and the last eight are protected; four streams.
  EXPECT_EQ(rows_in_t0(), (kForkPromptTokens + 4 + 8) * 4);
  EXPECT_GT(before, rows_in_t0());
  ExpectOk(session->SetT0Share(1));
  EXPECT_EQ(session->accounting().tiers[1].rows, 0);
}

TEST(ElasticT0Test, WhatHasNoT1IsRefusedWithItsReason) {
  const auto engine = MakeEngine();
  const auto session = Open(*engine);
  EXPECT_EQ(session->SetT0Share(0.5).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->Park().code(), StatusCode::kInvalidArgument);
  SessionOptions options;
  options.policy = Tiered({.shares = {.t0_share = 0.5}});
  const EngineTiers tiers = {.t1 = T1Place::kHost};
  const auto tiered = MakeEngine(EngineOptionsFor(tiers));
  const auto with_t1 = Open(*tiered, options);
  for (const double share : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(with_t1->SetT0Share(share).code(), StatusCode::kInvalidArgument);
  }
  // Sessions without tiers, in an engine whose other sessions have them. Keys that are re-rotated
  // cannot lie in T1; rows that Quest reads can.
  const auto rotating = Open(*tiered, SessionOptions{.policy = SmallPolicy("streaming", "128"),
                                                     .context = 256,
                                                     .past_context = PastContext::kReRotate});
  ExpectOk(rotating->Prefill(Prompt()));
  EXPECT_EQ(rotating->Park().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rotating->accounting().tiers[1].rows, 0);
  const auto selecting = Open(*tiered, SmallPolicy("quest", "48"));
  ExpectOk(selecting->Prefill(Prompt()));
  ExpectOk(selecting->Park());
  EXPECT_GT(selecting->accounting().tiers[1].rows, 0);
}

}  // namespace
}  // namespace ebb
