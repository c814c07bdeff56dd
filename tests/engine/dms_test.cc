// Dynamic Memory Sparsification: what the model marks goes a window later, in prefill as in decode,
// and a model that marks nothing is told so.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

using testing::HasSubstr;

constexpr int kWindow = 24;
constexpr int kLayers = 2, kKvHeads = 2;

std::shared_ptr<const Model> MarkingModel() {
  static const std::shared_ptr<const Model> kModel = [] {
    const TempFolder folder;
    const std::string path = folder.File("marking.gguf");
    RandomGgufOptions options = SmallModelOptions();
    options.eviction_window = kWindow;
    ExpectOk(WriteRandomGguf(options, path));
    auto model = Model::Load({.path = path});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return *model;
  }();
  return kModel;
}

std::unique_ptr<Engine> MarkingEngine(const EngineOptions& options) {
  auto engine = Engine::Create(MarkingModel(), options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}

const PolicySpec kDms = {.name = "dms"};

std::vector<std::vector<Position>> VisibleRows(const Session& session) {
  std::vector<std::vector<Position>> visible;
  const int groups = MarkingModel()->shape().NumGroups(session.policy().granularity);
  for (int group = 0; group < groups; ++group) {
    const auto positions = session.visible_positions(group);
    visible.emplace_back(positions.begin(), positions.end());
  }
  return visible;
}

TEST(Dms, TheModelSaysItsWindow) {
  EXPECT_EQ(MarkingModel()->eviction_window(), kWindow);
  EXPECT_EQ(SmallModel()->eviction_window(), 0);
}

// The logits of all tokens, and after each step exactly the rows that the rule leaves.
TEST(Dms, LeavesTheRowsThatAreYoungOrNotMarked) {
  for (const int window : {kWindow, 1, 7}) {
    auto engine = MarkingEngine({.threads = 1, .kv_type = RowType::kF32});
    PolicySpec spec = kDms;
    if (window != kWindow) spec.window = window;
    auto session = Open(*engine, spec);
    std::vector<std::vector<float>> logits(kLayers * kKvHeads);  // [layer, kv head][tokens]
    const auto check = [&] {
      const StepSignals& step = session->last_signals();
      ASSERT_EQ(step.eviction_logits.size(), size_t{kLayers});
      for (int group = 0; group < kLayers * kKvHeads; ++group) {
        const std::span<const float> of_layer = step.eviction_logits[group / kKvHeads];
        for (int t = 0; t < step.num_tokens; ++t) {
          logits[group].push_back(of_layer[t * kKvHeads + group % kKvHeads]);
        }
      }
      const Position next = session->next_position();
      std::vector<std::vector<Position>> expected(logits.size());
      for (size_t group = 0; group < logits.size(); ++group) {
        ASSERT_EQ(logits[group].size(), static_cast<size_t>(next));
        for (Position p = 0; p < next; ++p) {
          const bool marked = p + 1 < next && logits[group][p + 1] > 0;
          if (!marked || next - p <= window) expected[group].push_back(p);
        }
      }
      ASSERT_EQ(VisibleRows(*session), expected) << "at " << next;
    };
    const std::vector<Token> tokens = SomeTokens(160);
    for (size_t done = 0; done < 100; done += std::min(window, 20)) {
      ExpectOk(session->Prefill(std::span(tokens).subspan(done, std::min(window, 20))));
      check();
    }
    for (size_t i = 100; i < 160 && !HasFatalFailure(); ++i) {
      ExpectOk(session->Decode(tokens[i]));
      check();
    }
    const int64_t rows = session->accounting().tiers[0].rows;
    EXPECT_LT(rows, 160 * kLayers * kKvHeads * 3 / 4);
    EXPECT_GT(rows, 160 * kLayers * kKvHeads / 4);
  }
}

TEST(Dms, PrefillInStepsOfAnySizeIsDecodeTokenByToken) {
  const std::vector<Token> tokens = SomeTokens(150);
  for (const auto granularity : {Granularity::kHead, Granularity::kLayer, Granularity::kToken}) {
    PolicySpec spec = kDms;
    spec.granularity = granularity;
    auto one_by_one_engine = MarkingEngine({.threads = 1, .kv_type = RowType::kF32});
    auto one_by_one = Open(*one_by_one_engine, spec);
    ExpectOk(one_by_one->Prefill(std::span(tokens).first(1)));
    for (size_t i = 1; i < tokens.size(); ++i) ExpectOk(one_by_one->Decode(tokens[i]));
    EXPECT_GT(one_by_one->accounting().rows_evicted, 0);
    for (const int chunk : {512, 24, 23, 13, 7, 2}) {
      for (const auto attention :
           {EngineOptions::Attention::kCpu, EngineOptions::Attention::kReference}) {
        SCOPED_TRACE(testing::Message() << GranularityName(granularity) << " " << chunk);
        auto engine = MarkingEngine({.threads = 1,
                                     .kv_type = RowType::kF32,
                                     .prefill_chunk = chunk,
                                     .attention = attention});
        auto session = Open(*engine, spec);
        ExpectOk(session->Prefill(tokens));
        EXPECT_EQ(VisibleRows(*session), VisibleRows(*one_by_one));
        EXPECT_LT(LargestDifference(Logits(*one_by_one), Logits(*session)), 1e-3);
      }
    }
  }
}

// What is hidden from the later queries of a step makes a difference.
TEST(Dms, EvictingChangesTheLogits) {
  auto engine = MarkingEngine({.threads = 1, .kv_type = RowType::kF32});
  auto full = Open(*engine);
  auto evicting = Open(*engine, kDms);
  for (Session* session : {full.get(), evicting.get()}) ExpectOk(session->Prefill(SomeTokens(100)));
  EXPECT_GT(LargestDifference(Logits(*full), Logits(*evicting)), 1e-2);
}

TEST(Dms, APromptBehindGeneratedTokensIsReadTheSame) {
  const std::vector<Token> tokens = SomeTokens(140);
  auto engine = MarkingEngine({.threads = 1, .kv_type = RowType::kF32});
  std::vector<std::unique_ptr<Session>> sessions;
  for (const size_t second_turn : {1, 6, 60}) {
    auto session = Open(*engine, kDms);
    ExpectOk(session->Prefill(std::span(tokens).first(40)));
    for (size_t i = 40; i < 80; ++i) ExpectOk(session->Decode(tokens[i]));
    for (size_t done = 80; done < tokens.size(); done += second_turn) {
      ExpectOk(session->Prefill(std::span(tokens).subspan(done, second_turn)));
    }
    sessions.push_back(std::move(session));
  }
  for (const auto& session : sessions) {
    EXPECT_EQ(VisibleRows(*session), VisibleRows(*sessions[0]));
    EXPECT_LT(LargestDifference(Logits(*sessions[0]), Logits(*session)), 1e-3);
  }
}

// The token behind the last one that stays decides anew on that one.
TEST(Dms, AfterARollBackTheNewTokensDecide) {
  auto engine = MarkingEngine({.threads = 1, .kv_type = RowType::kF32});
  const std::vector<Token> first = SomeTokens(20);
  const std::vector<Token> other = SomeTokens(90, 11);
  for (Position kept = 10; kept < 18; ++kept) {
    auto rolled_back = Open(*engine, kDms);
    ExpectOk(rolled_back->Prefill(first));
    ExpectOk(rolled_back->TruncateTo(kept));
    auto fresh = Open(*engine, kDms);
    ExpectOk(fresh->Prefill(std::span(first).first(kept)));
    for (Session* session : {rolled_back.get(), fresh.get()}) ExpectOk(session->Prefill(other));
    EXPECT_EQ(VisibleRows(*rolled_back), VisibleRows(*fresh)) << kept;
    EXPECT_LT(LargestDifference(Logits(*fresh), Logits(*rolled_back)), 1e-3);
  }
}

TEST(Dms, FreesMemory) {
  auto engine = MarkingEngine({.threads = 1});
  auto full = Open(*engine);
  auto evicting = Open(*engine, kDms);
  for (Session* session : {full.get(), evicting.get()}) {
    ExpectOk(session->Prefill(SomeTokens(2000)));
  }
  const CacheAccounting accounting = evicting->accounting();
  EXPECT_LT(accounting.tiers[0].page_bytes, full->accounting().tiers[0].page_bytes * 3 / 4);
  EXPECT_EQ(accounting.rows_evicted + accounting.tiers[0].rows, 2000 * kLayers * kKvHeads);
}

TEST(Dms, ABatchOfSessionsIsEachAlone) {
  auto engine = MarkingEngine({.threads = 1, .kv_type = RowType::kF32});
  auto a = Open(*engine, kDms);
  auto b = Open(*engine);
  auto alone = Open(*engine, kDms);
  const std::vector<Token> tokens = SomeTokens(80);
  for (Session* session : {a.get(), b.get(), alone.get()}) {
    ExpectOk(session->Prefill(std::span(tokens).first(40)));
  }
  for (size_t i = 40; i < tokens.size(); ++i) {
    Session* const both[] = {b.get(), a.get()};
    const Token next[] = {tokens[i], tokens[i]};
    ExpectOk(engine->DecodeBatch(both, next));
    ExpectOk(alone->Decode(tokens[i]));
  }
  EXPECT_EQ(VisibleRows(*a), VisibleRows(*alone));
  EXPECT_LT(LargestDifference(Logits(*alone), Logits(*a)), 1e-3);
  EXPECT_TRUE(b->last_signals().eviction_logits.empty()) << "nobody asked for them";
}

TEST(Dms, AModelThatMarksNothingIsRefused) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.policy = kDms;
  const Status refused = engine->OpenSession(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("attention.dms.layout"));
  options.policy = {};
  options.extra_signals.eviction_logits = true;
  EXPECT_THAT(engine->OpenSession(options).status().message(), HasSubstr("marks no rows"));
}

