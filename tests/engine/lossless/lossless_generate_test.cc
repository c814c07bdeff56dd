// What ends answers and turns of a lossless session falls where the full cache's falls, and leaves
// the bits of the full cache behind, wherever in a run of drafted tokens it comes.
#include <atomic>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ebb/generate.h"
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE(
    "tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");

constexpr int kTurnPromptTokens = 40;
constexpr int kTurns = 4;

struct EndCase {
  std::string name;
  GenerateOptions options;
  std::string grammar;
  FinishReason ends_by = FinishReason::kLength;
};

// The end of a text that the full cache writes, so that a stop string has something to find.
std::string EndOfText(int num_tokens) {
  auto engine = MakeEngine();
  auto session = Open(*engine);
  ExpectOk(session->Prefill(SomeTokens(kTurnPromptTokens, 1)));
  auto sampler = *Sampler::Create(*SmallModel(), {.seed = 3});
  const GenerateResult result = Generate(
      *session, *sampler, {.max_tokens = num_tokens, .on_end = GenerateOptions::OnEnd::kIgnore});
  EXPECT_GT(result.text.size(), 4U);
  return result.text.substr(result.text.size() - 4);
}

std::vector<EndCase> EndCases() {
  const GenerateOptions endless = {.max_tokens = 120, .on_end = GenerateOptions::OnEnd::kIgnore};
  std::vector<EndCase> cases = {
      {.name = "Length", .options = endless, .grammar = ""},
      {.name = "StopString",
       .options = endless,
       .grammar = "",
       .ends_by = FinishReason::kStopString},
      {.name = "Grammar",
       .options = {.max_tokens = 300},
       .grammar = R"(root ::= (("ebb " | "flow " | "tide " | "moon ") ("of " | "and ")){12} "sea")",
       .ends_by = FinishReason::kStop},
      {.name = "ThinkingBudget", .options = endless, .grammar = ""},
  };
  cases[1].options.stops = {"nowhere in it", EndOfText(53)};
  cases[3].options.thinking_start = "<think>";
  cases[3].options.thinking_end = "</think>";
  cases[3].options.opens_in_thinking = true;
  cases[3].options.thinking_budget = 37;
  return cases;
}

class LosslessGenerate : public testing::TestWithParam<EndCase> {};

struct Talk {
  std::vector<GenerateResult> turns;
  std::vector<uint64_t> hashes;
  int ended_ahead = 0;  // turns that ended before tokens that were drafted and verified
  LosslessReport report;
};

Talk TalkIn(const EngineOptions& engine_options, const SessionOptions& options) {
  const EndCase& with = LosslessGenerate::GetParam();
  auto engine = MakeEngine(engine_options);
  auto session = Open(*engine, options);
  Talk talk;
  for (int turn = 0; turn < kTurns; ++turn) {
    ExpectOk(session->Prefill(SomeTokens(kTurnPromptTokens, 1 + turn)));
    auto sampler = *Sampler::Create(
        *SmallModel(),
        {.repeat_penalty = 1.2F, .seed = uint64_t(3 + turn), .grammar = with.grammar});
    if (turn == 0) sampler = *Sampler::Create(*SmallModel(), {.seed = 3, .grammar = with.grammar});
    talk.turns.push_back(Generate(*session, *sampler, with.options));
    talk.hashes.push_back(session->logits_hash());
    talk.ended_ahead += session->drafted().empty() ? 0 : 1;
  }
  if (const LosslessReport* report = session->lossless_report()) talk.report = *report;
  return talk;
}

TEST_P(LosslessGenerate, TurnsEndAsTheFullCachesWithItsBits) {
  const Talk full = TalkIn({.threads = 1}, {});
  EXPECT_EQ(full.turns.front().finish_reason, GetParam().ends_by);
  EXPECT_GE(full.turns.front().thought_tokens, GetParam().options.thinking_budget);
  int ended_ahead = 0;
  int64_t accepted = 0, rejected = 0;
  for (const auto& [draft_min, draft_max] : {std::pair(2, 5), {8, 8}, {20, 64}}) {
    const Talk lossless =
        TalkIn({.threads = 1, .tiers = EngineTiers{.t1 = T1Place::kHost}},
               {.policy = {.name = "streaming", .sinks = 4, .window = 30},
                .lossless = LosslessOptions{.draft_min = draft_min, .draft_max = draft_max}});
    for (int turn = 0; turn < kTurns; ++turn) {
      const GenerateResult& result = lossless.turns[turn];
      const GenerateResult& expected = full.turns[turn];
      EXPECT_EQ(result.finish_reason, expected.finish_reason) << turn << ", " << draft_max;
      EXPECT_EQ(result.text, expected.text) << turn << ", " << draft_max;
      EXPECT_EQ(result.answer.tokens, expected.answer.tokens) << turn << ", " << draft_max;
      EXPECT_EQ(result.thought_tokens, expected.thought_tokens) << turn << ", " << draft_max;
      EXPECT_EQ(result.decode_steps, expected.decode_steps) << turn << ", " << draft_max;
      EXPECT_EQ(lossless.hashes[turn], full.hashes[turn]) << turn << ", " << draft_max;
    }
    ended_ahead += lossless.ended_ahead;
    accepted += lossless.report.accepted;
    rejected += lossless.report.drafted - lossless.report.accepted;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
  // A grammar tells the draft where it ends, a length too.
  if (GetParam().ends_by == FinishReason::kStopString) {
    EXPECT_GT(ended_ahead, 0);
  }
}

// In the middle of a run: it is verified as far as it is drafted, and nothing of it is shown.
TEST(LosslessCancel, EndsADraft) {
  auto full_engine = MakeEngine({.threads = 1});
  auto full = Open(*full_engine);
  auto engine = MakeEngine({.threads = 1, .tiers = EngineTiers{.t1 = T1Place::kHost}});
  std::atomic<bool> cancel = false;
  int steps_after = 0;
  SessionOptions options = {.policy = {.name = "streaming", .sinks = 4, .window = 30},
                            .lossless = LosslessOptions{.draft_min = 40, .looks_up = false}};
  options.extra_signals = {.num_recent_queries = 1};
  options.on_signals = [&](int group, std::span<const Position>, const GroupSignals&,
                           const StepSignals& step) {
    if (group != 0 || step.kind == StepKind::kPrefill) return;
    if (cancel) ++steps_after;
    if (step.first_position >= kTurnPromptTokens + 20) cancel = true;
  };
  auto session = Open(*engine, options);
  for (Session* one : {full.get(), session.get()}) {
    ExpectOk(one->Prefill(SomeTokens(kTurnPromptTokens)));
  }
  auto sampler = *Sampler::Create(*SmallModel(), {.seed = 3});
  const GenerateResult result =
      Generate(*session, *sampler,
               {.max_tokens = 120, .on_end = GenerateOptions::OnEnd::kIgnore, .cancel = &cancel});
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_LE(steps_after, 0);
  for (const Token token : result.answer.tokens) ExpectOk(full->Decode(token));
  EXPECT_EQ(session->logits_hash(), full->logits_hash());
}

INSTANTIATE_TEST_SUITE_P(Ends, LosslessGenerate, testing::ValuesIn(EndCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb
