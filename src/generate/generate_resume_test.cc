// Checks that an answer which is cut after any of its tokens and continued has the same text, and
// that each byte is shown once.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ebb/generate.h"
#include "ebb/state.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

struct Outcome {
  std::string thought, answer;
  FinishReason finish = FinishReason::kError;
  int generated = 0;
  uint64_t hash = 0;
  bool operator==(const Outcome&) const = default;
};

class GenerateResume : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const TempFolder folder;
    const Status status = WriteRandomGguf({.num_layers = 1}, folder.File("model.gguf"));
    ASSERT_TRUE(status.ok()) << status.ToString();
    model_ = *Model::Load({.path = folder.File("model.gguf")});
    engine_ = *Engine::Create(model_, {.threads = 1});
  }
  static void TearDownTestSuite() {
    engine_.reset();
    model_.reset();
  }

  // Generates parts[i] tokens at a time, each part with a new sampler, as another process would.
  // The last part generates to the end of the answer.
  static Outcome Run(const SamplingOptions& sampling, GenerateOptions options,
                     const std::vector<int>& parts) {
    auto session = *engine_->OpenSession({});
    const auto prompt =
        model_->Tokenize("hello", Model::AddBos::kAsModelSays, Model::Specials::kParse);
    EXPECT_TRUE(session->Prefill(*prompt).ok());
    Outcome outcome;
    options.on_text = [&](std::string_view text, TextPart part) {
      (part == TextPart::kThought ? outcome.thought : outcome.answer) += text;
      return true;
    };
    std::string sampler_state;
    for (const int part : parts) {
      auto sampler = *Sampler::Create(*model_, sampling);
      if (!sampler_state.empty()) {
        StateReader from(std::as_bytes(std::span(sampler_state)), "the sampler");
        EXPECT_TRUE(sampler->LoadState(&from).ok());
      }
      options.max_tokens = part;
      const GenerateResult result = Generate(*session, *sampler, options);
      EXPECT_TRUE(result.error.ok()) << result.error.ToString();
      EXPECT_EQ(result.text, outcome.thought + outcome.answer);
      outcome.finish = result.finish_reason;
      outcome.generated += result.generated_tokens;
      options.so_far = result.answer;
      StateWriter to;
      sampler->SaveState(&to);
      sampler_state = to.text();
      if (result.finish_reason != FinishReason::kLength) break;
    }
    outcome.hash = session->logits_hash();
    return outcome;
  }
  static void ExpectSameWhereverItIsCut(const SamplingOptions& sampling,
                                        const GenerateOptions& options) {
    const Outcome whole = Run(sampling, options, {200});
    ASSERT_GT(whole.generated, 3);
    for (int cut = 1; cut < whole.generated; ++cut) {
      EXPECT_EQ(Run(sampling, options, {cut, 200}).answer, whole.answer) << cut;
      EXPECT_EQ(Run(sampling, options, {cut, 200}), whole) << cut;
      EXPECT_EQ(Run(sampling, options, {cut, 1, 200}), whole) << cut;
    }
  }

  static std::shared_ptr<const Model> model_;
  static std::unique_ptr<Engine> engine_;
};

std::shared_ptr<const Model> GenerateResume::model_;
std::unique_ptr<Engine> GenerateResume::engine_;

TEST_F(GenerateResume, TextWithCharactersOfManyBytes) {
  ExpectSameWhereverItIsCut({.temperature = 0, .grammar = "root ::= \"a\u00e4\u20ac\U0001F30A!\""},
                            {});
}

TEST_F(GenerateResume, WhatLooksLikeAStopStringIsShownOnce) {
  ExpectSameWhereverItIsCut({.temperature = 0, .grammar = "root ::= \"abNOcdNO NOef\""},
                            {.stops = {"NOW"}});
}

TEST_F(GenerateResume, SampledText) {
  ExpectSameWhereverItIsCut(
      {.temperature = 1, .repeat_penalty = 1.4F, .seed = 11, .grammar = "root ::= [a-z]{12}"}, {});
}

