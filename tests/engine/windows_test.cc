// Layers with sliding windows: their rows go by themselves, from every tier and at every policy,
// and no bit of what is computed depends on when.
#include <gmock/gmock.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <ostream>
#include <set>

#include "ebb/generate.h"
#include "src/session/session_impl.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/sessions/session_fixture.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

using testing::HasSubstr;

constexpr int kWindow = 40;
constexpr int kRowsInPage = 64;
constexpr int kWindowLayers = 4, kGlobal = 2, kWindowKvHeads = 2;

RandomGgufOptions WindowOptions(int eviction_window = 0) {
  RandomGgufOptions options = {.family = "gemma3",
                               .num_layers = kWindowLayers,
                               .embed_dim = 128,
                               .num_q_heads = 4,
                               .num_kv_heads = kWindowKvHeads,
                               .sliding_window = kWindow,
                               .window_layers = {true, true, false, true},
                               .head_dim = 64,
                               .feed_forward_dim = 192,
                               .context = 2048};
  options.eviction_window = eviction_window;
  return options;
}

std::shared_ptr<const Model> WindowModel() {
  static const std::shared_ptr<const Model> kModel = RandomModel(WindowOptions());
  return kModel;
}

std::unique_ptr<Engine> WindowEngine(const EngineOptions& options = {.threads = 1}) {
  return MakeEngineOf(WindowModel(), options);
}

std::vector<Position> Range(Position begin, Position end) {
  std::vector<Position> positions(std::max(end - begin, 0));
  std::iota(positions.begin(), positions.end(), begin);
  return positions;
}

std::vector<Position> Visible(const Session& session, int group) {
  const auto positions = session.visible_positions(group);
  return {positions.begin(), positions.end()};
}

// Returns how many rows a layer has for its window and for those of checkpoints; a device has none
// of the latter.
int64_t RowsFor(std::initializer_list<Position> checkpoints, Position next) {
  std::set<Position> rows;
  const auto add = [&](Position end) {
    for (Position p = std::max(end - kWindow + 1, 0); p < end; ++p) rows.insert(p);
  };
  add(next);
  if (OtherDevice() == nullptr) std::ranges::for_each(checkpoints, add);
  return static_cast<int64_t>(rows.size());
}

// Rows that the next query sees.
void ExpectWindows(const Session& session) {
  const Position next = session.next_position();
  for (int layer = 0; layer < kWindowLayers; ++layer) {
    const Position first = layer == kGlobal ? 0 : std::max(next - kWindow + 1, 0);
    ASSERT_EQ(Visible(session, layer), Range(first, next)) << "layer " << layer << " at " << next;
  }
}

// And those of checkpoints: the ends of chunks, near the end of the prompt, and its end.
TEST(Windows, ACacheHoldsTheRowsOfItsWindowsAndAPageMore) {
  auto engine = WindowEngine({.threads = 1, .prefill_chunk = 64});
  auto session = Open(*engine);
  EXPECT_EQ(session->policy().granularity, Granularity::kLayer);
  const std::vector<Token> tokens = SomeTokens(500);
  ExpectOk(session->Prefill(std::span(tokens).first(300)));
  ExpectWindows(*session);
  for (size_t i = 300; i < tokens.size(); ++i) {
    ExpectOk(session->Decode(tokens[i]));
    ExpectWindows(*session);
    const CacheAccounting cache = session->accounting();
    const auto all = static_cast<int64_t>(i + 1);
    const std::initializer_list<Position> checkpoints = {64, 128, 192, 256, 298, 300};
    const int64_t in_windows = RowsFor(checkpoints, static_cast<Position>(all));
    ASSERT_EQ(cache.tiers[0].rows, (all + 3 * in_windows) * kWindowKvHeads);
    ASSERT_EQ(cache.rows_evicted, 3 * (all - in_windows) * kWindowKvHeads);
    const size_t page_bytes = size_t{kRowsInPage} * 2 * 64 * sizeof(uint16_t);
    const int64_t pages =
        (all + kRowsInPage - 1) / kRowsInPage + 3 * (in_windows / kRowsInPage + 6);
    ASSERT_LE(cache.tiers[0].page_bytes, pages * kWindowKvHeads * page_bytes);
    const bool keeps_all = RowsFor(checkpoints, static_cast<Position>(all) - 1) < in_windows;
    EXPECT_EQ(session->last_step().rows_evicted, keeps_all ? 0 : 3 * kWindowKvHeads);
  }
}

