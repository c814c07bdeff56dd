#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ebb/sampler.h"
#include "src/model/loaded/loaded_model.h"
#include "src/model/sampling/gumbel_draw.h"
#include "tests/support/numbers.h"
#include "tests/support/tiny_model.h"

namespace ebb {
namespace {

using Constraint = Sampler::Constraint;

class SamplerTest : public TinyModelTest {
 protected:
  static std::unique_ptr<Sampler> Make(const SamplingOptions& options) {
    Result<std::unique_ptr<Sampler>> sampler = Sampler::Create(*model_, options);
    EXPECT_TRUE(sampler.ok()) << sampler.status().ToString();
    return *std::move(sampler);
  }
  static Status Refusal(const SamplingOptions& options) {
    return Sampler::Create(*model_, options).status();
  }
  static size_t VocabSize() { return model_->shape().vocab_size; }
  // Distinct, with a spread of about 2.
  static std::vector<float> RandomLogits(uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits(VocabSize());
    for (float& logit : logits) logit = normal(random);
    return logits;
  }
  static std::vector<Token> Draw(Sampler& sampler, int count) {
    std::vector<Token> tokens;
    for (int i = 0; i < count; ++i) {
      const Result<Token> token = sampler.Sample(RandomLogits(i), i);
      EXPECT_TRUE(token.ok()) << token.status().ToString();
      tokens.push_back(token.ok() ? *token : -1);
    }
    return tokens;
  }
  // Samples at temperature 0 from flat logits until the grammar ends, and returns the text.
  static std::string TextUnder(const std::string& grammar) {
    const auto sampler = Make({.temperature = 0, .grammar = grammar});
    const std::vector<float> flat(VocabSize());
    std::string text;
    for (int i = 0; i < 100; ++i) {
      const Result<Token> token = sampler->Sample(flat, i);
      EXPECT_TRUE(token.ok()) << token.status().ToString();
      if (!token.ok() || model_->EndsGeneration(*token)) return text;
      text += model_->TokenText(*token, Model::ControlTokens::kHide);
    }
    return text + "...";
  }
};

TEST_F(SamplerTest, GreedyTakesTheLikeliestAndOfTiesTheLowest) {
  const auto sampler = Make({.temperature = 0});
  std::vector<float> logits = RandomLogits(1);
  logits[37] = logits[91] = 50;
  const Result<Token> token = sampler->Sample(logits, 0);
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(*token, 37);
}

TEST_F(SamplerTest, DrawsAmongWhatTheSamplersOfLibllamaLeaveInItsOrder) {
  const SamplingOptions options = {.temperature = 0.9F,
                                   .top_k = 50,
                                   .top_p = 0.9F,
                                   .min_p = 0.02F,
                                   .repeat_penalty = 1.3F,
                                   .repeat_last_n = 16,
                                   .seed = 42};
  llama_sampler* chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
  for (llama_sampler* one :
       {llama_sampler_init_penalties(static_cast<int>(VocabSize()), 16, 1.3F, 0, 0),
        llama_sampler_init_top_k(50), llama_sampler_init_top_p(0.9F, 1),
        llama_sampler_init_min_p(0.02F, 1), llama_sampler_init_temp(0.9F)}) {
    llama_sampler_chain_add(chain, one);
  }
  std::vector<Token> expected;
  for (int i = 0; i < 100; ++i) {
    const std::vector<float> logits = RandomLogits(i);
    std::vector<llama_token_data> data(logits.size());
    for (size_t j = 0; j < data.size(); ++j) data[j] = {static_cast<Token>(j), logits[j], 0};
    llama_token_data_array array = {data.data(), data.size(), -1, false};
    llama_sampler_apply(chain, &array);
    const auto noisy = [&](const llama_token_data& one) {
      return one.logit + GumbelNoise(42, i, one.id);
    };
    expected.push_back(std::ranges::max_element(std::span(array.data, array.size), {}, noisy)->id);
    llama_sampler_accept(chain, expected.back());
  }
  llama_sampler_free(chain);
  EXPECT_EQ(Draw(*Make(options), 100), expected);
}

TEST_F(SamplerTest, TheMarginIsTheLeadOverTheNextBest) {
  std::vector<float> logits(VocabSize(), -kInfinity);
  logits[3] = 1;
  logits[7] = 4;
  logits[9] = 2.5F;
  logits[11] = 0.5F;  // the last one is neither
  const auto greedy = Make({.temperature = 0});
  EXPECT_EQ(*greedy->Sample(logits, 0), 7);
  EXPECT_FLOAT_EQ(static_cast<float>(greedy->margin()), 1.5F);
  const SamplingOptions options = {
      .temperature = 0.5F, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 9};
  const auto sampled = Make(options);
  for (Position position = 0; position < 50; ++position) {
    EXPECT_TRUE(sampled->Sample(logits, position).ok());
    std::vector<double> values;
    for (const Token token : {3, 7, 9, 11}) {
      values.push_back(double{logits[token]} / 0.5 + GumbelNoise(9, position, token));
    }
    std::ranges::sort(values);
    EXPECT_NEAR(sampled->margin(), values[3] - values[2], 1e-5) << position;
  }
  std::vector<float> one(VocabSize(), -kInfinity);
  one[5] = 1;
  EXPECT_EQ(*sampled->Sample(one, 0), 5);
  EXPECT_EQ(sampled->margin(), std::numeric_limits<double>::infinity());
}

// 20,000 draws of five tokens: chi-square with 4 degrees of freedom exceeds 18.5 once in a
// thousand.
TEST_F(SamplerTest, DrawsAreOfTheSoftmax) {
  const std::vector<double> share = {0.4, 0.3, 0.2, 0.08, 0.02};
  std::vector<float> logits(VocabSize(), -kInfinity);
  for (size_t i = 0; i < share.size(); ++i) logits[10 * i] = static_cast<float>(std::log(share[i]));
  const auto sampler = Make({.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 5});
  constexpr int kDraws = 20000;
  std::vector<int> drawn(share.size());
  for (int i = 0; i < kDraws; ++i) {
    const Result<Token> token = sampler->Sample(logits, i);
    ASSERT_TRUE(token.ok() && *token % 10 == 0 && *token <= 40);
    ++drawn[*token / 10];
  }
  double chi_square = 0;
  for (size_t i = 0; i < share.size(); ++i) {
    chi_square += std::pow(drawn[i] - kDraws * share[i], 2) / (kDraws * share[i]);
  }
  EXPECT_LT(chi_square, 18.5);
}

TEST_F(SamplerTest, ADrawDependsOnThePositionAlone) {
  const auto forwards = Make({.temperature = 2, .seed = 9});
  const auto backwards = Make({.temperature = 2, .seed = 9});
  std::vector<Token> expected, drawn(50);
  for (int i = 0; i < 50; ++i) expected.push_back(*forwards->Sample(RandomLogits(i), 100 + i));
  for (int i = 49; i >= 0; --i) drawn[i] = *backwards->Sample(RandomLogits(i), 100 + i);
  EXPECT_EQ(drawn, expected);
  EXPECT_NE(Draw(*Make({.temperature = 2, .seed = 9}), 50), expected);
}

// Noise that differed by more than the logits do would make every small difference another token.
TEST_F(SamplerTest, NearlyTheSameLogitsDrawTheSame) {
  const auto one = Make({.temperature = 1, .seed = 3});
  const auto other = Make({.temperature = 1, .seed = 3});
  int same = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<float> logits = RandomLogits(i);
    const Token token = *one->Sample(logits, i);
    for (size_t j = 0; j < logits.size(); ++j) logits[j] += j % 2 == 0 ? 1e-4F : -1e-4F;
    same += *other->Sample(logits, i) == token ? 1 : 0;
  }
  EXPECT_GE(same, 198);
}

TEST_F(SamplerTest, ACloneGoesOnFromWhereItWasMade) {
  const SamplingOptions options = {
      .temperature = 1, .repeat_penalty = 2, .seed = 11, .grammar = "root ::= \"hello, \" [a-z]+"};
  const auto sampler = Make(options);
  const auto draw = [&](Sampler& from, int begin, int end) {
    std::vector<Token> tokens;
    for (int i = begin; i < end; ++i) tokens.push_back(*from.Sample(RandomLogits(i), i));
    return tokens;
  };
  (void)draw(*sampler, 0, 9);
  const auto clone = sampler->Clone();
  const auto of_clone = draw(*clone, 9, 30);
  EXPECT_EQ(draw(*sampler, 9, 30), of_clone);
}

TEST_F(SamplerTest, TheSameSeedDrawsTheSame) {
  for (const uint64_t seed :
       {uint64_t{0}, uint64_t{7}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{LLAMA_DEFAULT_SEED}}) {
    EXPECT_EQ(Draw(*Make({.seed = seed}), 50), Draw(*Make({.seed = seed}), 50)) << seed;
  }
}

TEST_F(SamplerTest, OtherSeedsDrawOtherTokens) {
  const auto first = Draw(*Make({.seed = 1}), 50);
  EXPECT_NE(first, Draw(*Make({.seed = 2}), 50));
  EXPECT_NE(first, Draw(*Make({.seed = (uint64_t{1} << 32) + 1}), 50));
}

TEST_F(SamplerTest, TheLikeliestOneOfOneIsGreedy) {
  EXPECT_EQ(Draw(*Make({.temperature = 5, .top_k = 1}), 20), Draw(*Make({.temperature = 0}), 20));
}

TEST_F(SamplerTest, ForcedTokensCountAsRepetition) {
  const auto sampler = Make({.temperature = 0, .repeat_penalty = 2});
  std::vector<float> logits(VocabSize(), 1);
  logits[5] = 10;
  logits[6] = 8;
  sampler->Accept(5);
  const Result<Token> token = sampler->Sample(logits, 0);
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(*token, 6);
}

TEST_F(SamplerTest, ABiasIsAddedBeforeAnythingElse) {
  std::vector<float> logits(VocabSize(), 1);
  logits[5] = 10;
  logits[6] = 8;
  logits[7] = 7.5F;
  // A repeat penalty divides what the bias has left: 8 - 2 to 3, below 7.5 - 4 = 3.5.
  const SamplingOptions options = {
      .temperature = 0, .repeat_penalty = 2, .logit_bias = {{5, -100}, {6, -2}, {7, -4}}};
  const auto sampler = Make(options);
  EXPECT_EQ(*sampler->Sample(logits, 0), 6);
  EXPECT_EQ(*sampler->Sample(logits, 1), 7);
  EXPECT_EQ(*Make({.temperature = 0, .logit_bias = {{200, 100}}})->Sample(logits, 0), 200);
  for (int i = 0; i < 100; ++i) {
    const auto drawn = Make({.temperature = 2, .top_k = 0, .logit_bias = {{5, -100}}});
    EXPECT_NE(*drawn->Sample(logits, i), 5);
  }
}

TEST_F(SamplerTest, ABiasMakesNoNumberOutOfNone) {
  std::vector<float> logits(VocabSize(), -kInfinity);
  logits[3] = -200;
  const auto sampler = Make({.temperature = 0, .logit_bias = {{9, 100}}});
  EXPECT_EQ(*sampler->Sample(logits, 0), 3);
}

// llama.cpp's own sampler of penalties is the reference.
TEST_F(SamplerTest, PenaltiesCountTheLastTokensOfPromptAndAnswerAsInLlamaCpp) {
  for (const int last_n : {24, -1}) {
    const SamplingOptions options = {.temperature = 0,
                                     .repeat_penalty = 1.7F,
                                     .repeat_last_n = last_n,
                                     .presence_penalty = 0.6F,
                                     .frequency_penalty = 0.4F};
    std::vector<Token> prompt;
    for (int i = 0; i < 40; ++i) prompt.push_back(i % 11);
    llama_sampler* chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(
        chain, llama_sampler_init_penalties(static_cast<int>(VocabSize()),
                                            last_n < 0 ? 1000 : last_n, 1.7F, 0.4F, 0.6F));
    llama_sampler_chain_add(chain, llama_sampler_init_greedy());
    for (const Token token : prompt) llama_sampler_accept(chain, token);
    const auto sampler = Make(options);
    sampler->SetText(prompt, prompt.size());
    const auto without_prompt = Make(options);
    int num_other = 0;
    for (int i = 0; i < 100; ++i) {
      std::vector<float> logits = RandomLogits(i);
      // The tokens of the prompt and of the answer compete.
      for (Token token = 0; token < 20; ++token) logits[token] = 6 + 0.1F * logits[token];
      std::vector<llama_token_data> data(logits.size());
      for (size_t j = 0; j < data.size(); ++j) data[j] = {static_cast<Token>(j), logits[j], 0};
      llama_token_data_array array = {data.data(), data.size(), -1, false};
      llama_sampler_apply(chain, &array);
      const Token expected = array.data[array.selected].id;
      llama_sampler_accept(chain, expected);
      ASSERT_EQ(*sampler->Sample(logits, i), expected) << i << " of " << last_n;
      const Result<Token> other = without_prompt->Sample(logits, i);
      num_other += *other == expected ? 0 : 1;
    }
    EXPECT_GT(num_other, 0);
    llama_sampler_free(chain);
  }
}

TEST_F(SamplerTest, PresenceOfTheAnswerLeavesThePromptOutAndKeepsWhatTheAnswerBeganWith) {
  std::vector<float> logits(VocabSize(), 0);
  logits[5] = 10;
  logits[6] = 9;
  const auto next = [&](SamplingOptions options, size_t answer_begin) {
    options.temperature = 0;
    options.presence_scope = SamplingOptions::PresenceScope::kAnswer;
    const auto sampler = Make(options);
    sampler->SetText(std::vector<Token>{5, 7}, answer_begin);
    return *sampler->Sample(logits, 2);
  };
  EXPECT_EQ(next({.presence_penalty = 2}, 2), 5);
  EXPECT_EQ(next({.presence_penalty = 2}, 0), 6);
  EXPECT_EQ(next({.frequency_penalty = 2}, 1), 5);
  EXPECT_EQ(next({.frequency_penalty = 2}, 0), 6);
  EXPECT_EQ(next({.repeat_penalty = 2}, 2), 6);
}

// n times: -(presence + n * frequency), of all tokens of the answer.
TEST_F(SamplerTest, PresenceAndFrequencyCountAllOfTheAnswer) {
  std::vector<float> logits(VocabSize(), 0);
  logits[5] = 10;
  logits[6] = 8.6F;
  const auto first_other = [&](SamplingOptions options) {
    options.presence_scope = SamplingOptions::PresenceScope::kAnswer;
    const auto sampler = Make(options);
    for (int i = 0; i < 300; ++i) {
      if (*sampler->Sample(logits, i) != 5) return i;
    }
    return -1;
  };
  // 10 - n * 0.01 falls below 8.6 at n = 141, far behind any window.
  EXPECT_EQ(first_other({.temperature = 0, .repeat_last_n = 4, .frequency_penalty = 0.01F}), 141);
  EXPECT_EQ(first_other({.temperature = 0, .presence_penalty = 1.3F}), -1);
  EXPECT_EQ(first_other({.temperature = 0, .presence_penalty = 1.5F}), 1);
  EXPECT_EQ(first_other({.temperature = 0, .presence_penalty = 1, .frequency_penalty = 0.1F}), 5);
  const auto sampler = Make({.temperature = 0,
                             .presence_penalty = 2,
                             .presence_scope = SamplingOptions::PresenceScope::kAnswer});
  sampler->Accept(5);
  for (int i = 0; i < 100; ++i) sampler->Accept(9);
  EXPECT_EQ(*sampler->Sample(logits, 0), 6);
}

TEST_F(SamplerTest, ALazyGrammarHoldsFromItsTrigger) {
  using Kind = GrammarTrigger::Kind;
  const std::string grammar = "root ::= \"<go>\" \"x\" [0-9]";
  const auto tokens = [&](const std::string& text) {
    return *model_->Tokenize(text, Model::AddBos::kNo, Model::Specials::kParse);
  };
  const auto shown = [&](Token token) {
    return model_->TokenText(token, Model::ControlTokens::kShow);
  };
  const Token first = tokens("<go>")[0];
  const std::vector<GrammarTrigger> triggers = {
      {.kind = Kind::kText, .text = "<go>"},
      {.kind = Kind::kPattern, .text = "(<g)o>"},
      {.kind = Kind::kToken, .token = first},
  };
  for (const GrammarTrigger& trigger : triggers) {
    const auto sampler =
        Make({.temperature = 0, .grammar = grammar, .grammar_triggers = {trigger}});
    std::string text;
    const std::vector<Token> wanted = tokens("abc <g <go x <go>yyyy");
    for (size_t i = 0; i < wanted.size(); ++i) {
      std::vector<float> logits(VocabSize());
      logits[wanted[i]] = 1;
      const Result<Token> token = sampler->Sample(logits, static_cast<Position>(i));
      ASSERT_TRUE(token.ok()) << token.status().ToString();
      if (model_->EndsGeneration(*token)) break;
      text += shown(*token);
    }
    if (trigger.kind == Kind::kToken) {
      // From the first token of the tag on, wherever that is.
      EXPECT_EQ(text.substr(0, 9), "abc <go>x") << text;
      continue;
    }
    EXPECT_EQ(text.substr(0, text.size() - 1), "abc <g <go x <go>x");
    EXPECT_TRUE(text.back() >= '0' && text.back() <= '9') << text;
  }
}

TEST_F(SamplerTest, ATokenThatLeavesTheGrammarAtItsTriggerIsPassedOver) {
  std::vector<Token> two;
  for (Token token = 0; token < static_cast<Token>(VocabSize()) && two.empty(); ++token) {
    const std::string text = model_->TokenText(token, Model::ControlTokens::kHide);
    if (text.size() >= 2 && text[0] != text[1]) two = {token};
  }
  ASSERT_FALSE(two.empty());
  const std::string text = model_->TokenText(two[0], Model::ControlTokens::kHide);
  const std::string first(1, text[0]);
  const auto sampler = Make({.temperature = 0,
                             .grammar = "root ::= \"" + first + "\" [0-9]",
                             .grammar_triggers = {{.text = first}}});
  std::vector<float> logits(VocabSize());
  logits[two[0]] = 2;
  logits[200] = 1;
  const Result<Token> token = sampler->Sample(logits, 0);
  ASSERT_TRUE(token.ok()) << token.status().ToString();
  EXPECT_EQ(*token, 200);
}

TEST_F(SamplerTest, AGrammarMayDescribeTextAheadOfTheAnswer) {
  const auto sampler =
      Make({.temperature = 0, .grammar = "root ::= \"<A>\\n\" \"yes\"", .grammar_prefix = "<A>\n"});
  const std::vector<float> flat(VocabSize());
  std::string text;
  for (int i = 0; i < 10; ++i) {
    const Result<Token> token = sampler->Sample(flat, i);
    ASSERT_TRUE(token.ok());
    if (model_->EndsGeneration(*token)) break;
    text += model_->TokenText(*token, Model::ControlTokens::kHide);
  }
  EXPECT_EQ(text, "yes");
}

TEST_F(SamplerTest, RefusesTriggersAndPrefixesThatItCannotUse) {
  const std::string grammar = "root ::= \"a\"";
  using Kind = GrammarTrigger::Kind;
  const auto refusal = [&](const GrammarTrigger& trigger) {
    return Refusal({.grammar = grammar, .grammar_triggers = {{.text = "a"}, trigger}});
  };
  for (const auto& [status, message] : std::vector<std::pair<Status, std::string>>{
           {refusal({.text = ""}), "grammar_triggers[1]: expected a text, found none"},
           {refusal({.kind = Kind::kPattern, .text = "("}), "grammar_triggers[1]: "},
           {refusal({.kind = Kind::kToken, .token = -1}),
            "grammar_triggers[1]: token -1 is not in the vocabulary"},
           {refusal({.kind = Kind::kToken, .token = 1 << 30}), "grammar_triggers[1]: token "},
           {Refusal({.grammar = grammar, .grammar_prefix = "b"}),
            "grammar_prefix: the grammar does not admit it"},
           {Refusal(
                {.grammar = grammar, .grammar_prefix = "a", .grammar_triggers = {{.text = "a"}}}),
            "grammar_prefix: cannot be combined with grammar_triggers"}}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_TRUE(status.Text().starts_with(message)) << status.Text();
  }
}

TEST_F(SamplerTest, RefusesABiasOfNoToken) {
  const auto size = static_cast<Token>(VocabSize());
  for (const Token token : {-1, size, 1 << 30}) {
    const Status status = Refusal({.logit_bias = {{token, 1.0F}}});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.Text(), "logit_bias: expected a token from 0 to " + std::to_string(size - 1) +
                                 ", found " + std::to_string(token));
  }
  EXPECT_TRUE(Refusal({.logit_bias = {{size - 1, -100.0F}}}).ok());
}