// The thought is forced to end after 6 tokens, and the answer obeys the grammar.
TEST_F(GenerateResume, AThoughtWithABudget) {
  GenerateOptions options;
  options.thinking_start = "<think>";
  options.thinking_end = "</think>";
  options.opens_in_thinking = true;
  options.thinking_budget = 6;
  const Outcome whole = Run({.temperature = 0, .grammar = "root ::= \"yes\""}, options, {200});
  EXPECT_TRUE(whole.thought.ends_with("</think>")) << whole.thought;
  EXPECT_EQ(whole.answer, "yes");
  ExpectSameWhereverItIsCut({.temperature = 0, .grammar = "root ::= \"yes\""}, options);
}

// The thought is longer than a budget that is set later, and contains some tokens of the end tag.
TEST_F(GenerateResume, AThoughtThatIsOverItsBudgetIsClosedWithAWholeTag) {
  const auto tokens = [](const std::string& text) {
    return *model_->Tokenize(text, Model::AddBos::kNo, Model::Specials::kParse);
  };
  const std::vector<Token> tag = tokens("</think>");
  ASSERT_GT(tag.size(), 1u);
  auto session = *engine_->OpenSession({});
  ASSERT_TRUE(session->Prefill(tokens("hello")).ok());
  GenerateOptions options;
  options.so_far = {.begin = session->next_position(), .tokens = tokens("abcd")};
  options.so_far.tokens.push_back(tag.front());
  options.so_far.tokens.push_back(tokens("e").back());
  for (const Token token : options.so_far.tokens) ASSERT_TRUE(session->Decode(token).ok());
  options.thinking_start = "<think>";
  options.thinking_end = "</think>";
  options.opens_in_thinking = true;
  options.thinking_budget = 2;
  options.max_tokens = static_cast<int>(tag.size());
  auto sampler = *Sampler::Create(*model_, {.temperature = 0});
  const GenerateResult result = Generate(*session, *sampler, options);
  EXPECT_TRUE(result.error.ok()) << result.error.ToString();
  EXPECT_TRUE(result.text.ends_with("e</think>")) << result.text;
}

TEST_F(GenerateResume, AStopStringWithinTheAnswerSoFarKeepsIt) {
  auto session = *engine_->OpenSession({});
  const auto tokens = [](const std::string& text) {
    return *model_->Tokenize(text, Model::AddBos::kNo, Model::Specials::kParse);
  };
  ASSERT_TRUE(session->Prefill(tokens("hello")).ok());
  GenerateOptions options;
  options.so_far = {
      .begin = session->next_position(), .tokens = tokens("abcdefgh"), .text_bytes = 8};
  for (const Token token : options.so_far.tokens) ASSERT_TRUE(session->Decode(token).ok());
  options.stops = {"cd"};
  auto sampler = *Sampler::Create(*model_, {.temperature = 0});
  const GenerateResult result = Generate(*session, *sampler, options);
  EXPECT_EQ(result.finish_reason, FinishReason::kStopString);
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.generated_tokens, 0);
  EXPECT_EQ(result.answer.tokens, options.so_far.tokens);
  EXPECT_EQ(result.answer.text_bytes, 8u);
}

TEST_F(GenerateResume, AnAnswerThatTheSessionDoesNotEndWithIsRefused) {
  auto session = *engine_->OpenSession({});
  ASSERT_TRUE(session->Prefill(std::vector<Token>{5, 6, 7}).ok());
  auto sampler = *Sampler::Create(*model_, {.temperature = 0});
  for (const AnswerSoFar& so_far :
       {AnswerSoFar{.begin = 1, .tokens = {6, 8}}, AnswerSoFar{.begin = 1, .tokens = {6}},
        AnswerSoFar{.begin = 1, .tokens = {6, 7, 8, 9}}, AnswerSoFar{.begin = 9, .tokens = {6}},
        AnswerSoFar{.begin = -1, .tokens = {6}},
        AnswerSoFar{.begin = 1, .tokens = {6, 7, 1 << 30}}}) {
    GenerateOptions options;
    options.so_far = so_far;
    options.max_tokens = 1;
    const GenerateResult result = Generate(*session, *sampler, options);
    EXPECT_EQ(result.error.code(), StatusCode::kInvalidArgument) << so_far.tokens.size();
  }
  EXPECT_EQ(session->next_position(), 3);
}

}  // namespace
}  // namespace ebb
