// Hard caps on tiers: what fits runs on in flat memory, what does not ends with the figures.
#include <gmock/gmock.h>

#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

using testing::HasSubstr;

// Rows of 16 (layer, kv head) pairs in f32: 256 of each group in 2 MiB, the least an arena takes,
// and 1024 in a file of 8 MiB.
constexpr uint64_t kT0Bytes = uint64_t{2} << 20;
constexpr uint64_t kT1Bytes = uint64_t{8} << 20;

std::unique_ptr<Engine> CapsEngine(const TierSetting& tiers) {
  static const std::shared_ptr<const Model> kModel = [] {
    const TempFolder folder;
    const std::string path = folder.File("caps.gguf");
    ExpectOk(WriteRandomGguf(SixteenStreamsOptions(), path));
    auto model = Model::Load({.path = path});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return *model;
  }();
  auto engine =
      Engine::Create(kModel, {.threads = 1, .kv_type = RowType::kF32, .tiers = tiers.engine});
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}

PolicySpec CapsPolicy(const TierSetting& tiers, const std::string& scorer = "attention") {
  PolicySpec policy = {.name = scorer};
  policy.tiers = tiers.shares;
  policy.window = 16;
  policy.interval = 8;
  return policy;
}

std::vector<Token> CapsText(size_t count) {
  return RandomTokens(SixteenStreamsOptions(), count, 3);
}

class FullCaps : public testing::TestWithParam<std::string> {};

