// Tests generation with a small model of random weights; grammars make it write what a test needs.
// The tests also run with lossless sessions, in which stop strings, grammars and budgets interrupt
// drafts.
#include "ebb/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using OnEnd = GenerateOptions::OnEnd;

enum class Kept { kByPolicy, kLossless };

class GenerateTest : public testing::TestWithParam<Kept> {
 protected:
  static void SetUpTestSuite() {
    const TempFolder folder;
    const std::string path = folder.File("model.gguf");
    const Status status = WriteRandomGguf({.num_layers = 2, .context = 2048}, path);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Result<std::shared_ptr<const Model>> model = Model::Load({.path = path});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  static void TearDownTestSuite() { model_.reset(); }

  void Open(SessionOptions options = {}, EngineOptions engine_options = {}) {
    session_.reset();
    if (GetParam() == Kept::kLossless) {
      options.lossless = LosslessOptions{.draft_min = 3, .draft_max = 5};
      if (options.policy.name == "full") {
        options.policy = {.name = "streaming", .sinks = 2, .window = 6};
      }
    }
    engine_options.threads = 1;
    Result<std::unique_ptr<Engine>> engine = Engine::Create(model_, engine_options);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
    Result<std::unique_ptr<Session>> session = engine_->OpenSession(options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    session_ = *std::move(session);
  }
  void Read(const std::string& text) {
    const auto tokens =
        model_->Tokenize(text, Model::AddBos::kAsModelSays, Model::Specials::kParse);
    ASSERT_TRUE(tokens.ok());
    const Status status = session_->Prefill(*tokens).status;
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  static Token TokenOf(const std::string& text) {
    return model_->Tokenize(text, Model::AddBos::kNo, Model::Specials::kAsText)->front();
  }
  // Opens a session, reads a short prompt and generates.
  GenerateResult Run(const GenerateOptions& options, SamplingOptions sampling = {}) {
    Open();
    Read("hello");
    return Continue(options, std::move(sampling));
  }
  GenerateResult Continue(const GenerateOptions& options, SamplingOptions sampling = {}) {
    sampling.temperature = 0;
    Result<std::unique_ptr<Sampler>> sampler = Sampler::Create(*model_, sampling);
    EXPECT_TRUE(sampler.ok()) << sampler.status().ToString();
    return Generate(*session_, **sampler, options);
  }
  // Makes the model write exactly `text` and then end.
  GenerateResult Say(const std::string& text, const GenerateOptions& options) {
    return Run(options, {.grammar = "root ::= \"" + text + "\""});
  }

  static std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
};

std::shared_ptr<const Model> GenerateTest::model_;

TEST_P(GenerateTest, EndsAtTheEndTokenWhichIsNotCounted) {
  std::vector<Token> tokens;
  GenerateOptions options;
  options.on_token = [&](Token token) { tokens.push_back(token); };
  const GenerateResult result = Say("one two", options);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.text, "one two");
  EXPECT_EQ(result.generated_tokens, static_cast<int>(tokens.size()));
  EXPECT_EQ(result.decode_steps, result.generated_tokens);
  std::string joined;
  for (const Token token : tokens) joined += model_->TokenText(token, Model::ControlTokens::kHide);
  EXPECT_EQ(joined, "one two");
}

// Penalties must count tokens of the prompt as they count tokens of the answer.
TEST_P(GenerateTest, AnAnswerThatIsCutAndSentBackGoesOnAsInOnePiece) {
  // Make few tokens likely, so that they repeat.
  SamplingOptions chosen;
  for (Token token = 20; token < 28; ++token) chosen.logit_bias[token] = 20;
  SamplingOptions penalties = chosen;
  penalties.repeat_penalty = 1.02F;
  penalties.presence_penalty = 0.5F;
  penalties.frequency_penalty = 0.25F;
  GenerateOptions options;
  options.max_tokens = 24;
  options.on_end = OnEnd::kIgnore;
  const std::vector<Token> whole = Run(options, penalties).answer.tokens;
  ASSERT_EQ(whole.size(), 24);
  EXPECT_NE(whole, Run(options, chosen).answer.tokens);
  for (const int cut : {1, 9, 20}) {
    Open();
    Read("hello");
    ASSERT_TRUE(session_->Prefill(std::span(whole).first(cut)).ok());
    options.max_tokens = 24 - cut;
    EXPECT_EQ(Continue(options, penalties).answer.tokens,
              std::vector<Token>(whole.begin() + cut, whole.end()));
  }
}

TEST_P(GenerateTest, ARepetitionOfThePromptIsPenalized) {
  Open();
  Read("hello");
  const std::vector<Token> prompt(session_->tokens().begin(), session_->tokens().end());
  GenerateOptions options;
  options.max_tokens = 1;
  for (const Token token : prompt) {
    SamplingOptions sampling = {.presence_penalty = 100, .logit_bias = {{token, 50}}};
    EXPECT_NE(Continue(options, sampling).answer.tokens, std::vector<Token>{token});
    sampling.presence_penalty = 0;
    EXPECT_EQ(Continue(options, sampling).answer.tokens, std::vector<Token>{token});
    sampling = {.repeat_penalty = 100, .logit_bias = {{token, 50}}};
    EXPECT_NE(Continue(options, sampling).answer.tokens, std::vector<Token>{token});
  }
}

TEST_P(GenerateTest, EndsWithALineOnceTheTimeForLinesIsOver) {
  GenerateOptions options;
  options.line_seconds = 1e-9;
  const GenerateResult late = Say("one\\ntwo\\nthree", options);
  EXPECT_EQ(late.finish_reason, FinishReason::kLength);
  EXPECT_EQ(late.text, "one\n");
  options.line_seconds = 1e6;
  EXPECT_EQ(Say("one\\ntwo\\nthree", options).finish_reason, FinishReason::kStop);
}

TEST_P(GenerateTest, EndsAtItsLengthWithoutAStepForTheLastToken) {
  for (const int length : {0, 1, 7}) {
    GenerateOptions options;
    options.max_tokens = length;
    options.on_end = OnEnd::kIgnore;
    const GenerateResult result = Run(options);
    EXPECT_EQ(result.finish_reason, FinishReason::kLength);
    EXPECT_EQ(result.generated_tokens, length);
    EXPECT_EQ(result.decode_steps, std::max(0, length - 1));
    EXPECT_EQ(result.seconds > 0, length > 1);
  }
}

TEST_P(GenerateTest, GreedyTextIsThatOfTheLikeliestTokensOneByOne) {
  GenerateOptions options;
  options.max_tokens = 20;
  options.on_end = OnEnd::kIgnore;
  std::vector<Token> tokens;
  options.on_token = [&](Token token) { tokens.push_back(token); };
  (void)Run(options);
  Open();
  Read("hello");
  for (const Token token : tokens) {
    const std::span<const float> logits = session_->logits();
    for (Token other = 0; other < model_->shape().vocab_size; ++other) {
      if (!model_->EndsGeneration(other)) {
        ASSERT_LE(logits[other], logits[token]);
      }
    }
    ASSERT_TRUE(session_->Decode(token).ok());
  }
}

TEST_P(GenerateTest, IgnoringTheEndNeverTakesAnEndToken) {
  GenerateOptions options;
  options.max_tokens = 200;
  options.on_end = OnEnd::kIgnore;
  options.on_token = [&](Token token) { EXPECT_FALSE(model_->EndsGeneration(token)); };
  EXPECT_EQ(Run(options).finish_reason, FinishReason::kLength);
}

TEST_P(GenerateTest, AStopStringEndsTheTextBeforeIt) {
  GenerateOptions options;
  options.stops = {"never", "two th"};
  const GenerateResult result = Say("one two three", options);
  EXPECT_EQ(result.finish_reason, FinishReason::kStopString);
  EXPECT_EQ(result.text, "one ");
  EXPECT_EQ(result.stop_string, "two th");
}

TEST_P(GenerateTest, AStopTokenEndsTheAnswerBeforeIt) {
  std::vector<Token> tokens;
  GenerateOptions options = {.max_tokens = 12, .on_end = OnEnd::kIgnore};
  options.on_token = [&](Token token) { tokens.push_back(token); };
  const std::string whole = Run(options).text;
  ASSERT_EQ(tokens.size(), 12u);
  const Token stop = tokens[7];
  const auto first = static_cast<int>(std::ranges::find(tokens, stop) - tokens.begin());
  options.stop_tokens = {-1, model_->shape().vocab_size, stop};
  const GenerateResult result = Run(options);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.generated_tokens, first);
  EXPECT_TRUE(whole.starts_with(result.text));
  options.min_tokens = first + 2;
  EXPECT_GE(Run(options).generated_tokens, first + 2);
}

TEST_P(GenerateTest, AnAnswerDoesNotEndBeforeItHasItsLeastTokens) {
  // The grammar has one token for each character: 26 tokens, and then only the end.
  const std::string grammar = "root ::= [a-z]*";
  GenerateOptions options = {.max_tokens = 40};
  const auto favour_end = [&] {
    SamplingOptions sampling = {.grammar = grammar};
    for (Token token = 0; token < model_->shape().vocab_size; ++token) {
      if (model_->EndsGeneration(token)) sampling.logit_bias[token] = 100;
    }
    return sampling;
  };
  EXPECT_EQ(Run(options, favour_end()).generated_tokens, 0);
  for (const int least : {1, 5, 30}) {
    options.min_tokens = least;
    const GenerateResult result = Run(options, favour_end());
    EXPECT_EQ(result.finish_reason, FinishReason::kStop) << result.error.ToString();
    EXPECT_EQ(result.generated_tokens, least);
  }
  // A grammar that is complete admits only the end, and has priority over the least number of
  // tokens.
  const GenerateResult said = Say("one", options);
  EXPECT_EQ(said.finish_reason, FinishReason::kStop) << said.error.ToString();
  EXPECT_EQ(said.text, "one");
}

TEST_P(GenerateTest, StopsAreNotLookedForBeforeTheLeastTokens) {
  std::vector<Token> tokens;
  GenerateOptions options = {.stops = {"two"}, .min_tokens = 1000};
  options.on_token = [&](Token token) { tokens.push_back(token); };
  EXPECT_EQ(Say("one two one two one", options).text, "one two one two one");
  // The least number of tokens is reached at the first "two".
  std::string text;
  int count = 0;
  while (text.find("two") == std::string::npos) {
    text += model_->TokenText(tokens[count++], Model::ControlTokens::kHide);
  }
  options.min_tokens = count;
  const GenerateResult result = Say("one two one two one", options);
  EXPECT_EQ(result.finish_reason, FinishReason::kStopString);
  EXPECT_EQ(result.text, "one two one ");
}

TEST_P(GenerateTest, TextComesInWholeCharacters) {
  std::vector<std::string> pieces;
  GenerateOptions options;
  options.on_text = [&](std::string_view text, TextPart part) {
    EXPECT_EQ(part, TextPart::kAnswer);
    pieces.emplace_back(text);
    return true;
  };
  EXPECT_EQ(Say("é€😀", options).text, "é€😀");
  EXPECT_EQ(pieces, (std::vector<std::string>{"é", "€", "😀"}));
}

TEST_P(GenerateTest, TellsThoughtFromAnswer) {
  GenerateOptions options;
  options.thinking_start = "<think>";
  options.thinking_end = "</think>";
  std::string answer;
  options.on_text = [&](std::string_view text, TextPart part) {
    if (part == TextPart::kAnswer) answer += text;
    return true;
  };
  // The grammar does not restrict the thought, which is forced to end at once; it restricts the
  // answer from its beginning.
  options.thinking_budget = 0;
  const GenerateResult result = Run(options, {.grammar = "root ::= \"<think>\" | \"<think>!\""});
  EXPECT_TRUE(result.text.starts_with("<think></think><think>")) << result.text;
  EXPECT_TRUE(answer.starts_with("<think>")) << answer;
  EXPECT_EQ(result.thought_tokens, 0);
}

TEST_P(GenerateTest, ForcesTheEndOfAThoughtThatHasSpentItsBudget) {
  for (const int budget : {0, 1, 9}) {
    GenerateOptions options;
    options.thinking_start = "<think>";
    options.thinking_end = "</think>";
    options.opens_in_thinking = true;
    options.thinking_budget = budget;
    options.max_tokens = 200;
    std::string answer;
    options.on_text = [&](std::string_view text, TextPart part) {
      if (part == TextPart::kAnswer) answer += text;
      return true;
    };
    const GenerateResult result = Run(options, {.grammar = "root ::= \"the answer\""});
    EXPECT_EQ(result.finish_reason, FinishReason::kStop) << result.error.ToString();
    EXPECT_EQ(result.thought_tokens, budget);
    EXPECT_EQ(answer, "the answer");
    EXPECT_NE(result.text.find("</think>the answer"), std::string::npos) << result.text;
  }
}

TEST_P(GenerateTest, AThoughtWithoutABudgetIsNotForced) {
  GenerateOptions options;
  options.thinking_start = "<think>";
  options.thinking_end = "</think>";
  options.opens_in_thinking = true;
  options.max_tokens = 50;
  options.on_end = OnEnd::kIgnore;
  const GenerateResult result = Run(options);
  EXPECT_EQ(result.thought_tokens, 50);
}

TEST_P(GenerateTest, AThoughtThatIsEndedGoesOnAsWithABudgetOfItsLength) {
  GenerateOptions options;
  options.thinking_start = "<think>";
  options.thinking_end = "</think>";
  options.opens_in_thinking = true;
  options.max_tokens = 200;
  for (const int length : {0, 5}) {
    Open();
    Read("hello");
    const auto sampler =
        Sampler::Create(*model_, {.temperature = 0, .grammar = "root ::= \"the answer\""});
    ASSERT_TRUE(sampler.ok());
    Generation generation(session_.get(), sampler->get(), options);
    for (int i = 0; i <= length; ++i) {
      if (i == length) generation.EndThought();
      const std::optional<Token> token = generation.Next();
      ASSERT_TRUE(token.has_value());
      generation.Appended(session_->Decode(*token));
    }
    while (const std::optional<Token> token = generation.Next()) {
      generation.Appended(session_->Decode(*token));
    }
    const GenerateResult ended = generation.End();
    options.thinking_budget = length;
    const GenerateResult limited = Run(options, {.grammar = "root ::= \"the answer\""});
    options.thinking_budget = -1;
    EXPECT_EQ(ended.text, limited.text);
    EXPECT_EQ(ended.thought_tokens, length);
    EXPECT_TRUE(ended.text.ends_with("</think>the answer")) << ended.text;
  }
}

TEST_P(GenerateTest, EndingTheThoughtOfAnAnswerWithoutOneChangesNothing) {
  for (const char* end_tag : {"", "</think>"}) {
    Open();
    Read("hello");
    const auto sampler =
        Sampler::Create(*model_, {.temperature = 0,
                                  .logit_bias = {{TokenOf("<"), -100.0F}},  // prevents a thought
                                  .grammar = "root ::= \"the answer\""});
    ASSERT_TRUE(sampler.ok());
    GenerateOptions options;
    options.thinking_start = *end_tag == 0 ? "" : "<think>";
    options.thinking_end = end_tag;
    Generation generation(session_.get(), sampler->get(), options);
    while (const std::optional<Token> token = generation.Next()) {
      generation.EndThought();
      generation.Appended(session_->Decode(*token));
    }
    EXPECT_EQ(generation.End().text, "the answer");
  }
}

TEST_P(GenerateTest, TagsMayBeControlTokens) {
  GenerateOptions options;
  options.thinking_start = "<|im_start|>";
  options.thinking_end = "<unk>";
  options.opens_in_thinking = true;
  options.thinking_budget = 3;
  options.max_tokens = 20;
  const GenerateResult result = Run(options, {.grammar = "root ::= \"yes\""});
  EXPECT_TRUE(result.text.ends_with("<unk>yes")) << result.text;
}

TEST_P(GenerateTest, StopsWhenCancelled) {
  std::atomic<bool> cancel{false};
  GenerateOptions options;
  options.on_end = OnEnd::kIgnore;
  options.cancel = &cancel;
  int tokens = 0;
  options.on_token = [&](Token) {
    if (++tokens == 3) cancel = true;
  };
  const GenerateResult result = Run(options);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(result.generated_tokens, 3);
}

TEST_P(GenerateTest, StopsWhenTheTextIsNotWanted) {
  GenerateOptions options;
  options.on_text = [](std::string_view, TextPart) { return false; };
  const GenerateResult result = Say("one two", options);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_LT(result.generated_tokens, 7);
}

TEST_P(GenerateTest, RefusedAtTheVeryEndIsCancelledToo) {
  GenerateOptions options;
  options.stops = {"xyz"};
  options.on_text = [](std::string_view text, TextPart) { return text != "x"; };
  // "x" may begin the stop string, so it is held back until the end.
  EXPECT_EQ(Say("x", options).finish_reason, FinishReason::kCancelled);
}

TEST_P(GenerateTest, EndsWhereTheContextEnds) {
  Open({.context = 16});
  Read("hello");
  const int read = session_->next_position();
  GenerateOptions options;
  options.on_end = OnEnd::kIgnore;
  const GenerateResult result = Continue(options);
  EXPECT_EQ(result.finish_reason, FinishReason::kContext);
  EXPECT_EQ(result.error.code(), StatusCode::kContextFull);
  // The last token is shown, but the context has no room for its row.
  EXPECT_EQ(result.generated_tokens, 16 - read + 1);
  EXPECT_EQ(session_->next_position(), 16);
}

TEST_P(GenerateTest, EndsWhereTheCapOnMemoryIsReachedAndLeavesTheSessionUsable) {
  Open({}, {.kv_type = RowType::kF32, .kv_cap_bytes = uint64_t{2} << 20});
  Read(std::string(450, '.'));
  GenerateOptions options;
  options.on_end = OnEnd::kIgnore;
  const GenerateResult result = Continue(options);
  EXPECT_EQ(result.finish_reason, FinishReason::kCap);
  EXPECT_EQ(result.error.code(), StatusCode::kT0Full);
  const Position end = session_->next_position();
  EXPECT_LT(end, session_->context());
  EXPECT_EQ(result.decode_steps, end - 450);
  ASSERT_TRUE(session_->TruncateTo(450).ok());
  EXPECT_TRUE(session_->Decode(10).ok());
}

TEST_P(GenerateTest, ASessionWithoutLogitsIsAnError) {
  Open();
  const GenerateResult result = Continue({});
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_EQ(result.error.code(), StatusCode::kInvalidArgument);
}

TEST_P(GenerateTest, AFulfilledGrammarEndsTheAnswerAlthoughEndsAreMasked) {
  GenerateOptions options;
  options.on_end = OnEnd::kIgnore;
  const GenerateResult result = Say("one", options);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop) << result.error.ToString();
  EXPECT_EQ(result.text, "one");
}