// More than a few tokens at a time, whose products have the bits of one prompt.
TEST(Windows, NoBitDependsOnTheChunksOfAPrompt) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  const std::vector<Token> tokens = SomeTokens(208 + 20);
  const auto hash = [&](int chunk, int threads) {
    auto engine = WindowEngine({.threads = threads, .prefill_chunk = chunk});
    auto session = Open(*engine);
    ExpectOk(session->Prefill(std::span(tokens).first(208)));
    for (size_t i = 208; i < tokens.size(); ++i) ExpectOk(session->Decode(tokens[i]));
    return session->logits_hash();
  };
  const uint64_t whole = hash(512, 1);
  for (const int chunk : {208, 104, 52, 26, 16, 13}) EXPECT_EQ(hash(chunk, 2), whole) << chunk;
}

TEST(Windows, APromptInPiecesHasTheBitsOfOneThatIsReadAtOnce) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  const std::vector<Token> tokens = SomeTokens(230);
  auto engine = WindowEngine();
  auto whole = Open(*engine), pieces = Open(*engine);
  ExpectOk(whole->Prefill(tokens));
  ExpectOk(pieces->BeginPrompt(tokens));
  while (pieces->prompt_left() > 0) {
    SessionStep part = {.session = pieces.get(), .token = {}, .most_prompt_tokens = 31};
    ExpectOk(engine->Step({&part, 1}));
  }
  EXPECT_EQ(pieces->logits_hash(), whole->logits_hash());
  ExpectWindows(*pieces);
}

// A few tokens at a time are folded, each with a window of its own; many go in tiles.
TEST(Windows, PrefillInStepsOfAnySizeIsDecodeTokenByToken) {
  const std::vector<Token> tokens = SomeTokens(150);
  for (const char* name : {"full", "h2o", "vatp"}) {
    PolicySpec spec = {.name = name};
    if (spec.name != "full") spec.budget = *ParseBudget("1000");
    auto one_by_one_engine = WindowEngine({.threads = 1, .kv_type = RowType::kF32});
    auto one_by_one = Open(*one_by_one_engine, spec);
    ExpectOk(one_by_one->Prefill(std::span(tokens).first(1)));
    for (size_t i = 1; i < tokens.size(); ++i) ExpectOk(one_by_one->Decode(tokens[i]));
    for (const int chunk : {512, 60, 40, 39, 13, 12, 7, 2}) {
      for (const auto attention :
           {EngineOptions::Attention::kCpu, EngineOptions::Attention::kReference}) {
        auto engine = WindowEngine({.threads = 1,
                                    .kv_type = RowType::kF32,
                                    .prefill_chunk = chunk,
                                    .attention = attention});
        auto session = Open(*engine, spec);
        ExpectOk(session->Prefill(tokens));
        EXPECT_LT(LargestDifference(Logits(*one_by_one), Logits(*session)), 1e-3)
            << name << " " << chunk;
      }
    }
  }
}