TEST_P(FullCaps, EndTheirRequestWithTheFiguresAndLeaveOthersAlone) {
  const TierSetting tiers = {.engine = {.t0_cap_bytes = 2 * kT0Bytes, .t1_cap_bytes = kT1Bytes}};
  auto engine = CapsEngine(tiers);
  auto bystander = Open(*engine, CapsPolicy(tiers));
  ExpectOk(bystander->Prefill(CapsText(20)));
  auto session = Open(*engine, CapsPolicy(tiers, GetParam()));
  ExpectOk(session->Prefill(CapsText(20)));
  Status status;
  while (status.ok()) {
    ASSERT_LT(session->next_position(), 2000);
    status = session->Decode(5).status;
  }
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_THAT(status.message(), HasSubstr("must stay in full precision"));
  // 512 and 1024 rows, without the 72 of each that are kept in reserve.
  EXPECT_NEAR(session->next_position(), 512 + 1024 - 2 * 72, 8);
  EXPECT_LE(engine->arena_accounting(Tier::kT0).peak_bytes, 2 * kT0Bytes);
  EXPECT_LE(engine->arena_accounting(Tier::kT1).peak_bytes, kT1Bytes);
  for (int i = 0; i < 20; ++i) ExpectOk(bystander->Decode(5));
  session.reset();
  bystander.reset();
  for (const Tier tier : {Tier::kT0, Tier::kT1}) {
    EXPECT_EQ(engine->arena_accounting(tier).used_bytes, 0u);
    EXPECT_EQ(engine->arena_accounting(tier).reserved_bytes, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Scorers, FullCaps, testing::Values("attention", "random"),
                         [](const auto& info) { return info.param; });

TEST(TierCaps, APromptLongerThanT0IsReadAsTheFullCacheReadsIt) {
  const TierSetting tiers = {.engine = {.t0_cap_bytes = kT0Bytes}};
  const std::vector<Token> text = CapsText(1000);
  auto engine = CapsEngine(tiers);
  auto session = Open(*engine, CapsPolicy(tiers));
  ExpectOk(session->Prefill(text));
  auto full_engine = CapsEngine({});
  auto full = Open(*full_engine, CapsPolicy({.shares = {.t0_share = 1}}));
  ExpectOk(full->Prefill(text));
  for (int i = 0; i < 50; ++i) {
    ExpectOk(session->Decode(text[i]));
    ExpectOk(full->Decode(text[i]));
    ASSERT_EQ(full->logits_hash(), session->logits_hash()) << i;
  }
  EXPECT_LE(engine->arena_accounting(Tier::kT0).peak_bytes, kT0Bytes);
  EXPECT_GT(session->accounting().tiers[1].rows, 800 * 16);
}

// Three prompts, the second and third of which find T0 full: read in the steps of the full cache,
// they give its bits.
TEST(TierCaps, PromptsLongerThanT0sRoomHaveTheFullCachesBits) {
  const TierSetting tiers = {.engine = {.t0_cap_bytes = 3 * kT0Bytes}};  // 768 rows
  const std::vector<Token> text = CapsText(2000);
  const auto hash_of = [&](const TierSetting& spec) {
    auto engine = CapsEngine(spec);
    auto session = Open(*engine, CapsPolicy(spec));
    const std::span<const Token> all(text);
    for (const auto& [begin, count] : {std::pair(0, 1100), {1100, 300}, {1400, 600}}) {
      ExpectOk(session->Prefill(all.subspan(begin, count)));
      for (int i = 0; i < 20; ++i) ExpectOk(session->Decode(text[i]));
    }
    if (spec.engine.t0_cap_bytes > 0) {
      EXPECT_LE(engine->arena_accounting(Tier::kT0).peak_bytes, spec.engine.t0_cap_bytes);
      EXPECT_GT(session->accounting().tiers[1].rows, 1200 * 16);
    }
    return session->logits_hash();
  };
  EXPECT_EQ(hash_of(tiers), hash_of({.shares = {.t0_share = 1}}));
}

// Wherever T0's room ends within a chunk, few tokens may be left of it: behind few rows, which
// one token at a time would read faster, and behind many, which would be cut into parts.
TEST(TierCaps, WhatIsLeftOfAChunkIsReadAsTheChunkIs) {
  const std::vector<Token> text = CapsText(3000);
  const auto hash_of = [&](const TierSetting& spec, size_t count) {
    auto engine = CapsEngine(spec);
    auto session = Open(*engine, CapsPolicy(spec));
    ExpectOk(session->Prefill(std::span(text).first(count)));
    for (int i = 0; i < 3; ++i) ExpectOk(session->Decode(text[i]));
    return session->logits_hash();
  };
  for (const size_t count : {257, 258, 269, 300, 2565, 2700, 2900}) {
    EXPECT_EQ(hash_of({.engine = {.t0_cap_bytes = kT0Bytes}}, count),
              hash_of({.shares = {.t0_share = 1}}, count))
        << count;
  }
}

// An arena's extents hold whole pages: 19 of these in 2 MiB, which is not a multiple of them.
TEST(TierCaps, PagesThatDoNotFillAnExtentKeepToTheCap) {
  constexpr uint64_t kCap = 8 * kT0Bytes;
  const TempFolder folder;
  const std::string path = folder.File("odd.gguf");
  const RandomGgufOptions shape = {.num_layers = 2,
                                   .embed_dim = 64,
                                   .num_q_heads = 1,
                                   .num_kv_heads = 1,
                                   .head_dim = 208,
                                   .feed_forward_dim = 64,
                                   .context = 8192};
  ExpectOk(WriteRandomGguf(shape, path));
  const TierSetting tiers = {.engine = {.t0_cap_bytes = kCap, .t1 = T1Place::kHost}};
  const auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok());
  auto engine =
      Engine::Create(*model, {.threads = 1, .kv_type = RowType::kF32, .tiers = tiers.engine});
  ASSERT_TRUE(engine.ok());
  auto session = Open(**engine, CapsPolicy(tiers));
  ExpectOk(session->Prefill(RandomTokens(shape, 4700, 3)));
  for (int i = 0; i < 400; ++i) ExpectOk(session->Decode(5));
  EXPECT_LE((*engine)->arena_accounting(Tier::kT0).peak_bytes, kCap);
  EXPECT_GT(session->accounting().tiers[1].rows, 0);
}

// Rows that T2 takes at the next decision still need room until then.
TEST(TierCaps, ALaterPromptWithoutRoomIsRefusedAsAWhole) {
  TierSetting tiers = {.engine = {.t0_cap_bytes = kT0Bytes,
                                  .t1 = T1Place::kHost,
                                  .t1_cap_bytes = kT0Bytes,
                                  .t2_type = CompressedType::kInt8},
                       .shares = {.t2_share = 1}};
  auto engine = CapsEngine(tiers);
  PolicySpec policy = CapsPolicy(tiers);
  policy.window = 128;
  policy.interval = 64;
  auto session = Open(*engine, policy);
  ExpectOk(session->Prefill(CapsText(10)));
  for (int i = 0; i < 250; ++i) ExpectOk(session->Decode(5));
  const Position before = session->next_position();
  const Status status = session->Prefill(CapsText(100)).status;
  EXPECT_EQ(status.code(), StatusCode::kT0Full) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("others"));
  EXPECT_EQ(session->next_position(), before);
  ExpectOk(session->Prefill(CapsText(10)));
}

