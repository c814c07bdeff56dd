// Tests which tokens an answer gets under a grammar, from logits that prefer a given text.
#include "src/generate/token_choice.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/tiny_model.h"

namespace ebb {
namespace {

class TokenChoiceTest : public TinyModelTest {
 protected:
  static GenerateOptions Thinking() {
    GenerateOptions options;
    options.thinking_start = "<think>";
    options.thinking_end = "</think>";
    return options;
  }
  static std::unique_ptr<Sampler> SamplerWith(const std::string& grammar,
                                              std::vector<GrammarTrigger> triggers = {}) {
    auto sampler = Sampler::Create(
        *model_, {.temperature = 0, .grammar = grammar, .grammar_triggers = std::move(triggers)});
    EXPECT_TRUE(sampler.ok()) << sampler.status().ToString();
    return sampler.ok() ? *std::move(sampler) : nullptr;
  }
  // Returns logits that prefer the next byte of `wanted`, then the end, then the letters of "yes".
  static std::vector<float> Logits(const std::string& wanted, size_t at) {
    std::vector<float> logits(model_->shape().vocab_size, 0.0F);
    for (Token token = 0; token < model_->shape().vocab_size; ++token) {
      const std::string text = model_->TokenText(token, Model::ControlTokens::kHide);
      if (text == "<") logits[token] = 0.25F;  // prefer the letter to control tokens
      if (text != "" && text.find_first_not_of("yes") == std::string::npos) logits[token] = 0.5F;
      if (at < wanted.size() && text == wanted.substr(at, 1)) logits[token] = 2;
      if (model_->EndsGeneration(token)) logits[token] = 1;
    }
    return logits;
  }
  // Returns the text of the answer from `so_far` on.
  static std::string Written(TokenChoice* choice, const std::string& wanted, size_t so_far = 0) {
    for (size_t i = so_far; i < 60; ++i) {
      const auto token = choice->Next(Logits(wanted, i), static_cast<Position>(i));
      EXPECT_TRUE(token.ok()) << token.status().ToString() << " behind " << choice->stream().text();
      if (!token.ok() || model_->EndsGeneration(*token)) break;
      (void)choice->Show(*token);
    }
    (void)choice->stream().Finish();
    return choice->stream().text();
  }
  static std::string Written(const std::string& wanted, const std::string& grammar,
                             const GenerateOptions& options = Thinking(),
                             std::vector<GrammarTrigger> triggers = {}) {
    const auto sampler = SamplerWith(grammar, std::move(triggers));
    TokenChoice choice(options, sampler.get(), nullptr);
    EXPECT_TRUE(choice.Prepare().ok());
    return Written(&choice, wanted);
  }
};

TEST_F(TokenChoiceTest, AThoughtMayOpenAlthoughTheGrammarDoesNotAdmitItsTag) {
  for (const std::string text : {"<think>hm</think>yes", "yes"}) {
    EXPECT_EQ(Written(text, "root ::= \"yes\""), text);
  }
  EXPECT_EQ(Written(" <think>hm</think> yes", "root ::= \" \"? \"yes\""), " <think>hm</think> yes");
}

GenerateOptions WithChannels() {
  GenerateOptions options;
  options.thinking_start = "<c>a";
  options.thinking_end = "<e>";
  options.channels = {.message = "<s>", .answer = "<c>f"};
  options.after_thought = "<s><c>f";
  return options;
}

TEST_F(TokenChoiceTest, ChannelMarksBehindAThoughtAreFreeWithoutAGrammar) {
  for (const std::string text : {"<c>ahm<e><s><c>fno", "<c>fno", "<c>ahm<e><s><c>call"}) {
    EXPECT_EQ(Written(text, "", WithChannels()), text);
  }
}

TEST_F(TokenChoiceTest, AGrammarHoldsBehindTheMarksOfTheAnswer) {
  EXPECT_EQ(Written("<c>ahm<e>yes", "root ::= \"yes\"", WithChannels()), "<c>ahm<e><s><c>fyes");
  EXPECT_EQ(Written("<c>ahm<e><s><c>fno", "root ::= \"yes\"", WithChannels()),
            "<c>ahm<e><s><c>fyes");
}

TEST_F(TokenChoiceTest, TheEndOfTheBudgetForcesTheMarksOfTheAnswer) {
  GenerateOptions options = WithChannels();
  options.thinking_budget = 2;
  const std::string text = Written("<c>ahmhmhm", "", options);
  EXPECT_EQ(text.substr(0, 16), "<c>ahm<e><s><c>f") << text;
  options.thinking_budget = 0;
  EXPECT_EQ(Written("<c>ahm", "", options).substr(0, 4), "<c>f");
}

TEST_F(TokenChoiceTest, AnAnswerWithoutAThoughtObeysTheGrammarFromItsFirstByte) {
  for (const std::string text : {"no", "\n\nyes", "think"}) {
    EXPECT_EQ(Written(text, "root ::= \"yes\""), "yes") << text;
  }
  // Text that begins like the tag but turns out to be none must obey the grammar.
  const std::string grammar = "root ::= \"<\" [a-z]+ \"!\"";
  EXPECT_EQ(Written("<thorn!", grammar), "<thorn!");
  EXPECT_EQ(Written("<thorn?!", grammar).substr(0, 6), "<thorn");
}

TEST_F(TokenChoiceTest, TheGrammarBeginsBehindTheThoughtWhoseTagItAdmits) {
  const std::string grammar = "root ::= \"<\" [a-z>]+ \"!\"";
  EXPECT_EQ(Written("<think>a</think><think>!", grammar), "<think>a</think><think>!");
  EXPECT_EQ(Written("<think>a</think>b", grammar).substr(0, 17), "<think>a</think><");
}

TEST_F(TokenChoiceTest, AThoughtWithoutABudgetDoesNotOpen) {
  GenerateOptions options = Thinking();
  options.thinking_budget = 0;
  EXPECT_EQ(Written("<think>a</think>yes", "root ::= \"yes\"", options), "yes");
  options.thinking_budget = 1;
  const std::string text = Written("<think>abcdef", "root ::= \"yes\"", options);
  EXPECT_TRUE(text.starts_with("<think>a</think>") && text.ends_with("yes")) << text;
}

TEST_F(TokenChoiceTest, AModelThatEndsInItsThoughtStillAnswersByTheGrammar) {
  const std::string text = Written("<think>ab", "root ::= \"yes\"");
  EXPECT_TRUE(text.starts_with("<think>ab")) << text;
  EXPECT_TRUE(text.ends_with("</think>yes")) << text;
  // A grammar that waits for its trigger does not require an answer.
  const std::vector<GrammarTrigger> triggers = {
      {.kind = GrammarTrigger::Kind::kText, .text = "<call>"}};
  EXPECT_EQ(Written("<think>ab", "root ::= \"<call>yes\"", Thinking(), triggers), "<think>ab");
  EXPECT_EQ(
      Written("<think>a<call>b</think><call>no", "root ::= \"<call>yes\"", Thinking(), triggers),
      "<think>a<call>b</think><call>yes");
}

TEST_F(TokenChoiceTest, ACloneAndASavedStateGoOnInTheMiddleOfATag) {
  const std::string grammar = "root ::= \"<\" [a-z]+ \">\"";
  const GenerateOptions options = Thinking();
  for (const std::string text : {"<think>a</think><b>", "<thorn>"}) {
    for (size_t cut = 0; cut < text.size(); ++cut) {
      const auto sampler = SamplerWith(grammar);
      TokenChoice choice(options, sampler.get(), nullptr);
      ASSERT_TRUE(choice.Prepare().ok());
      std::vector<Token> tokens;
      for (size_t i = 0; i < cut; ++i) {
        const auto token = choice.Next(Logits(text, i), static_cast<Position>(i));
        ASSERT_TRUE(token.ok());
        tokens.push_back(*token);
        (void)choice.Show(*token);
      }
      StateWriter to;
      sampler->SaveState(&to);
      TokenChoice clone = choice.Clone();
      (void)Written(&clone, text, cut);
      const std::string begun = choice.stream().text();
      EXPECT_EQ(Written(&choice, text, cut), text) << cut;
      EXPECT_EQ(clone.stream().text(), text.substr(begun.size())) << cut;

      const auto loaded = SamplerWith(grammar);
      StateReader from(std::as_bytes(std::span(to.text())), "the sampler");
      ASSERT_TRUE(loaded->LoadState(&from).ok()) << cut;
      TokenChoice resumed(options, loaded.get(), nullptr);
      ASSERT_TRUE(resumed.Prepare().ok());
      for (const Token token : tokens) (void)resumed.ShowAgain(token);
      EXPECT_EQ(Written(&resumed, text, cut), text) << cut;
    }
  }
}

}  // namespace
}  // namespace ebb