// Each query gives its rows one unit of mass in all, whichever of them its window hides.
TEST(Windows, MassIsOfTheRowsThatAQuerySees) {
  const std::vector<Token> tokens = SomeTokens(130);
  for (const int chunk : {512, 50, 12, 5}) {
    for (const Granularity granularity : {Granularity::kLayer, Granularity::kHead}) {
      auto engine = WindowEngine({.threads = 2, .prefill_chunk = chunk});
      SessionOptions options;
      options.policy = {.name = "full", .granularity = granularity};
      options.extra_signals = {.mass = MassNeed::kPerQueryHead, .mass_in_prefill = true};
      int64_t num_heads = 0;
      options.on_signals = [&](int group, std::span<const Position> positions,
                               const GroupSignals& signals, const StepSignals& step) {
        ASSERT_EQ(signals.num_rows, static_cast<int>(positions.size()));
        const int layer = granularity == Granularity::kLayer ? group : group / kWindowKvHeads;
        for (int head = 0; head < signals.num_mass_heads; ++head, ++num_heads) {
          const auto mass = signals.mass.subspan(size_t(head) * positions.size(), positions.size());
          const double sum = std::accumulate(mass.begin(), mass.end(), 0.0);
          ASSERT_NEAR(sum, step.num_tokens, 1e-4 * step.num_tokens);
          if (layer == kGlobal) continue;
          for (size_t row = 0; row < positions.size(); ++row) {
            if (positions[row] > step.first_position - kWindow) break;
            ASSERT_EQ(mass[row], 0) << "row " << positions[row];
          }
        }
      };
      auto session = Open(*engine, options);
      ExpectOk(session->Prefill(std::span(tokens).first(120)));
      for (size_t i = 120; i < tokens.size(); ++i) ExpectOk(session->Decode(tokens[i]));
      EXPECT_GE(num_heads, 4 * kWindowLayers * 11);
    }
  }
}

struct WindowsCase {
  std::string name;
  PolicySpec policy;
  bool is_exact = false;  // the bits of the full cache
  std::optional<EngineTiers> tiers = {};
};
std::ostream& operator<<(std::ostream& out, const WindowsCase& c) { return out << c.name; }

std::vector<WindowsCase> WindowsCases() {
  std::vector<WindowsCase> cases;
  for (const Granularity granularity : {Granularity::kLayer, Granularity::kHead}) {
    const std::string at = "_" + std::string(GranularityName(granularity));
    const auto add = [&](const std::string& name, PolicySpec policy, bool is_exact) {
      policy.granularity = granularity;
      cases.push_back({name + at, policy, is_exact});
    };
    const auto add_tiered = [&](const std::string& name, const TierSetting& tiers, bool is_exact) {
      add(name, {.name = "attention", .window = 8, .interval = 8, .tiers = tiers.shares}, is_exact);
      cases.back().tiers = tiers.engine;
    };
    add("full", {.name = "full"}, true);
    for (const char* name : {"h2o", "tova", "streaming", "rkv", "lazy_eviction", "quest", "vatp"}) {
      add(name, {.name = name, .budget = *ParseBudget("70")}, false);
    }
    // These keep the prompt.
    add("lag_kv", {.name = "lag_kv", .budget = *ParseBudget("+60"), .interval = 8}, false);
    add("attention",
        {.name = "attention", .budget = *ParseBudget("+60"), .window = 16, .interval = 8}, false);
    add_tiered("t1_host", {.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.4}}, true);
    add_tiered("t1_file", {.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0.3}}, true);
    add_tiered("t1_evict",
               {.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.4, .evict_share = 0.2}},
               false);
    add_tiered("t2",
               {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                .shares = {.t0_share = 0.5, .t2_share = 0.5}},
               false);
    add_tiered("t2_file",
               {.engine = {.t1 = T1Place::kFile, .t2_type = CompressedType::kInt8},
                .shares = {.t0_share = 0.3, .t2_share = 0.4}},
               false);
  }
  return cases;
}

class WindowsAtAnyPolicy : public testing::TestWithParam<WindowsCase> {
 protected:
  [[nodiscard]] static SessionOptions Options() {
    SessionOptions options;
    options.policy = GetParam().policy;
    return options;
  }
  [[nodiscard]] static Result<std::unique_ptr<Engine>> MakeIts() {
    return TryMakeEngineOf(WindowModel(),
                           {.threads = 2, .tiers = GetParam().tiers, .prefill_chunk = 64});
  }
  void SetUp() override {
    const auto engine = MakeIts();
    if (engine.status().code() == StatusCode::kUnsupported)
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  }
  static const std::vector<Token>& Text() {
    static const std::vector<Token> kText = SomeTokens(130 + 150);
    return kText;
  }
  static void Read(Session& session) { ExpectOk(session.Prefill(std::span(Text()).first(130))); }
  static void Decode(Session& session, int from, int to) {
    for (int i = from; i < to; ++i) ExpectOk(session.Decode(Text()[130 + i]));
  }
};