TEST(TierCaps, APromptThatNoTierHoldsIsRefusedWithTheFigures) {
  const TierSetting tiers = {.engine = {.t0_cap_bytes = kT0Bytes, .t1_cap_bytes = kT1Bytes}};
  auto engine = CapsEngine(tiers);
  auto session = Open(*engine, CapsPolicy(tiers));
  const Status status = session->Prefill(CapsText(2000)).status;
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_THAT(status.message(), HasSubstr("must stay in full precision"));
}

TEST(TierCaps, AGenerationUnderCapsRunsOnInFlatMemory) {
  const TierSetting tiers = {.engine = {.t0_cap_bytes = kT0Bytes,
                                        .t1_cap_bytes = kT1Bytes,
                                        .t2_type = CompressedType::kInt8},
                             .shares = {.t2_share = 0.2, .evict_share = 0.02}};
  auto engine = CapsEngine(tiers);
  auto session = Open(*engine, CapsPolicy(tiers));
  ExpectOk(session->Prefill(CapsText(300)));
  const auto bytes = [&] {
    const CacheAccounting cache = session->accounting();
    size_t sum = cache.table_bytes + cache.staging_bytes;
    for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
      sum += engine->arena_accounting(tier).reserved_bytes;
    }
    return static_cast<double>(sum);
  };
  double most = 0;
  for (int i = 0; i < 3000; ++i) {
    ExpectOk(session->Decode(static_cast<Token>(5 + i % 50)));
    ASSERT_FALSE(HasFailure()) << i;
    if (i == 1500) most = bytes();
  }
  EXPECT_LE(bytes(), 1.02 * most);
  EXPECT_GT(session->accounting().tiers[1].rows, 0);
  EXPECT_LE(engine->arena_accounting(Tier::kT0).peak_bytes, kT0Bytes);
  EXPECT_LE(engine->arena_accounting(Tier::kT1).peak_bytes, kT1Bytes);
}

// Turns whose prompts do not fit into what the draft has. They are read as the full cache reads
// them, so that nothing rounds otherwise.
TEST(TierCaps, PromptsLargerThanADraftLeaveTheTextTheFullCaches) {
  const TierSetting tiers = {.engine = {.t0_cap_bytes = 3 * kT0Bytes, .t1 = T1Place::kHost}};
  const auto think = [&](const TierSetting& of_engine, const SessionOptions& options) {
    auto engine = CapsEngine(of_engine);
    auto session = Open(*engine, options);
    for (const size_t num_tokens : {900, 300, 700}) {
      ExpectOk(session->Prefill(CapsText(num_tokens)));
      const std::vector<Token> answer = CapsText(150);
      for (size_t i = 0; i < answer.size(); ++i) {
        size_t next = i + 1;
        ExpectOk(session->Decode(answer[i], [&](std::span<const float>) -> std::optional<Guessed> {
          if (next == answer.size()) return std::nullopt;
          return next % 7 == 0 ? Guessed(1) : Guessed(answer[next++]);
        }));
      }
    }
    const LosslessReport* report = session->lossless_report();
    EXPECT_TRUE(report == nullptr || report->accepted > 100);
    if (report != nullptr) {
      EXPECT_LE(engine->arena_accounting(Tier::kT0).peak_bytes, tiers.engine.t0_cap_bytes);
    }
    return session->logits_hash();
  };
  const uint64_t full = think({}, {});
  for (const char* policy : {"attention", "streaming"}) {
    EXPECT_EQ(think(tiers, {.policy = CapsPolicy(tiers, policy),
                            .lossless = LosslessOptions{.draft_min = 4}}),
              full)
        << policy;
  }
}

