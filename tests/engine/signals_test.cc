// Signals show what the step did, and only when somebody asked.
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "src/session/session_impl.h"
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

// Records what it sees; scores are all alike.
class Recorder final : public Scorer {
 public:
  explicit Recorder(const SignalNeeds& needs) : needs_(needs) {}
  [[nodiscard]] std::string Name() const override { return "recorder"; }
  [[nodiscard]] SignalNeeds Needs() const override { return needs_; }
  void Append(int group, std::span<const Position> positions) override {
    rows[group] += positions.size();
  }
  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    ++observed;
    EXPECT_EQ(static_cast<size_t>(signals.num_rows), rows[group]);
    EXPECT_EQ(signals.mass.size(), static_cast<size_t>(signals.num_mass_heads) * signals.num_rows);
    masses[group].assign(signals.mass.begin(), signals.mass.end());
    if (first_prompts_over == 0) ++observed_in_first_prompt;
    layers_counted = signals.num_layers_counted;
    last = step;
  }
  void Retain(int group, std::span<const uint32_t> kept) override { rows[group] = kept.size(); }
  void EndFirstPrefill() override { ++first_prompts_over; }
  [[nodiscard]] std::span<const float> Scores(int group) override {
    scores_.assign(rows[group], 0.0f);
    return scores_;
  }

  std::map<int, size_t> rows;
  std::map<int, std::vector<float>> masses;
  int observed = 0;
  int first_prompts_over = 0;
  int observed_in_first_prompt = 0;
  int layers_counted = 0;
  StepSignals last;

 private:
  const SignalNeeds needs_;
  std::vector<float> scores_;
};

// Asks for scores, moves nothing.
class Still final : public Placement {
 public:
  [[nodiscard]] std::string Name() const override { return "still"; }
  [[nodiscard]] bool NeedsScores() const override { return true; }
  [[nodiscard]] bool Due(const PlacementInput&, size_t) const override { return false; }
  void Place(const PlacementInput&, std::vector<Move>*) override {}
};

// Reads the rows of a fixed list, in every layer.
class FixedRows final : public Selector {
 public:
  explicit FixedRows(std::vector<RowRange> rows) : rows_(std::move(rows)) {}
  [[nodiscard]] std::string Name() const override { return "fixed"; }
  [[nodiscard]] SignalNeeds Needs() const override { return {}; }
  void Append(int, std::span<const Position>) override {}
  void Retain(int, std::span<const uint32_t>) override {}
  void Select(int, int, std::span<const float> q, std::vector<RowRange>* rows) override {
    EXPECT_EQ(q.size(), size_t{3} * 64);
    *rows = rows_;
  }
  [[nodiscard]] size_t NumRows(int) const override { return 0; }

 private:
  const std::vector<RowRange> rows_;
};

struct Watched {
  std::unique_ptr<Session> session;
  Recorder* recorder = nullptr;
};

Watched Watch(Engine& engine, Granularity granularity, const SignalNeeds& needs,
              std::vector<RowRange> selected = {}) {
  Watched watched;
  SessionOptions options;
  options.make_policy = [&](const PolicyContext&) -> Result<Policy> {
    auto recorder = std::make_unique<Recorder>(needs);
    watched.recorder = recorder.get();
    Policy policy = {.name = "watched", .granularity = granularity};
    policy.scorer = std::move(recorder);
    policy.placement = std::make_unique<Still>();
    if (!selected.empty()) policy.selector = std::make_unique<FixedRows>(selected);
    return policy;
  };
  watched.session = Open(engine, options);
  return watched;
}

double Sum(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Counts how often each part of its work was done.
class Divided final : public Scorer {
 public:
  static constexpr int kParts = 17;
  explicit Divided(RunParts run_parts) : done(kParts), run_parts_(std::move(run_parts)) {}
  [[nodiscard]] std::string Name() const override { return "divided"; }
  [[nodiscard]] SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }
  void Append(int, std::span<const Position> positions) override { rows_ += positions.size(); }
  void ObserveGroup(int, const GroupSignals&, const StepSignals&) override {
    run_parts_(kParts, [this](int part) { ++done[part]; });
  }
  void Retain(int, std::span<const uint32_t> kept) override { rows_ = kept.size(); }
  [[nodiscard]] std::span<const float> Scores(int) override {
    scores_.assign(rows_, 0.0f);
    return scores_;
  }

  std::vector<int> done;  // by part

 private:
  const RunParts run_parts_;
  size_t rows_ = 0;
  std::vector<float> scores_;
};

constexpr int kSignalLayers = 2, kQHeads = 6, kSignalKvHeads = 2, kPrompt = 200;