TEST_F(SamplerTest, NeverTakesWhatIsNoNumber) {
  std::vector<float> logits = RandomLogits(3);
  for (size_t i = 0; i < logits.size(); i += 3) logits[i] = kNan;
  for (size_t i = 1; i < logits.size(); i += 3) logits[i] = kInfinity;
  for (const float temperature : {0.0F, 1.0F}) {
    const auto sampler = Make({.temperature = temperature});
    for (int i = 0; i < 20; ++i) {
      const Result<Token> token = sampler->Sample(logits, i);
      ASSERT_TRUE(token.ok());
      EXPECT_EQ(*token % 3, 2);
    }
  }
}

TEST_F(SamplerTest, LogitsWithoutANumberAreAnError) {
  for (const float value : {kNan, kInfinity, -kInfinity}) {
    const auto sampler = Make({});
    const Result<Token> token = sampler->Sample(std::vector<float>(VocabSize(), value), 0);
    EXPECT_EQ(token.status().code(), StatusCode::kCorrupt);
    EXPECT_EQ(token.status().Text(), "the logits of the step hold no number");
  }
}

TEST_F(SamplerTest, TheGrammarDecidesWhatIsAdmitted) {
  EXPECT_EQ(TextUnder("root ::= \"hello (\" [x] \")\""), "hello (x)");
  EXPECT_EQ(TextUnder("root ::= \"aé€😀\""), "aé€😀");
}