// What may go makes room for the next prompt, with and without a T1.
TEST(TierCaps, WhereRowsMayGoALongAnswerLeavesRoomForTheNextPrompt) {
  for (const T1Place t1 : {T1Place::kHost, T1Place::kNone}) {
    TierSetting tiers = {.engine = {.t0_cap_bytes = kT0Bytes, .t1 = t1},
                         .shares = {.evict_share = 0.1}};
    if (t1 == T1Place::kHost) tiers.engine.t1_cap_bytes = kT0Bytes;
    auto engine = CapsEngine(tiers);
    auto session = Open(*engine, CapsPolicy(tiers));
    for (const size_t num_tokens : {20, 1, 70, 60}) {
      ExpectOk(session->Prefill(CapsText(num_tokens)));
      for (int i = 0; i < 700; ++i) ExpectOk(session->Decode(static_cast<Token>(5 + i % 50)));
      ASSERT_FALSE(HasFailure()) << num_tokens;
    }
    EXPECT_GT(session->accounting().rows_evicted, 1000 * 16);
    EXPECT_LE(engine->arena_accounting(Tier::kT0).peak_bytes, kT0Bytes);
  }
}

TEST(TierCaps, APromptThatIsRefusedTakesNoRowsAway) {
  const TierSetting tiers = {
      .engine = {.t0_cap_bytes = kT0Bytes, .t1 = T1Place::kHost, .t1_cap_bytes = kT0Bytes},
      .shares = {.evict_share = 0.01}};
  auto engine = CapsEngine(tiers);
  auto session = Open(*engine, CapsPolicy(tiers));
  ExpectOk(session->Prefill(CapsText(100)));
  for (int i = 0; i < 100; ++i) ExpectOk(session->Decode(static_cast<Token>(5 + i % 50)));
  const int64_t evicted = session->accounting().rows_evicted;
  const Status status = session->Prefill(CapsText(700)).status;
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_THAT(status.message(), HasSubstr("must stay in full precision"));
  EXPECT_EQ(session->accounting().rows_evicted, evicted);
  EXPECT_EQ(session->next_position(), 200);
  ExpectOk(session->Prefill(CapsText(50)));
  ExpectOk(session->Decode(5));
}

TEST(TierCaps, WithoutT1ACapIsToldWithTheFiguresToo) {
  const TierSetting tiers = {.engine = {.t0_cap_bytes = kT0Bytes, .t1 = T1Place::kNone}};
  auto engine = CapsEngine(tiers);
  auto session = Open(*engine, CapsPolicy(tiers));
  ExpectOk(session->Prefill(CapsText(20)));
  Status status;
  while (status.ok()) status = session->Decode(5).status;
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_THAT(status.message(), HasSubstr("must stay in full precision"));
  EXPECT_NEAR(session->next_position(), 256 - 72, 8);
}

// Rows of T2 that are protected after a roll-back stay there until the next decision about T2.
TEST(TierCaps, ARollBackAndAPromptLeaveT2AsItIsWithoutACap) {
  const auto hash_of = [&](const TierSetting& tiers) {
    auto engine = CapsEngine(tiers);
    auto session = Open(*engine, CapsPolicy(tiers));
    ExpectOk(session->Prefill(CapsText(600)));
    for (int i = 0; i < 100; ++i) ExpectOk(session->Decode(static_cast<Token>(5 + i % 50)));
    ExpectOk(session->TruncateTo(640));
    const int64_t in_t2 = session->accounting().tiers[2].rows;
    EXPECT_GT(in_t2, 0);
    ExpectOk(session->Prefill(CapsText(50)));
    EXPECT_EQ(session->accounting().tiers[2].rows, in_t2);
    for (int i = 0; i < 30; ++i) ExpectOk(session->Decode(static_cast<Token>(7 + i)));
    return session->logits_hash();
  };
  const uint64_t without =
      hash_of({.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
               .shares = {.t0_share = 0.5, .t2_share = 0.5}});
  EXPECT_EQ(hash_of({.engine = {.t0_cap_bytes = kT0Bytes,
                                .t1 = T1Place::kHost,
                                .t2_type = CompressedType::kInt8},
                     .shares = {.t2_share = 0.5}}),
            without);
}

}  // namespace
}  // namespace ebb