TEST(Signals, MassOfADecodeStepSumsToTheQueryHeadsOfTheGroup) {
  for (const Granularity granularity :
       {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    for (const MassNeed need : {MassNeed::kSummed, MassNeed::kPerKvHead, MassNeed::kPerQueryHead}) {
      auto engine = MakeEngine({.threads = 2});
      Watched watched = Watch(*engine, granularity, {.mass = need});
      ExpectOk(watched.session->Prefill(SomeTokens(kPrompt)));
      EXPECT_TRUE(watched.recorder->masses[0].empty()) << "mass of prefill was not asked for";
      ExpectOk(watched.session->Decode(5));
      const int groups = SmallModel()->shape().NumGroups(granularity);
      for (int group = 0; group < groups; ++group) {
        EXPECT_NEAR(Sum(watched.recorder->masses[group]), kSignalLayers * kQHeads / groups, 1e-4);
      }
      EXPECT_EQ(watched.recorder->layers_counted,
                granularity == Granularity::kToken ? kSignalLayers : 1);
    }
  }
}

TEST(Signals, EveryPartOfAScorersWorkIsDoneOnce) {
  for (const int threads : {1, 2, 3}) {
    auto engine = MakeEngine({.threads = threads});
    Divided* scorer = nullptr;
    SessionOptions options;
    options.make_policy = [&](const PolicyContext& context) -> Result<Policy> {
      auto divided = std::make_unique<Divided>(context.run_parts);
      scorer = divided.get();
      Policy policy = {.name = "divided"};
      policy.scorer = std::move(divided);
      policy.placement = std::make_unique<Still>();
      return policy;
    };
    auto session = Open(*engine, options);
    ExpectOk(session->Prefill(SomeTokens(kPrompt)));
    const int before = scorer->done.front();
    for (int step = 0; step < 5; ++step) ExpectOk(session->Decode(5));
    EXPECT_EQ(scorer->done, std::vector<int>(Divided::kParts, before + 5)) << threads;
  }
}

TEST(Signals, MassOfAPrefillSumsOverItsQueriesAndIsCausal) {
  auto engine = MakeEngine({.threads = 2});
  Watched watched = Watch(*engine, Granularity::kLayer,
                          {.mass = MassNeed::kPerQueryHead, .mass_in_prefill = true});
  ExpectOk(watched.session->Prefill(SomeTokens(kPrompt)));
  for (int layer = 0; layer < kSignalLayers; ++layer) {
    const std::vector<float>& mass = watched.recorder->masses[layer];
    ASSERT_EQ(mass.size(), size_t{kQHeads} * kPrompt);
    for (int head = 0; head < kQHeads; ++head) {
      const std::vector<float> rows(mass.begin() + head * kPrompt,
                                    mass.begin() + (head + 1) * kPrompt);
      EXPECT_NEAR(Sum(rows), kPrompt, 1e-2);
      // Row i is seen by the queries from i on, each giving at most 1.
      for (int i = 0; i < kPrompt; ++i) EXPECT_LE(rows[i], kPrompt - i + 1e-3);
      EXPECT_GE(rows[0], 1.0f - 1e-4) << "the first query sees the first row alone";
    }
  }
}

TEST(Signals, TheSumOverHeadsIsTheSummedMass) {
  auto engine = MakeEngine();
  Watched summed = Watch(*engine, Granularity::kToken, {.mass = MassNeed::kSummed});
  Watched finer = Watch(*engine, Granularity::kToken, {.mass = MassNeed::kPerQueryHead});
  for (Watched* watched : {&summed, &finer}) {
    ExpectOk(watched->session->Prefill(SomeTokens(kPrompt)));
    ExpectOk(watched->session->Decode(5));
  }
  const size_t rows = kPrompt + 1;
  ASSERT_EQ(finer.recorder->masses[0].size(), kSignalLayers * kQHeads * rows);
  for (size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (size_t head = 0; head < kSignalLayers * kQHeads; ++head) {
      sum += finer.recorder->masses[0][head * rows + row];
    }
    EXPECT_NEAR(summed.recorder->masses[0][row], sum, 1e-5);
  }
}

TEST(Signals, WhatNobodyAskedForIsNotComputed) {
  auto engine = MakeEngine();
  auto session = Open(*engine);
  ExpectOk(session->Prefill(SomeTokens(20)));
  ExpectOk(session->Decode(5));
  EXPECT_FALSE(session->last_step().mass_computed);
  EXPECT_TRUE(session->last_signals().keys.empty());
  EXPECT_TRUE(session->last_signals().hidden.empty());
  EXPECT_TRUE(session->last_signals().recent_queries.empty());
}

TEST(Signals, CopiesHaveTheirShapesAndFitTogether) {
  auto engine = MakeEngine({.threads = 2, .kv_type = RowType::kF32});
  Watched watched = Watch(*engine, Granularity::kToken,
                          {.num_recent_queries = 4,
                           .hidden_layers = {0, 1},
                           .keys = true,
                           .keys_before_rope = true,
                           .values = true});
  ExpectOk(watched.session->Prefill(SomeTokens(30)));
  EXPECT_EQ(watched.recorder->last.num_recent, 4);
  ExpectOk(watched.session->Decode(5));
  const StepSignals& step = watched.recorder->last;
  EXPECT_EQ(step.first_position, 30);
  ASSERT_EQ(step.keys.size(), size_t{kSignalLayers});
  ASSERT_EQ(step.hidden.size(), 2u);
  EXPECT_EQ(step.hidden[0].size(), 128u);
  EXPECT_EQ(step.recent_queries[1].size(), size_t{4} * kQHeads * 64);
  for (int layer = 0; layer < kSignalLayers; ++layer) {
    ASSERT_EQ(step.keys[layer].size(), size_t{kSignalKvHeads} * 64);
    ASSERT_EQ(step.values[layer].size(), size_t{kSignalKvHeads} * 64);
    // A rotation keeps lengths and changes what it turns.
    double before = 0, after = 0, difference = 0;
    for (size_t i = 0; i < step.keys[layer].size(); ++i) {
      before += std::pow(step.keys_before_rope[layer][i], 2);
      after += std::pow(step.keys[layer][i], 2);
      difference += std::fabs(step.keys[layer][i] - step.keys_before_rope[layer][i]);
    }
    EXPECT_NEAR(before, after, 1e-3 * before);
    EXPECT_GT(difference, 1e-2);
  }
}

TEST(Signals, RecentQueriesMoveUpByOneEachStep) {
  auto engine = MakeEngine();
  Watched watched = Watch(*engine, Granularity::kToken, {.num_recent_queries = 3});
  ExpectOk(watched.session->Prefill(SomeTokens(10)));
  const size_t query = size_t{kQHeads} * 64;
  const auto before = watched.recorder->last.recent_queries[1];
  const std::vector<float> newest(before.end() - query, before.end());
  ExpectOk(watched.session->Decode(5));
  const auto after = watched.recorder->last.recent_queries[1];
  EXPECT_TRUE(std::equal(newest.begin(), newest.end(), after.begin() + query));
}

TEST(Signals, ThatCannotBeAreRefused) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.extra_signals.hidden_layers = {kSignalLayers};
  EXPECT_EQ(engine->OpenSession(options).status().Text(),
            fmt::format("hidden_layers: expected layers 0 to {}, found {}", kSignalLayers - 1,
                        kSignalLayers));
  options.extra_signals.hidden_layers = {-1};
  EXPECT_FALSE(engine->OpenSession(options).ok());
  options.extra_signals = {.num_recent_queries = -1};
  EXPECT_THAT(engine->OpenSession(options).status().Text(),
              testing::MatchesRegex("num_recent_queries: expected 0 to the context, [0-9]+, found "
                                    "-1"));
}

