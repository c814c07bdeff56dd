// Dynamic Memory Sparsification: what the model marks goes a window later, in prefill as in decode,
// and a model that marks nothing is told so.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <sstream>

#include "tests/engine/dms/dms_fixture.h"
#include "tests/engine/sessions/session_fixture.h"
#include "tests/support/gguf_edit.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("tests/engine/devices/backend_device_test.cc has marked rows over devices");

using testing::HasSubstr;

constexpr int kLayers = 2, kKvHeads = 2;

std::unique_ptr<Engine> MarkingEngine(const EngineOptions& options) {
  return MakeEngineOf(MarkingModel(), options);
}

TEST(Dms, TheModelSaysItsWindowAndShift) {
  EXPECT_EQ(MarkingModel()->eviction_window(), kMarksWindow);
  EXPECT_EQ(MarkingModel()->eviction_shift(), 1);
  EXPECT_EQ(MarkingModel(5)->eviction_shift(), 5);
  EXPECT_EQ(SmallModel()->eviction_window(), 0);
}

// A model whose marks come so many tokens later, from where the layout says.
struct MarksCase {
  int shift = 1;
  Marks marks = Marks::kQueryChannel;
};
std::ostream& operator<<(std::ostream& out, const MarksCase& c) {
  return out << "Shift" << c.shift << (c.marks == Marks::kAdapter ? "Adapter" : "");
}

class DmsOfModels : public testing::TestWithParam<MarksCase> {
 protected:
  [[nodiscard]] static int Shift() { return GetParam().shift; }
  [[nodiscard]] static std::shared_ptr<const Model> TheModel() {
    return MarkingModel(GetParam().shift, GetParam().marks);
  }
  [[nodiscard]] static std::unique_ptr<Engine> MakeIts(const EngineOptions& options = {
                                                           .threads = 1,
                                                           .kv_type = RowType::kF32}) {
    return MakeEngineOf(TheModel(), options);
  }
  [[nodiscard]] static MarksRule Rule(const Session& session, int window = kMarksWindow) {
    return {TheModel()->shape(), session.policy().granularity, window, Shift()};
  }
};

INSTANTIATE_TEST_SUITE_P(All, DmsOfModels,
                         testing::Values(MarksCase{1}, MarksCase{0}, MarksCase{5},
                                         MarksCase{kMarksWindow}, MarksCase{1, Marks::kAdapter},
                                         MarksCase{0, Marks::kAdapter},
                                         MarksCase{kMarksWindow, Marks::kAdapter}),
                         [](const auto& info) {
                           std::ostringstream name;
                           name << info.param;
                           return name.str();
                         });

// After each step exactly the rows that the rule leaves, of the logits of all tokens.
TEST_P(DmsOfModels, LeavesTheRowsThatAreYoungOrNotMarked) {
  for (const int window : {kMarksWindow, std::max(1, Shift()), 7}) {
    if (window < Shift()) continue;
    for (const auto granularity : {Granularity::kHead, Granularity::kLayer, Granularity::kToken}) {
      SCOPED_TRACE(testing::Message() << window << " " << GranularityName(granularity));
      auto engine = MakeIts();
      PolicySpec spec = kDms;
      spec.granularity = granularity;
      if (window != kMarksWindow) spec.window = window;
      auto session = Open(*engine, spec);
      MarksRule rule = Rule(*session, window);
      const std::vector<Token> tokens = SomeTokens(160);
      // No call is longer than a step may be: last_signals() shows the last step alone.
      const int longest = window - Shift() + 1;
      for (int done = 0; done < 100;) {
        const int size = std::min({longest, 20, 100 - done});
        ExpectOk(session->Prefill(std::span(tokens).subspan(done, size)));
        ASSERT_EQ(session->last_signals().num_tokens, size);
        rule.See(session->last_signals());
        done += size;
        ASSERT_EQ(VisibleRows(*session), rule.Visible()) << "at " << done;
      }
      for (size_t i = 100; i < 160; ++i) {
        ExpectOk(session->Decode(tokens[i]));
        rule.See(session->last_signals());
        ASSERT_EQ(VisibleRows(*session), rule.Visible()) << "at " << i;
      }
      const int64_t rows = session->accounting().tiers[0].rows;
      EXPECT_LT(rows, 160 * kLayers * kKvHeads * 9 / 10);
      EXPECT_GT(rows, 160 * kLayers * kKvHeads / 10);
    }
  }
}