// The store reads the prompt in the full cache's chunks, however short the window.
TEST(Dms, DraftsForTheBitsOfTheFullCache) {
  const std::vector<Token> text = SomeTokens(80, 3);
  auto full_engine = MarkingEngine({.threads = 1});
  auto full = Open(*full_engine, PolicySpec{});
  auto engine = MarkingEngine({.threads = 1, .tiers = TierSpec{.t1 = T1Place::kHost}});
  auto lossless =
      Open(*engine, SessionOptions{.policy = kDms, .lossless = LosslessOptions{.draft_min = 6}});
  for (Session* session : {full.get(), lossless.get()}) ExpectOk(session->Prefill(SomeTokens(150)));
  EXPECT_LT(lossless->visible_positions(0).size(), 150);
  for (size_t i = 0; i < text.size(); ++i) {
    size_t next = i + 1;
    const Guess guess = [&](std::span<const float>) -> std::optional<Token> {
      return next < text.size() ? std::optional(text[next++]) : std::nullopt;
    };
    ExpectOk(full->Decode(text[i]));
    ExpectOk(lossless->Decode(text[i], guess));
    ASSERT_EQ(lossless->logits_hash(), full->logits_hash()) << i;
  }
  EXPECT_GT(lossless->lossless_report()->accepted, 60);
}

// The scorer ranks rows of the hierarchy as any other does.
TEST(Dms, DrivesTheHierarchy) {
  const TierSpec tiers = {.t1 = T1Place::kHost, .t2_share = 0.25, .evict_share = 0.25};
  auto engine = MarkingEngine({.threads = 1, .tiers = tiers});
  PolicySpec spec = kDms;
  spec.tiers = tiers;
  spec.window = 16;
  spec.interval = 8;
  auto session = Open(*engine, spec);
  ExpectOk(session->Prefill(SomeTokens(40)));
  for (const Token token : SomeTokens(100, 3)) ExpectOk(session->Decode(token));
  EXPECT_GT(session->accounting().rows_evicted, 0);
  EXPECT_GT(session->accounting().tiers[2].rows, 0);
}

}  // namespace
}  // namespace ebb