TEST(FirstPrompt, EndsOnceAndBeforeAGeneratedTokenIsSeen) {
  const auto engine = MakeEngine();
  const SignalNeeds needs = {.mass = MassNeed::kSummed};
  const std::vector<Token> prompt = SomeTokens(20);
  // The usual case: the generated tokens follow the prompt.
  const Watched usual = Watch(*engine, Granularity::kToken, needs);
  ExpectOk(usual.session->Prefill(prompt));
  EXPECT_EQ(usual.recorder->first_prompts_over, 1);
  ExpectOk(usual.session->Decode(5));
  ExpectOk(usual.session->Prefill(prompt));
  EXPECT_EQ(usual.recorder->first_prompts_over, 1);
  EXPECT_EQ(usual.recorder->observed_in_first_prompt, 1);
  // Without one, a later prompt is not the first.
  const Watched without = Watch(*engine, Granularity::kToken, needs);
  ExpectOk(without.session->Decode(5));
  EXPECT_EQ(without.recorder->first_prompts_over, 1);
  EXPECT_EQ(without.recorder->observed_in_first_prompt, 0);
  ExpectOk(without.session->Prefill(prompt));
  EXPECT_EQ(without.recorder->first_prompts_over, 1);
}

TEST(FirstPrompt, OneThatWasGivenUpEndsWhereATokenIsGenerated) {
  const auto engine = MakeEngine();
  const Watched watched = Watch(*engine, Granularity::kToken, {.mass = MassNeed::kSummed});
  ExpectOk(watched.session->BeginPrompt(SomeTokens(100)));
  SessionStep part[] = {{.session = watched.session.get(), .most_prompt_tokens = 40}};
  ExpectOk(engine->Step(part));
  ASSERT_EQ(watched.session->next_position(), 40);
  ExpectOk(watched.session->TruncateTo(30));
  EXPECT_EQ(watched.recorder->first_prompts_over, 0);
  ExpectOk(watched.session->Decode(5));
  EXPECT_EQ(watched.recorder->first_prompts_over, 1);
  ExpectOk(watched.session->Prefill(SomeTokens(20)));
  EXPECT_EQ(watched.recorder->first_prompts_over, 1);
}