INSTANTIATE_TEST_SUITE_P(All, WindowsAtAnyPolicy, testing::ValuesIn(WindowsCases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(WindowsAtAnyPolicy, NoRowOutlivesItsWindowInAnyTier) {
  auto engine = *MakeIts();
  auto session = Open(*engine, Options());
  const int groups = WindowModel()->shape().NumGroups(session->policy().granularity);
  const auto check = [&] {
    int64_t rows = 0;
    for (int group = 0; group < groups; ++group) {
      const std::vector<Position> visible = Visible(*session, group);
      const int layer = group * kWindowLayers / groups;
      rows += static_cast<int64_t>(visible.size()) * kWindowLayers * kWindowKvHeads / groups;
      if (layer == kGlobal || visible.empty()) continue;
      ASSERT_GT(visible.front(), session->next_position() - kWindow) << "group " << group;
    }
    // Without a policy that removes rows the checkpoints of the prompt keep those of their windows.
    const int64_t kept = AllRows(session->accounting()) - rows;
    ASSERT_GE(kept, 0);
    ASSERT_LE(kept, session->policy().placement != nullptr
                        ? 0
                        : 3 * (kWindowLayers - 1) * kWindowKvHeads * (kWindow - 1));
  };
  Read(*session);
  check();
  for (int i = 0; i < 150; ++i) {
    Decode(*session, i, i + 1);
    check();
  }
  EXPECT_TRUE(std::ranges::all_of(session->logits(), [](float x) { return std::isfinite(x); }));
}

TEST_P(WindowsAtAnyPolicy, TheBitsAreThoseOfTheFullCacheWhereNothingElseGoes) {
  auto engine = *MakeIts();
  auto session = Open(*engine, Options());
  Read(*session);
  Decode(*session, 0, 150);
  static const uint64_t kFull = [] {
    auto full_engine = WindowEngine({.threads = 1, .prefill_chunk = 64});
    auto full = Open(*full_engine);
    Read(*full);
    Decode(*full, 0, 150);
    return full->logits_hash();
  }();
  if (GetParam().is_exact) {
    EXPECT_EQ(session->logits_hash(), kFull);
  } else {
    EXPECT_NE(session->logits_hash(), kFull);
  }
}

TEST_P(WindowsAtAnyPolicy, ASavedOrForkedSessionGoesOnBitForBit) {
  const TempFolder folder;
  const std::string path = folder.File("session.ebb");
  auto engine = *MakeIts();
  auto session = Open(*engine, Options());
  Read(*session);
  Decode(*session, 0, 60);
  ExpectOk(SaveSession(*session, path, ""));
  auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  auto other_engine = *MakeIts();
  auto resumed = ResumeSession(*other_engine, path, Options());
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  for (Session* one : {session.get(), fork->get(), resumed->session.get()}) Decode(*one, 60, 150);
  EXPECT_EQ((*fork)->logits_hash(), session->logits_hash());
  EXPECT_EQ(resumed->session->logits_hash(), session->logits_hash());
  EXPECT_EQ(AllRows(resumed->session->accounting()), AllRows(session->accounting()));
}

// R-KV works its scores out when it is asked for them, after rows have left their windows.
TEST(Windows, RkvScoresTheRowsOfEveryStep) {
  constexpr size_t kLast = 8;  // of the queries, whose rows score 1
  auto engine = WindowEngine();
  auto session = Open(*engine, PolicySpec{.name = "rkv", .budget = *ParseBudget("1000")});
  const std::vector<Token> tokens = SomeTokens(70);
  ExpectOk(session->Prefill(std::span(tokens).first(60)));
  for (size_t i = 60; i < tokens.size(); ++i) {
    ExpectOk(session->Decode(tokens[i]));
    EXPECT_EQ(session->last_step().rows_evicted, 3 * kWindowKvHeads);
    for (int group = 0; group < kWindowLayers * kWindowKvHeads; ++group) {
      const auto scores = Internals::SequenceOf(*session).settler().ScoresOf(group);
      const bool has_window = group / kWindowKvHeads != kGlobal;
      ASSERT_EQ(scores.size(), has_window ? kWindow - 1 : i + 1);
      for (const float score : scores.last(kLast)) ASSERT_EQ(score, 1) << group << " at " << i;
      for (const float score : scores.first(scores.size() - kLast)) {
        ASSERT_TRUE(score < 1 && score != 0) << group << " at " << i;
      }
    }
  }
}

TEST(Windows, TheLedgerTellsWhenARowLeftItsWindow) {
  auto engine = WindowEngine({.threads = 1, .prefill_chunk = 64});
  SessionOptions options;
  options.ledger = SessionOptions::Record::kYes;
  auto session = Open(*engine, options);
  const std::vector<Token> tokens = SomeTokens(110);
  ExpectOk(session->Prefill(std::span(tokens).first(100)));
  for (size_t i = 100; i < tokens.size(); ++i) ExpectOk(session->Decode(tokens[i]));
  const Ledger& ledger = *session->ledger();
  for (int layer = 0; layer < kWindowLayers; ++layer) {
    std::vector<Position> there;
    for (Position p = 0; p < ledger.next_position(); ++p) {
      if (ledger.tiers(layer)[p] != Tier::kT3) there.push_back(p);
    }
    // From the window before the end of the first chunk on, which is a checkpoint.
    const Position first = (OtherDevice() != nullptr ? 110 : 64) - kWindow + 1;
    EXPECT_EQ(there, Range(layer == kGlobal ? 0 : first, 110));
  }
  EXPECT_EQ(ledger.rows(Tier::kT3), session->accounting().rows_evicted);
}

// What a roll-back needs is there as long as no row has left a window.
TEST(Windows, ATextOfAWindowsLengthIsNotRolledBackButForgotten) {
  const std::vector<Token> tokens = SomeTokens(100);
  auto engine = WindowEngine();
  auto session = Open(*engine);
  ExpectOk(session->Prefill(std::span(tokens).first(kWindow - 1)));
  EXPECT_TRUE(session->CanTruncateTo(20));
  ExpectOk(session->TruncateTo(20));
  ExpectOk(session->Prefill(std::span(tokens).subspan(20, 40)));
  for (int i = 60; i < 100; ++i) ExpectOk(session->Decode(tokens[i]));
  const std::vector<float> before = Logits(*session);
  EXPECT_FALSE(session->CanTruncateTo(99));
  const Status refused = session->TruncateTo(99);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("cannot roll back from 100 tokens to 99"));
  EXPECT_THAT(refused.message(), HasSubstr("a sliding window of 40 tokens have evicted rows that "
                                           "would be visible again"));
  EXPECT_EQ(session->next_position(), 100);
  EXPECT_EQ(Logits(*session), before);
  ExpectOk(session->TruncateTo(100));
  EXPECT_TRUE(session->CanTruncateTo(0));
  EXPECT_FALSE(session->CanTruncateTo(-1));
  EXPECT_FALSE(session->CanTruncateTo(101));
  ExpectOk(session->TruncateTo(0));
  EXPECT_EQ(session->accounting().tiers[0].rows, 0);
  auto fresh = Open(*engine);
  ExpectOk(session->Prefill(tokens));
  ExpectOk(fresh->Prefill(tokens));
  EXPECT_EQ(Logits(*session), Logits(*fresh));
}

TEST(Windows, ASessionGoesBackToItsCheckpoints) {
  EBB_CPU_ONLY("a device keeps no rows behind windows");
  const std::vector<Token> tokens = SomeTokens(400);
  auto engine = WindowEngine({.threads = 1, .prefill_chunk = 64});
  auto session = Open(*engine);
  const auto prefill = [&](Session& one, int begin, int end) {
    ExpectOk(one.Prefill(std::span(tokens).subspan(begin, end - begin)));
  };
  const auto decode = [&](Session& one, int begin, int end) {
    for (int i = begin; i < end; ++i) ExpectOk(one.Decode(tokens[i]));
  };
  prefill(*session, 0, 150);
  decode(*session, 150, 250);
  const std::vector<float> first = Logits(*session);
  prefill(*session, 250, 300);
  decode(*session, 300, 380);
  const std::vector<float> second = Logits(*session);
  EXPECT_EQ(session->NearestTruncation(379), 300);
  EXPECT_EQ(session->NearestTruncation(297), 250) << "the end of the first answer";
  EXPECT_EQ(session->NearestTruncation(249), 150);
  EXPECT_EQ(session->NearestTruncation(127), 64) << "the end of the first chunk";
  EXPECT_EQ(session->NearestTruncation(63), 0);
  ExpectOk(session->TruncateTo(300));
  decode(*session, 10, 90);  // another answer
  ExpectOk(session->TruncateTo(300));
  decode(*session, 300, 380);
  EXPECT_EQ(Logits(*session), second);
  // Forks and files have the rows too.
  const TempFolder folder;
  ExpectOk(SaveSession(*session, folder.File("session"), ""));
  auto resumed = ResumeSession(*engine, folder.File("session"), {});
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  for (Session* one : {session.get(), fork->get(), resumed->session.get()}) {
    ExpectOk(one->TruncateTo(150));
    decode(*one, 150, 250);
    EXPECT_EQ(Logits(*one), first);
    prefill(*one, 250, 300);
    decode(*one, 300, 380);
    EXPECT_EQ(Logits(*one), second);
  }
}

// 128 pages of memory: the global layers of both take 112 of them at the end, their windows 6 to 12
// each, and ways back some more.
TEST(Windows, RowsForGoingBackMakeRoomWhereMemoryIsCapped) {
  EBB_CPU_ONLY("a device keeps no rows behind windows");
  const std::vector<Token> tokens = SomeTokens(2040);
  auto engine = WindowEngine({.threads = 1, .kv_cap_bytes = 2 << 20});
  auto first = Open(*engine), second = Open(*engine);
  const auto decode_to = [&](Session& session, size_t end) {
    if (session.next_position() == 0) ExpectOk(session.Prefill(std::span(tokens).first(30)));
    Status status;
    while (session.next_position() < static_cast<Position>(end) && status.ok()) {
      status = session.Decode(tokens[session.next_position()]).status;
    }
    return status;
  };
  ExpectOk(decode_to(*first, 1500));
  ExpectOk(decode_to(*second, 1400));
  EXPECT_EQ(second->NearestTruncation(30), 30);
  EXPECT_FALSE(decode_to(*second, 2040).ok());
  EXPECT_GT(second->next_position(), 1500);
  EXPECT_EQ(second->NearestTruncation(30), 0);
  EXPECT_EQ(first->NearestTruncation(30), 30);
}

TEST(Windows, APromptThatDiffersBehindAWindowIsReadAnew) {
  const auto engine = WindowEngine();
  const auto session = Open(*engine);
  const std::vector<Token> tokens = SomeTokens(3 * kWindow);
  ExpectOk(session->Prefill(tokens));
  std::vector<Token> longer = tokens;
  longer.push_back(5);
  EXPECT_EQ(CommonPrefix(*session, longer), tokens.size());
  std::vector<Token> other = longer;
  other[2 * kWindow] = (other[2 * kWindow] + 1) % 100;
  EXPECT_EQ(CommonPrefix(*session, other), 0u);
  const auto left = KeepPrefix(other, session.get());
  ASSERT_TRUE(left.ok()) << left.status().ToString();
  EXPECT_EQ(left->size(), other.size());
  ExpectOk(session->Prefill(*left));
  const auto fresh = Open(*engine);
  ExpectOk(fresh->Prefill(other));
  EXPECT_EQ(Logits(*session), Logits(*fresh));
}

TEST(Windows, WhatASessionWillTakeIsCountedLayerByLayer) {
  const auto engine = WindowEngine({.threads = 1, .prefill_chunk = 64});
  constexpr int kPrompt = 200, kMost = 1500;
  const auto needs = engine->CountNeeds({}, kPrompt, kMost);
  ASSERT_TRUE(needs.ok()) << needs.status().ToString();
  const auto session = Open(*engine);
  ExpectOk(session->Prefill(SomeTokens(kPrompt)));
  size_t peak = engine->arena_accounting().used_bytes;
  for (const Token token : SomeTokens(kMost - kPrompt, 2)) {
    ExpectOk(session->Decode(token));
    peak = std::max(peak, engine->arena_accounting().used_bytes);
  }
  EXPECT_LE(peak, needs->t0_bytes);
  // Rows of windows take three pages of each stream at the most, the global layer's 24.
  EXPECT_LE(needs->t0_bytes, 2 * peak);
}

TEST(Windows, MarkedRowsGoBesides) {
  const std::shared_ptr<const Model> model = RandomModel(WindowOptions(/*eviction_window=*/24));
  const std::vector<Token> tokens = SomeTokens(160);
  std::vector<std::vector<Position>> of_steps;
  for (const int chunk : {512, 13, 7}) {
    auto engine =
        MakeEngineOf(model, {.threads = 1, .kv_type = RowType::kF32, .prefill_chunk = chunk});
    auto session = Open(*engine, PolicySpec{.name = "dms"});
    ExpectOk(session->Prefill(std::span(tokens).first(120)));
    for (size_t i = 120; i < tokens.size(); ++i) ExpectOk(session->Decode(tokens[i]));
    std::vector<std::vector<Position>> visible;
    for (int group = 0; group < kWindowLayers * kWindowKvHeads; ++group) {
      visible.push_back(Visible(*session, group));
      if (group / kWindowKvHeads == kGlobal) continue;
      EXPECT_GT(visible.back().front(), 160 - kWindow);
      EXPECT_LT(visible.back().size(), size_t{kWindow - 1})
          << "no row is marked in group " << group;
    }
    if (of_steps.empty()) of_steps = visible;
    EXPECT_EQ(visible, of_steps) << chunk;
  }
}

TEST(Windows, WhatCannotGoWithThemIsRefused) {
  auto engine = WindowEngine();
  const auto refusal = [&](const SessionOptions& options) {
    const auto session = engine->OpenSession(options);
    EXPECT_EQ(session.status().code(), StatusCode::kUnsupported);
    return session.status().message();
  };
  SessionOptions options;
  options.policy = {.name = "attention", .budget = *ParseBudget("200")};
  EXPECT_THAT(refusal(options), HasSubstr("\"attention\" decides about all layers together"));
  EXPECT_THAT(refusal(options), HasSubstr("choose granularity layer or head"));
  options.policy.granularity = Granularity::kLayer;
  EXPECT_TRUE(engine->OpenSession(options).ok());
  options.past_context = PastContext::kReRotate;
  EXPECT_THAT(refusal(options), HasSubstr("keys cannot be re-rotated in models with sliding"));
  options.past_context = PastContext::kRefuse;
  options.lossless.emplace();
  EXPECT_THAT(refusal(options), HasSubstr("lossless sessions are not supported by models with"));
  SessionOptions own;
  own.make_policy = [](const PolicyContext& context) {
    return MakePolicy({.name = "full", .granularity = Granularity::kToken}, context);
  };
  EXPECT_THAT(refusal(own), HasSubstr("granularity token"));
}

}  // namespace
}  // namespace ebb