TEST_P(GenerateTest, AGrammarWithoutAWayOnIsAnError) {
  SamplingOptions sampling = {.grammar = "root ::= \"one\""};
  for (Token token = 0; token < model_->shape().vocab_size; ++token) {
    if (model_->TokenText(token, Model::ControlTokens::kShow).find('e') == std::string::npos)
      continue;
    sampling.logit_bias[token] = -std::numeric_limits<float>::infinity();
  }
  const GenerateResult result = Run({}, sampling);
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_EQ(result.error.Text(), "grammar: the grammar admits no further token");
  EXPECT_EQ(result.text, "on");
}

TEST_P(GenerateTest, ContinuesWhereAnEarlierGenerationEnded) {
  GenerateOptions whole;
  whole.max_tokens = 20;
  whole.on_end = OnEnd::kIgnore;
  std::vector<Token> all;
  whole.on_token = [&](Token token) { all.push_back(token); };
  (void)Run(whole);

  GenerateOptions half = whole;
  half.max_tokens = 10;
  std::vector<Token> halves;
  half.on_token = [&](Token token) { halves.push_back(token); };
  (void)Run(half);
  ASSERT_TRUE(session_->Decode(halves.back()).ok());
  (void)Continue(half);
  EXPECT_EQ(halves, all);
}