TEST_P(DmsOfModels, PrefillInStepsOfAnySizeIsDecodeTokenByToken) {
  const std::vector<Token> tokens = SomeTokens(150);
  for (const auto granularity : {Granularity::kHead, Granularity::kLayer, Granularity::kToken}) {
    PolicySpec spec = kDms;
    spec.granularity = granularity;
    auto one_by_one_engine = MakeIts();
    auto one_by_one = Open(*one_by_one_engine, spec);
    ExpectOk(one_by_one->Prefill(std::span(tokens).first(1)));
    for (size_t i = 1; i < tokens.size(); ++i) ExpectOk(one_by_one->Decode(tokens[i]));
    EXPECT_GT(one_by_one->accounting().rows_evicted, 0);
    for (const int chunk : {512, 25, 24, 23, 20, 19, 13, 7, 2}) {
      for (const auto attention :
           {EngineOptions::Attention::kCpu, EngineOptions::Attention::kReference}) {
        SCOPED_TRACE(testing::Message() << GranularityName(granularity) << " " << chunk);
        auto engine = MakeIts({.threads = 1,
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

TEST_P(DmsOfModels, APromptIsReadInStepsAsLongAsMarksAllow) {
  auto engine = MakeIts();
  auto session = Open(*engine, kDms);
  ExpectOk(session->Prefill(SomeTokens(3 * (kMarksWindow - Shift() + 1))));
  EXPECT_EQ(session->last_signals().num_tokens, kMarksWindow - Shift() + 1);
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

// The tokens behind those that stay decide anew on the last of them.
TEST_P(DmsOfModels, AfterARollBackTheNewTokensDecide) {
  auto engine = MakeIts();
  const std::vector<Token> first = SomeTokens(20);
  const std::vector<Token> other = SomeTokens(90, 11);
  for (Position kept = 2; kept < 18; kept += 3) {
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

// Rows that went before stay away; all others are as the rule says of the tokens that are there.
TEST_P(DmsOfModels, RollBacksBehindRowsThatWentLeaveWhatTheRuleSays) {
  auto engine = MakeIts();
  for (const auto granularity : {Granularity::kHead, Granularity::kToken}) {
    PolicySpec spec = kDms;
    spec.granularity = granularity;
    auto session = Open(*engine, spec);
    MarksRule rule = Rule(*session);
    uint64_t seed = 20;
    for (const Position end : {70, 60, 59, 71, 30, 33, 3}) {
      for (const Token token : SomeTokens(40, ++seed)) {
        ExpectOk(session->Decode(token));
        rule.See(session->last_signals());
      }
      ASSERT_EQ(VisibleRows(*session), rule.Visible()) << end;
      if (end > session->next_position()) continue;
      ExpectOk(session->TruncateTo(end));
      rule.TruncateTo(end);
      ASSERT_EQ(VisibleRows(*session), rule.Visible()) << end;
    }
    EXPECT_GT(session->accounting().rows_evicted, 0);
  }
}

TEST_P(DmsOfModels, ASessionThatRestedInAFileGoesOnTheSame) {
  const TempFolder folder;
  const std::vector<Token> tokens = SomeTokens(120);
  for (const auto granularity : {Granularity::kHead, Granularity::kLayer, Granularity::kToken}) {
    SessionOptions options;
    options.policy = kDms;
    options.policy.granularity = granularity;
    auto engine = MakeIts();
    auto session = Open(*engine, options);
    ExpectOk(session->Prefill(std::span(tokens).first(50)));
    ExpectOk(SaveSession(*session, folder.File("session")));
    auto resumed = ResumeSession(*engine, folder.File("session"), options);
    ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
    for (size_t i = 50; i < tokens.size(); ++i) {
      ExpectOk(session->Decode(tokens[i]));
      ExpectOk(resumed->session->Decode(tokens[i]));
      ASSERT_EQ(VisibleRows(*resumed->session), VisibleRows(*session)) << i;
    }
    EXPECT_EQ(resumed->session->logits_hash(), session->logits_hash());
    EXPECT_GT(session->accounting().rows_evicted, 0);
  }
}

TEST(Dms, ASessionOfAnotherShiftIsRefused) {
  const TempFolder folder;
  const std::string path = folder.File("session");
  SessionOptions options;
  for (const char* policy : {"dms", "full"}) {
    options.policy.name = policy;
    auto engine = MarkingEngine({.threads = 1});
    auto session = Open(*engine, options);
    ExpectOk(session->Prefill(SomeTokens(30)));
    ExpectOk(SaveSession(*session, path));
    auto other = MakeEngineOf(MarkingModel(5));
    const Status refused = ResumeSession(*other, path, options).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("a session of another model"));
  }
}

// Where the window is 1 the token that marks a row is the last that sees it, either way.
TEST(Dms, ImmediateEvictionWithAWindowOf1IsDelayedEvictionWithOne) {
  const TempFolder folder;
  const std::string path = folder.File("immediate.gguf");
  RandomGgufOptions options = MarkingModelOptions(1);
  options.eviction_window = 1;
  ExpectOk(WriteRandomGguf(options, path));
  auto file = GgufEdit::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  gguf_set_val_u32(file->metadata(), "llama.attention.dms.shift", 1);
  ExpectOk(file->Save(path));
  const auto immediate_model = Model::Load({.path = path});
  ASSERT_TRUE(immediate_model.ok()) << immediate_model.status().ToString();
  auto immediate_engine = MakeEngineOf(*immediate_model);
  auto delayed_engine = MarkingEngine({.threads = 1});
  auto immediate = Open(*immediate_engine, kDms);
  auto delayed = Open(*delayed_engine, PolicySpec{.name = "dms", .window = 1});
  for (Session* session : {immediate.get(), delayed.get()}) {
    ExpectOk(session->Prefill(SomeTokens(60)));
    for (const Token token : SomeTokens(60, 3)) ExpectOk(session->Decode(token));
  }
  EXPECT_EQ(VisibleRows(*immediate), VisibleRows(*delayed));
  EXPECT_EQ(immediate->logits_hash(), delayed->logits_hash());
}

TEST(Dms, AWindowShorterThanTheShiftIsRefused) {
  auto engine = MakeEngineOf(MarkingModel(5));
  SessionOptions options;
  options.policy = {.name = "dms", .window = 4};
  const Status refused = engine->OpenSession(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("window 4: expected 5 or more"));
  options.policy.window = 5;
  ExpectOk(engine->OpenSession(options).status());
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
  EXPECT_THAT(engine->OpenSession(options).status().message(),
              HasSubstr(" has no eviction head; use a model trained with DMS"));
}

// The store reads the prompt in the full cache's chunks, however short the window.
TEST_P(DmsOfModels, DraftsForTheBitsOfTheFullCache) {
  const std::vector<Token> text = SomeTokens(80, 3);
  auto full_engine = MakeIts({.threads = 1});
  auto full = Open(*full_engine, PolicySpec{});
  auto engine = MakeIts({.threads = 1, .tiers = EngineTiers{.t1 = T1Place::kHost}});
  auto lossless =
      Open(*engine, SessionOptions{.policy = kDms, .lossless = LosslessOptions{.draft_min = 6}});
  for (Session* session : {full.get(), lossless.get()}) ExpectOk(session->Prefill(SomeTokens(150)));
  EXPECT_LT(lossless->visible_positions(0).size(), 150);
  for (size_t i = 0; i < text.size(); ++i) {
    size_t next = i + 1;
    // Every ninth guess is wrong, and what was drafted from it on is rolled back.
    const Guess guess = [&](std::span<const float>) -> std::optional<Token> {
      if (next == text.size()) return std::nullopt;
      const Token right = text[next++];
      return next % 9 == 0 ? right ^ 1 : right;
    };
    ExpectOk(full->Decode(text[i]));
    ExpectOk(lossless->Decode(text[i], guess));
    ASSERT_EQ(lossless->logits_hash(), full->logits_hash()) << i;
  }
  EXPECT_GT(lossless->lossless_report()->accepted, 40);
  EXPECT_LT(lossless->lossless_report()->accepted, lossless->lossless_report()->drafted);
}

// The marks rank rows of the hierarchy as other scores do, under a policy that evicts none itself.
TEST(Dms, MarksMayRankRowsForTheHierarchy) {
  const TierSetting tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                             .shares = {.t2_share = 0.25, .evict_share = 0.25}};
  auto engine = MarkingEngine({.threads = 1, .tiers = tiers.engine});
  PolicySpec spec = {.name = "attention", .scorer = "dms"};
  spec.granularity = Granularity::kHead;
  spec.tiers = tiers.shares;
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