TEST_F(SamplerTest, TheGrammarIsLeftAsideWhenFree) {
  const auto sampler = Make({.temperature = 0, .grammar = "root ::= \"a\""});
  std::vector<float> logits(VocabSize());
  logits[200] = 1;
  const Result<Token> free = sampler->Sample(logits, 0, Constraint::kFree);
  ASSERT_TRUE(free.ok());
  EXPECT_EQ(*free, 200);
  const Result<Token> bound = sampler->Sample(logits, 0);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(model_->TokenText(*bound, Model::ControlTokens::kHide), "a");
}

TEST_F(SamplerTest, AFulfilledGrammarEndsTheAnswerWhateverItsLogitIs) {
  const auto sampler = Make({.temperature = 0, .grammar = "root ::= \"a\""});
  std::vector<float> logits(VocabSize());
  for (Token token = 0; token < static_cast<Token>(VocabSize()); ++token) {
    if (model_->EndsGeneration(token)) logits[token] = -kInfinity;
  }
  ASSERT_TRUE(sampler->Sample(logits, 0).ok());
  const Result<Token> token = sampler->Sample(logits, 0);
  ASSERT_TRUE(token.ok()) << token.status().ToString();
  EXPECT_TRUE(model_->EndsGeneration(*token));
}

TEST_F(SamplerTest, AGrammarWithoutAWayOnIsAnError) {
  const auto sampler = Make({.temperature = 0, .grammar = "root ::= \"a\""});
  std::vector<float> logits(VocabSize());
  for (Token token = 0; token < static_cast<Token>(VocabSize()); ++token) {
    if (model_->TokenText(token, Model::ControlTokens::kShow) == "a") logits[token] = -kInfinity;
  }
  const Result<Token> token = sampler->Sample(logits, 0);
  EXPECT_EQ(token.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(token.status().Text(), "grammar: the grammar admits no further token");
}

TEST_F(SamplerTest, AGrammarThatTakesTooLongIsAnError) {
  std::string optional;
  for (int i = 0; i < 200; ++i) optional += " ([ab]?){2000}";
  const Status begin = Refusal({.grammar = "root ::=" + optional});
  EXPECT_TRUE(begin.Text().starts_with("the grammar is refused: it has too many ways"))
      << begin.Text();
  const auto sampler = Make({.temperature = 0, .grammar = "root ::= \"x\"" + optional});
  const Status status = sampler->Sample(std::vector<float>(VocabSize()), 0).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(status.Text().starts_with("grammar: the grammar is too ambiguous")) << status.Text();
}

TEST_F(SamplerTest, RefusesGrammarsThatItCannotUse) {
  for (const char* grammar :
       {"root ::= (", "other ::= \"a\"", "root ::= root \"a\"", "root ::= missing",
        "root ::= \"a\"{99999}", "root ::= \"a\"{5,3}", "root ::= (\"}\" [}\"]){ 5 , # 9\n 3 }"}) {
    const Status status = Refusal({.grammar = grammar});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << grammar;
    EXPECT_TRUE(status.Text().starts_with("the grammar is refused: ")) << status.Text();
    EXPECT_EQ(status.Text().find('\n'), std::string::npos) << status.Text();
  }
}

TEST_F(SamplerTest, BracesThatRepeatNothingAreTakenAsTheyAre) {
  EXPECT_EQ(TextUnder("root ::= \"{5,3}\\\"\" [{] \"5,3\" [}] # {5,3}\n"), "{5,3}\"{5,3}");
  EXPECT_EQ(TextUnder("root ::= \"a\"{2,2} \"b\"{ 3 }"), "aabbb");
}

TEST_F(SamplerTest, RefusesValuesOutOfRangeByName) {
  const std::vector<std::pair<std::string, std::function<void(SamplingOptions&)>>> cases = {
      {"temperature", [](SamplingOptions& o) { o.temperature = -1; }},
      {"temperature", [](SamplingOptions& o) { o.temperature = kNan; }},
      {"top_k", [](SamplingOptions& o) { o.top_k = -1; }},
      {"top_p", [](SamplingOptions& o) { o.top_p = 1.5F; }},
      {"min_p", [](SamplingOptions& o) { o.min_p = -0.1F; }},
      {"repeat_penalty", [](SamplingOptions& o) { o.repeat_penalty = 0; }},
      {"repeat_last_n", [](SamplingOptions& o) { o.repeat_last_n = -2; }},
      {"presence_penalty", [](SamplingOptions& o) { o.presence_penalty = kInfinity; }},
      {"frequency_penalty", [](SamplingOptions& o) { o.frequency_penalty = kNan; }},
      {"logit_bias",
       [](SamplingOptions& o) {
         o.logit_bias = {{3, 100.5F}};
       }},
      {"logit_bias",
       [](SamplingOptions& o) {
         o.logit_bias = {{3, -101}};
       }},
      {"logit_bias",
       [](SamplingOptions& o) {
         o.logit_bias = {{3, kNan}};
       }},
  };
  for (const auto& [name, change] : cases) {
    SamplingOptions options;
    change(options);
    const Status status = Refusal(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_TRUE(status.Text().starts_with(name + ": expected a number")) << status.Text();
  }
}

TEST_F(SamplerTest, TheLastDrawTellsWhatEachCandidateHadLeft) {
  std::vector<float> logits(VocabSize(), -20);
  logits[5] = 2;
  logits[6] = 1;
  logits[7] = 0;
  logits[8] = 2;
  const auto sampler = Make({.temperature = 0.5,
                             .top_k = 3,
                             .top_p = 1,
                             .min_p = 0,
                             .logit_bias = {{8, -std::numeric_limits<float>::infinity()}}});
  EXPECT_EQ(sampler->LastDraw(2).chosen.logprob, -std::numeric_limits<double>::infinity());
  const Result<Token> token = sampler->Sample(logits, 0);
  ASSERT_TRUE(token.ok());
  // exp(4), exp(2) and exp(0) of their sum: temperature halves, and token 8 is banned.
  const double total = std::log(std::exp(4) + std::exp(2) + 1);
  const Logprobs all = sampler->LastDraw(10);
  ASSERT_EQ(all.top.size(), 3U);
  EXPECT_EQ(all.top[0].token, 5);
  EXPECT_NEAR(all.top[0].logprob, 4 - total, 1e-6);
  EXPECT_EQ(all.top[2].token, 7);
  EXPECT_NEAR(all.top[2].logprob, -total, 1e-6);
  EXPECT_EQ(all.chosen.token, *token);
  EXPECT_EQ(sampler->LastDraw(1).top.size(), 1U);
}

TEST_F(SamplerTest, AGreedyDrawHasOneCandidate) {
  const auto sampler = Make({.temperature = 0});
  const Result<Token> token = sampler->Sample(RandomLogits(1), 0);
  ASSERT_TRUE(token.ok());
  const Logprobs draw = sampler->LastDraw(5);
  EXPECT_EQ(draw.chosen.token, *token);
  EXPECT_EQ(draw.chosen.logprob, 0);
  EXPECT_EQ(draw.top.size(), 1U);
}

TEST_F(SamplerTest, MinKeepHoldsCandidatesBackFromTopPAndMinP) {
  std::vector<float> logits(VocabSize(), -20);
  logits[5] = 10;
  logits[6] = 1;
  for (const int min_keep : {1, 2}) {
    const auto sampler = Make({.temperature = 1, .top_p = 0.5, .min_p = 0.5, .min_keep = min_keep});
    ASSERT_TRUE(sampler->Sample(logits, 0).ok());
    EXPECT_EQ(static_cast<int>(sampler->LastDraw(10).top.size()), min_keep);
  }
}

}  // namespace
}  // namespace ebb
