// What a lossless session keeps and what it may take: its store under T1's cap and after
// roll-backs, and what the tiers that a user asks for leave to the draft.
#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/attention/rows.h"
#include "src/rows/arena.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/lossless/knowing_guess.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE(
    "tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");

constexpr int kPage = static_cast<int>(kRowsPerPage);
constexpr size_t kKvStreams = 2 * 2;  // layers, kv heads

EngineOptions OnHost(uint64_t t1_cap_bytes = 0) {
  return {.threads = 1, .tiers = EngineTiers{.t1 = T1Place::kHost, .t1_cap_bytes = t1_cap_bytes}};
}

SessionOptions Drafting(PolicySpec policy, int draft_min) {
  return {.policy = std::move(policy), .lossless = LosslessOptions{.draft_min = draft_min}};
}

const PolicySpec kStreaming = {.name = "streaming", .sinks = 4, .window = 12};

// Its cap is half of what the model's context would take.
TEST(LosslessStore, T1sCapEndsATextThatDrafts) {
  auto probe_engine = MakeEngineOf(DeepModel(), OnHost());
  auto probe = Open(*probe_engine, Drafting(kStreaming, 0));
  ExpectOk(probe->Prefill(SomeTokens(6 * kPage)));
  const size_t bytes_of_a_token =
      probe_engine->arena_accounting(Tier::kT1).used_bytes / (6 * kPage);
  ASSERT_GT(bytes_of_a_token, 0U);
  constexpr size_t kCap = size_t{2} << 20;  // the least that there is
  const auto tokens_of_cap = static_cast<int>(kCap / bytes_of_a_token);
  ASSERT_LT(tokens_of_cap + 8 * kPage, DeepModel()->shape().trained_context);
  const std::vector<Token> text = SomeTokens(8 * kPage, 3);
  for (const int draft_min : {0, 8}) {
    auto engine = MakeEngineOf(DeepModel(), OnHost(kCap));
    auto session = Open(*engine, Drafting(kStreaming, draft_min));
    ExpectOk(session->Prefill(SomeTokens(tokens_of_cap - 3 * kPage)));
    Status status;
    for (size_t i = 0; i < text.size() && status.ok(); ++i) {
      status = session->Decode(text[i], Knowing(text, i + 1)).status;
    }
    EXPECT_EQ(status.code(), StatusCode::kT1Full) << draft_min;
    EXPECT_THAT(status.message(), testing::HasSubstr("cap of 2 MiB")) << draft_min;
    EXPECT_LE(engine->arena_accounting(Tier::kT1).reserved_bytes, kCap);
    EXPECT_LE(session->next_position(), tokens_of_cap + 3 * kPage) << draft_min;
    EXPECT_GE(session->next_position(), tokens_of_cap - kPage) << draft_min;
    if (draft_min > 0) {
      EXPECT_GT(session->lossless_report()->drafted, 0);
    }
    // No room comes of asking again.
    EXPECT_EQ(session->Decode(1).status.code(), StatusCode::kT1Full);
  }
}

// Before a run of a page's length comes to be verified, so that two pages at most hold both.
TEST(LosslessStore, HasLessThanAPageOnItsWayToT1WhileARunIsDrafted) {
  auto engine = MakeEngine(OnHost());
  auto session = Open(
      *engine, {.policy = kStreaming,
                .lossless = LosslessOptions{.draft_min = kMostDrafted, .draft_max = kMostDrafted}});
  ExpectOk(session->Prefill(SomeTokens(kPage + 7)));
  const std::vector<Token> text = SomeTokens(6 * kPage, 3);
  int64_t most_rows = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const Guess knowing = [&,
                           next = i + 1](std::span<const float>) mutable -> std::optional<Token> {
      most_rows = std::max(most_rows, session->accounting().newest.rows);
      return next < text.size() ? std::optional(text[next++]) : std::nullopt;
    };
    ExpectOk(session->Decode(text[i], knowing));
  }
  EXPECT_GT(session->lossless_report()->accepted, 4 * kPage);
  EXPECT_GT(most_rows, 0);
  EXPECT_LT(most_rows, kPage * static_cast<int64_t>(kKvStreams));
}

TEST(LosslessStore, IsInT1AgainAfterARollBack) {
  constexpr int kBefore = 15 * kPage, kLeft = 100;
  // The second ends where the rows before the roll-back ended.
  for (const int num_tokens : {8 * kPage, kBefore - kLeft}) {
    auto engine = MakeEngine(OnHost());
    auto session = Open(*engine, Drafting(kStreaming, 4));
    ExpectOk(session->Prefill(SomeTokens(kBefore)));
    ExpectOk(session->Decode(1));  // finds all in T1
    ExpectOk(session->TruncateTo(kLeft));
    ExpectOk(session->Prefill(SomeTokens(num_tokens, 2)));
    ExpectOk(session->Decode(1));
    const int64_t rows = session->accounting().tiers[static_cast<int>(Tier::kT1)].rows;
    EXPECT_GE(rows, (session->next_position() - 2 * kPage) * static_cast<int64_t>(kKvStreams));
    EXPECT_LE(rows, session->next_position() * static_cast<int64_t>(kKvStreams));
  }
}

// Of 32 streams, so that an extent has 256 tokens: guesses that are wrong take rows back over its
// border, and so does the caller, again and again.
TEST(LosslessStore, RollBacksCrossExtents) {
  const auto model = RandomModel({.num_layers = 4,
                                  .embed_dim = 64,
                                  .num_q_heads = 8,
                                  .num_kv_heads = 8,
                                  .head_dim = 64,
                                  .feed_forward_dim = 64});
  constexpr int kExtentTokens = 4 * kPage;
  for (const T1Place t1 : {T1Place::kNone, T1Place::kHost}) {
    auto full_engine = MakeEngineOf(model);
    auto full = Open(*full_engine);
    auto engine = MakeEngineOf(model, {.threads = 1, .tiers = EngineTiers{.t1 = t1}});
    auto session = Open(*engine, Drafting(kStreaming, 12));
    // Of the arena that has the store's pages: at least so many.
    const Tier tier = t1 == T1Place::kNone ? Tier::kT0 : Tier::kT1;
    const auto num_extents = [&] {
      return (engine->arena_accounting(tier).used_bytes + kExtentBytes - 1) / kExtentBytes;
    };
    for (Session* one : {full.get(), session.get()}) {
      ExpectOk(one->Prefill(SomeTokens(3 * kExtentTokens - 30)));
    }
    const std::vector<Token> text = SomeTokens(kExtentTokens + 24, 3);
    for (const int back : {60, 80, 2 * kExtentTokens, 40}) {
      const size_t before = num_extents();
      for (size_t i = 0; i < text.size(); ++i) {
        ExpectOk(full->Decode(text[i]));
        // One guess in nine is wrong, and what is guessed behind it.
        const Guess guess = [&,
                             next = i + 1](std::span<const float>) mutable -> std::optional<Token> {
          if (next >= text.size()) return std::nullopt;
          const Token token = text[next++];
          return next % 9 == 0 ? (token + 1) % model->shape().vocab_size : token;
        };
        ExpectOk(session->Decode(text[i], guess));
        ASSERT_EQ(session->logits_hash(), full->logits_hash()) << back << ", " << i;
      }
      if (back == 60) {
        EXPECT_GT(num_extents(), before);  // the text has gone over a border
      }
      const size_t grown = num_extents();
      for (Session* one : {full.get(), session.get()}) {
        ExpectOk(one->TruncateTo(one->next_position() - back));
        ExpectOk(one->Decode(text[0]));
      }
      if (back == 2 * kExtentTokens) {
        EXPECT_LT(num_extents(), grown);
      }
    }
    EXPECT_GT(session->lossless_report()->accepted, 100);
    EXPECT_LT(session->lossless_report()->accepted, session->lossless_report()->drafted);
  }
}

TEST(LosslessStore, WhatT1HadNoRoomForGoesThereOnceItHas) {
  auto engine = MakeEngine(OnHost(size_t{2} << 20));
  auto large = Open(*engine, Drafting(kStreaming, 0));
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) status = large->Prefill(SomeTokens(kPage)).status;
  ASSERT_EQ(status.code(), StatusCode::kContextFull);
  auto session = Open(*engine, Drafting(kStreaming, 0));
  EXPECT_EQ(session->Prefill(SomeTokens(6 * kPage)).status.code(), StatusCode::kT1Full);
  const auto rows_in_t1 = [&] {
    return session->accounting().tiers[static_cast<int>(Tier::kT1)].rows;
  };
  EXPECT_LE(rows_in_t1(), kPage * static_cast<int64_t>(kKvStreams));  // a page still had room
  const Position end = session->next_position();
  for (int i = 0; i < 3; ++i) {  // nothing grows meanwhile
    EXPECT_EQ(session->Decode(1).status.code(), StatusCode::kT1Full);
    EXPECT_EQ(session->Prefill(SomeTokens(kPage)).status.code(), StatusCode::kT1Full);
  }
  EXPECT_EQ(session->next_position(), end);
  large.reset();
  ExpectOk(session->Decode(1));
  EXPECT_GE(rows_in_t1(), 4 * kPage * static_cast<int64_t>(kKvStreams));
}