// Two sessions step in one batch, each with a generation of its own, and must give the loop's text.
TEST_P(GenerateTest, StepByStepInABatchItIsTheLoopsText) {
  const GenerateOptions options = {.max_tokens = 25, .on_end = OnEnd::kIgnore};
  const GenerateResult expected = Run(options);
  Open();
  Read("hello");
  SessionOptions other_options;
  auto other = engine_->OpenSession(other_options);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(
      (*other)
          ->Prefill(std::vector<Token>(session_->tokens().begin(), session_->tokens().end()))
          .ok());
  auto sampler = Sampler::Create(*model_, {.temperature = 0});
  auto other_sampler = Sampler::Create(*model_, {.temperature = 0});
  ASSERT_TRUE(sampler.ok() && other_sampler.ok());
  Generation first(session_.get(), sampler->get(), options);
  Generation second(other->get(), other_sampler->get(), options);
  for (;;) {
    const std::optional<Token> a = first.Next(), b = second.Next();
    ASSERT_EQ(a.has_value(), b.has_value());
    if (!a.has_value()) break;
    SessionStep parts[] = {{.session = session_.get(), .token = a},
                           {.session = other->get(), .token = b}};
    const StepOutcome outcome = engine_->Step(parts);
    first.Appended(outcome);
    second.Appended(outcome);
  }
  for (const GenerateResult& result : {first.End(), second.End()}) {
    EXPECT_EQ(result.text, expected.text);
    EXPECT_EQ(result.finish_reason, FinishReason::kLength);
    EXPECT_EQ(result.generated_tokens, 25);
    EXPECT_EQ(result.decode_steps, 24);
    EXPECT_EQ(result.answer.tokens, expected.answer.tokens);
  }
}