TEST(FirstPrompt, APromptBehindGeneratedTokensLeavesTheirAttention) {
  const auto engine = MakeEngine();
  for (const char* policy : {"attention", "attention_mean", "thinkv"}) {
    PolicySpec spec = {.name = policy, .budget = *ParseBudget("1000")};
    const auto session = Open(*engine, spec);
    for (int i = 0; i < 10; ++i) ExpectOk(session->Decode(5));
    const StepSettler& settler = Internals::SequenceOf(*session).settler();
    const std::span<const float> now = settler.ScoresOf(0);
    const std::vector<float> before(now.begin(), now.end());
    ASSERT_EQ(before.size(), 10u) << policy;
    EXPECT_GT(before.front(), 0) << policy;
    ExpectOk(session->Prefill(SomeTokens(20)));
    const std::span<const float> behind = settler.ScoresOf(0).first(10);
    EXPECT_EQ(before, std::vector<float>(behind.begin(), behind.end())) << policy;
  }
}

TEST(Selection, OfEveryRowChangesNoBit) {
  auto engine = MakeEngine({.threads = 2});
  Watched selected =
      Watch(*engine, Granularity::kToken, {.mass = MassNeed::kSummed}, {{0, kPrompt + 1}});
  Watched plain = Watch(*engine, Granularity::kToken, {.mass = MassNeed::kSummed});
  for (Watched* watched : {&selected, &plain}) {
    ExpectOk(watched->session->Prefill(SomeTokens(kPrompt)));
    ExpectOk(watched->session->Decode(5));
  }
  EXPECT_EQ(Logits(*selected.session), Logits(*plain.session));
  // The mass of selected rows is summed over heads before it is scattered.
  for (size_t row = 0; row < kPrompt + 1; ++row) {
    EXPECT_NEAR(selected.recorder->masses[0][row], plain.recorder->masses[0][row], 1e-5);
  }
}

// The plan of a batch that mixes both must not serve a later step of one alone.
TEST(Selection, InABatchLeavesLaterStepsAlone) {
  auto engine = MakeEngine({.threads = 2});
  Watched selected = Watch(*engine, Granularity::kToken, {}, {{0, kPrompt / 2}});
  SessionOptions options;
  options.policy = {.name = "streaming", .budget = {Budget::Unit::kRows, 100}};
  auto batched = Open(*engine, options);
  auto alone = Open(*engine, options);
  for (Session* session : {selected.session.get(), batched.get(), alone.get()}) {
    ExpectOk(session->Prefill(SomeTokens(kPrompt)));
    ExpectOk(session->Decode(5));
  }
  for (int i = 0; i < 3; ++i) {
    Session* const both[] = {selected.session.get(), batched.get()};
    const Token tokens[] = {6, 7};
    ExpectOk(engine->DecodeBatch(both, tokens));
    ExpectOk(batched->Decode(8));
    ExpectOk(alone->Decode(7));
    ExpectOk(alone->Decode(8));
    EXPECT_LT(LargestDifference(Logits(*alone), Logits(*batched)), 2e-2) << i;
  }
}

TEST(Selection, ReadsTheChosenRowsOnlyAndFreesNothing) {
  auto engine = MakeEngine({.threads = 2});
  std::vector<RowRange> chosen;
  for (size_t row = 0; row <= kPrompt; row += 3) chosen.push_back({row, row + 1});
  Watched selected = Watch(*engine, Granularity::kToken, {.mass = MassNeed::kSummed}, chosen);
  ExpectOk(selected.session->Prefill(SomeTokens(kPrompt)));
  ExpectOk(selected.session->Decode(5));
  const std::vector<float>& mass = selected.recorder->masses[0];
  for (size_t row = 0; row < mass.size(); ++row) {
    EXPECT_EQ(mass[row] > 0, row % 3 == 0) << row;
  }
  EXPECT_NEAR(Sum(mass), kSignalLayers * kQHeads, 1e-4);
  EXPECT_EQ(selected.session->visible_positions(0).size(), size_t{kPrompt + 1});
  const auto unread = static_cast<int64_t>(kPrompt + 1 - chosen.size());
  EXPECT_EQ(selected.session->last_step().rows_unread, unread * kSignalLayers * kSignalKvHeads);
  ExpectOk(selected.session->Decode(5));
  EXPECT_EQ(selected.session->last_step().rows_unread,
            (unread + 1) * kSignalLayers * kSignalKvHeads);
}

}  // namespace
}  // namespace ebb