TEST(LosslessStore, EveryShareOfT2IsADraft) {
  for (int percent = 1; percent < 100; ++percent) {
    EngineOptions options = OnHost();
    options.tiers->t2_type = CompressedType::kInt8;
    auto engine = MakeEngine(options);
    const TierShares shares = {.t0_share = 1, .t2_share = percent / 100.0};
    auto session = Open(*engine, Drafting({.name = "attention", .tiers = shares}, 0));
    EXPECT_NE(session, nullptr) << percent;
  }
}

// Rows of T1 are missing from drafts once, not anew at each interval.
TEST(LosslessStore, AShareOfTheRowsAliveIsDraftedWithAsOfThoseGenerated) {
  std::vector<size_t> rows;
  for (const EvictOf of : {EvictOf::kGenerated, EvictOf::kAlive}) {
    auto engine = MakeEngine(OnHost());
    PolicySpec policy = SmallPolicy("attention", "10%");
    policy.budget = {};
    policy.tiers = TierShares{.t0_share = 0.5, .evict_of = of};
    auto session = Open(*engine, Drafting(policy, 0));
    ExpectOk(session->Prefill(SomeTokens(20)));
    for (const Token token : SomeTokens(200, 4)) ExpectOk(session->Decode(token));
    rows.push_back(session->visible_positions(0).size());
  }
  EXPECT_EQ(rows[0], rows[1]);
  EXPECT_GT(rows[0], 90U);
}

// Pages whose rows all lie in the draft's T0 are read there.
TEST(LosslessStore, WhatTheDraftHasInT0IsNotReadFromT1) {
  const std::vector<Token> prompt = SomeTokens(20 * kPage);
  const std::vector<Token> text = SomeTokens(3 * kPage, 5);
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  ExpectOk(full->Prefill(prompt));
  for (const Token token : text) ExpectOk(full->Decode(token));
  std::vector<double> pages;  // of a step, in each stream
  for (const int window : {kPage / 2, 11 * kPage}) {
    const EngineOptions options = {.threads = 1, .tiers = EngineTiers{.t1 = T1Place::kFile}};
    const auto probe = Engine::Create(SmallModel(), options);
    if (probe.status().code() == StatusCode::kUnsupported)
      EBB_SKIP_WITHOUT("direct_io") << "no direct reads";
    auto engine = MakeEngine(options);
    auto session = Open(*engine, Drafting({.name = "streaming", .sinks = 4, .window = window}, 4));
    ExpectOk(session->Prefill(prompt));
    for (size_t i = 0; i < text.size(); ++i) {
      ExpectOk(session->Decode(text[i], Knowing(text, i + 1)));
    }
    EXPECT_EQ(session->logits_hash(), full->logits_hash()) << window;
    const LosslessReport& report = *session->lossless_report();
    const auto page_bytes = static_cast<double>(session->accounting().tiers[1].page_bytes) /
                            static_cast<double>(session->accounting().tiers[1].rows) * kPage;
    pages.push_back(static_cast<double>(report.bytes_read) /
                    static_cast<double>(report.verify_steps) / page_bytes / kKvStreams);
  }
  // The newest rows are the store's own.
  EXPECT_GT(pages[0], 18);
  EXPECT_LT(pages[1], pages[0] - 8);
  EXPECT_GT(pages[1], pages[0] - 11);
}

// Rows that rise from T2 are not what they were.
TEST(LosslessStore, WhatADraftWithT2HasInT0IsReadFromT1) {
  TierSetting tiers = {.engine = {.t1 = T1Place::kFile, .t2_type = CompressedType::kInt8},
                       .shares = {.t0_share = 0.9, .t2_share = 0.5}};
  auto engine = Engine::Create(SmallModel(), {.threads = 1, .tiers = tiers.engine});
  if (engine.status().code() == StatusCode::kUnsupported)
    EBB_SKIP_WITHOUT("direct_io") << "no direct reads";
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  auto session = Open(**engine, Drafting({.name = "attention", .tiers = tiers.shares}, 0));
  ExpectOk(session->Prefill(SomeTokens(6 * kPage)));
  const uint64_t before = session->lossless_report()->bytes_read;
  ExpectOk(session->Decode(1));
  EXPECT_EQ(session->lossless_report()->bytes_read - before,
            session->accounting().tiers[static_cast<int>(Tier::kT1)].page_bytes);
}

// Its parts say whose failure it was.
TEST(LosslessStore, WhatADraftHasNoRoomForIsToldAsTheDrafts) {
  auto engine = MakeEngine(OnHost());
  auto session = Open(*engine, Drafting(SmallPolicy("attention", "20"), 4));
  const Status status = session->Prefill(SomeTokens(90)).status;
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("the draft"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace ebb