TEST_P(GenerateTest, AStepThatFailsEndsTheGeneration) {
  Open();
  Read("hello");
  auto sampler = Sampler::Create(*model_, {.temperature = 0});
  ASSERT_TRUE(sampler.ok());
  Generation generation(session_.get(), sampler->get(), {.on_end = OnEnd::kIgnore});
  const std::optional<Token> token = generation.Next();
  ASSERT_TRUE(token.has_value());
  generation.Appended({.taken = false, .status = IoError("the disk went")});
  EXPECT_FALSE(generation.Next().has_value());
  const GenerateResult result = generation.End();
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_EQ(result.error.message(), "the disk went");
  EXPECT_EQ(result.answer.tokens, std::vector<Token>{*token});
  EXPECT_EQ(result.decode_steps, 0);
}

TEST_P(GenerateTest, OneThatIsLeftIsCancelled) {
  Open();
  Read("hello");
  auto sampler = Sampler::Create(*model_, {.temperature = 0});
  ASSERT_TRUE(sampler.ok());
  Generation generation(session_.get(), sampler->get(), {.on_end = OnEnd::kIgnore});
  const std::optional<Token> token = generation.Next();
  ASSERT_TRUE(token.has_value());
  generation.Appended(session_->Decode(*token));
  EXPECT_EQ(generation.End().finish_reason, FinishReason::kCancelled);
}

TEST(FinishReasonTest, EveryReasonHasAName) {
  const std::vector<std::pair<FinishReason, std::string>> names = {
      {FinishReason::kStop, "stop"},     {FinishReason::kStopString, "stop_string"},
      {FinishReason::kLength, "length"}, {FinishReason::kContext, "context"},
      {FinishReason::kCap, "cap"},       {FinishReason::kCancelled, "cancelled"},
      {FinishReason::kError, "error"},
  };
  for (const auto& [reason, name] : names) EXPECT_EQ(FinishReasonName(reason), name);
}

INSTANTIATE_TEST_SUITE_P(Ways, GenerateTest, testing::Values(Kept::kByPolicy, Kept::kLossless),
                         [](const auto& info) {
                           return info.param == Kept::kLossless ? "Lossless" : "ByPolicy";
                         });

}  // namespace
}  // namespace ebb
