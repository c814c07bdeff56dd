// Tests pebble with its trained layer for multi-token prediction (MTP): the text and its logits are
// those of plain decoding and of pebble.gguf, and most guesses are right.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/lab/pebble.h"
#include "ebb/model.h"
#include "ebb/sampler.h"

namespace ebb {
namespace {

constexpr char kFolder[] = EBB_SOURCE_DIR "/training/pebble/";
constexpr int kGuesses = 3;

struct Answer {
  std::vector<Token> tokens;
  uint64_t hash = 0;
  SpeculationReport report;
};

std::unique_ptr<Engine> EngineOf(const std::string& file, bool loads_mtp) {
  auto model = Model::Load({.path = kFolder + file, .loads_mtp = loads_mtp});
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  auto engine = Engine::Create(*model, {.threads = 1});
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}

// Answers a question greedily.
Answer Ask(Engine& engine, std::span<const Token> question, const SessionOptions& options) {
  auto session = engine.OpenSession(options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  Session& own = **session;
  EXPECT_TRUE(own.Prefill(question).status.ok());
  auto sampler = Sampler::Create(engine.model(), {.temperature = 0});
  EXPECT_TRUE(sampler.ok());
  Generation generation(&own, sampler->get(), {.max_tokens = 1500});
  while (const std::optional<Token> token = generation.Next()) {
    generation.Appended(own.Decode(*token, generation.Guesses(), generation.most_guesses()));
  }
  const GenerateResult result = generation.End();
  EXPECT_TRUE(result.error.ok()) << result.error.ToString();
  EXPECT_TRUE(std::ranges::all_of(own.logits(), [](float x) { return std::isfinite(x); }));
  return {result.answer.tokens, own.logits_hash(), own.speculation_report()};
}

TEST(PebbleMtp, GuessesRightAndChangesNoBit) {
  const auto pebble = EngineOf("pebble.gguf", false), plain = EngineOf("pebble-mtp.gguf", false),
             mtp = EngineOf("pebble-mtp.gguf", true);
  const SessionOptions guessing = {
      .speculation = Speculation::kMtp, .least_guesses = kGuesses, .most_guesses = kGuesses};
  int64_t drafted = 0, accepted = 0;
  for (uint64_t number = 0; number < 6; ++number) {
    const PebbleProblem problem = MakePebbleProblem(12, number);
    const std::vector<Token> question(problem.tokens.begin(),
                                      problem.tokens.begin() + problem.num_question_tokens);
    const Answer expected = Ask(*plain, question, {});
    const Answer found = Ask(*mtp, question, guessing);
    EXPECT_EQ(found.tokens, expected.tokens) << number;
    EXPECT_EQ(found.hash, expected.hash) << number;
    EXPECT_EQ(Ask(*pebble, question, {}).tokens, expected.tokens) << number;
    EXPECT_EQ(found.report.drafted, found.report.drafted_by_source);
    drafted += found.report.drafted_by_source;
    accepted += found.report.accepted_by_source;
  }
  EXPECT_GT(static_cast<double>(accepted), 0.8 * static_cast<double>(drafted));
}

}  // namespace
}  // namespace ebb
