// A sampler that was saved to a file continues with the numbers, the repetitions and the grammar
// that it had.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ebb/sampler.h"
#include "ebb/state.h"
#include "tests/support/tiny_model.h"

namespace ebb {
namespace {

class SamplerState : public TinyModelTest {
 protected:
  static std::unique_ptr<Sampler> Make(const SamplingOptions& options) {
    auto sampler = Sampler::Create(*model_, options);
    EXPECT_TRUE(sampler.ok()) << sampler.status().ToString();
    return *std::move(sampler);
  }
  static std::vector<Token> Draw(Sampler& sampler, int from, int to) {
    std::vector<Token> tokens;
    for (int i = from; i < to; ++i) {
      std::mt19937 random(i);
      std::normal_distribution<float> normal(0, 2);
      std::vector<float> logits(model_->shape().vocab_size);
      for (float& logit : logits) logit = normal(random);
      const auto token = sampler.Sample(logits, i);
      tokens.push_back(token.ok() ? *token : -1);
      if (i % 5 == 0) sampler.Accept(i);
    }
    return tokens;
  }
  static Status Restore(const StateWriter& state, Sampler* sampler) {
    StateReader from(state.bytes(), "the sampler");
    EBB_RETURN_IF_ERROR(sampler->LoadState(&from));
    return from.End();
  }
  static void ExpectGoesOn(const SamplingOptions& options) {
    const auto whole = Make(options);
    const auto first = Make(options);
    EXPECT_EQ(Draw(*whole, 0, 40), Draw(*first, 0, 40));
    StateWriter state;
    first->SaveState(&state);
    const auto second = Make(options);
    const Status status = Restore(state, second.get());
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(Draw(*second, 40, 120), Draw(*whole, 40, 120));
    // And once more, with what it was restored from.
    StateWriter again;
    second->SaveState(&again);
    const auto third = Make(options);
    EXPECT_TRUE(Restore(again, third.get()).ok());
    EXPECT_EQ(Draw(*third, 120, 160), Draw(*whole, 120, 160));
  }
};

TEST_F(SamplerState, DrawsGoOn) {
  ExpectGoesOn({.temperature = 1.5F, .seed = 3});
  ExpectGoesOn({.temperature = 1.5F, .top_k = 1, .seed = 3});
}

TEST_F(SamplerState, RepetitionsGoOn) {
  ExpectGoesOn({.temperature = 0, .repeat_penalty = 3, .presence_penalty = 2});
  ExpectGoesOn({.temperature = 1, .repeat_penalty = 3, .repeat_last_n = 5, .seed = 8});
}

TEST_F(SamplerState, CountsAndBiasesGoOn) {
  ExpectGoesOn({.temperature = 0, .presence_penalty = 0.5F, .frequency_penalty = 0.5F});
  ExpectGoesOn({.temperature = 1,
                .presence_penalty = 1,
                .frequency_penalty = 1,
                .logit_bias = {{7, 3}, {9, -100}},
                .seed = 8});
}

// A letter is likely within 40 tokens, and is not among the first few.
TEST_F(SamplerState, ALazyGrammarGoesOn) {
  using Kind = GrammarTrigger::Kind;
  for (const GrammarTrigger& trigger : std::vector<GrammarTrigger>{
           {.text = "never there"}, {.text = "e"}, {.kind = Kind::kPattern, .text = "[k-p]"}}) {
    ExpectGoesOn({.temperature = 2,
                  .seed = 4,
                  .grammar = "root ::= [a-z] [^#]+",
                  .grammar_triggers = {trigger}});
  }
}

TEST_F(SamplerState, ACloneOfALazyGrammarGoesOn) {
  const SamplingOptions options = {.temperature = 2,
                                   .seed = 4,
                                   .grammar = "root ::= \"e\" [a-z]+",
                                   .grammar_triggers = {{.text = "e"}}};
  for (int until = 1; until < 60; until += 7) {
    const auto sampler = Make(options);
    (void)Draw(*sampler, 0, until);
    const auto clone = sampler->Clone();
    EXPECT_EQ(Draw(*clone, until, 80), Draw(*sampler, until, 80));
  }
}

TEST_F(SamplerState, TheGrammarGoesOn) {
  ExpectGoesOn({.temperature = 2, .seed = 4, .grammar = "root ::= [a-z]+"});
}

TEST_F(SamplerState, MirostatGoesOnWithWhatItLearned) {
  ExpectGoesOn({.temperature = 1.5F, .mirostat = 1, .seed = 3});
  ExpectGoesOn({.temperature = 1.5F, .mirostat = 2, .mirostat_tau = 2, .seed = 3});
}

TEST_F(SamplerState, AnotherSeedDrawsOtherTokens) {
  const auto first = Make({.temperature = 1.5F, .seed = 3});
  (void)Draw(*first, 0, 40);
  StateWriter state;
  first->SaveState(&state);
  const auto other = Make({.temperature = 1.5F, .seed = 4});
  const auto fresh = Make({.temperature = 1.5F, .seed = 4});
  EXPECT_TRUE(Restore(state, other.get()).ok());
  EXPECT_EQ(Draw(*other, 40, 80), Draw(*fresh, 40, 80));
}

TEST_F(SamplerState, AnAnswerOutsideTheGrammarIsRefused) {
  const SamplingOptions words = {.temperature = 0, .grammar = "root ::= [a-z]+"};
  const auto first = Make(words);
  (void)Draw(*first, 1, 4);
  StateWriter state;
  first->SaveState(&state);
  const auto digits = Make({.temperature = 0, .grammar = "root ::= [0-9]+"});
  EXPECT_EQ(Restore(state, digits.get()).code(), StatusCode::kInvalidArgument);
}

TEST_F(SamplerState, WhatIsNoStateIsRefused) {
  const auto refused = [](std::vector<Token> tokens, std::vector<uint8_t> seen) {
    StateWriter state;
    state.Numbers<Token>(tokens);
    state.Numbers<uint8_t>(seen);
    state.Numbers<float>(std::vector<float>());
    return Restore(state, Make({}).get()).code() == StatusCode::kCorrupt;
  };
  EXPECT_FALSE(refused({5}, {0}));
  EXPECT_TRUE(refused({-1}, {0}));
  EXPECT_TRUE(refused({1 << 30}, {0}));
  EXPECT_TRUE(refused({5}, {3}));
  EXPECT_TRUE(refused({5, 6}, {0}));
}

}  // namespace
}  // namespace ebb
