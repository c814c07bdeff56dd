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

#include "ebb/generate.h"
#include "src/model/gumbel_draw.h"
#include "src/model/loaded_model.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using Constraint = Sampler::Constraint;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class SamplerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const TempFolder folder;
    const std::string path = folder.File("model.gguf");
    const Status status = WriteRandomGguf({.num_layers = 1}, path);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Result<std::shared_ptr<const Model>> model = Model::Load({.path = path});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  static void TearDownTestSuite() { model_.reset(); }

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

  static std::shared_ptr<const Model> model_;
};

std::shared_ptr<const Model> SamplerTest::model_;

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
                                   .presence_penalty = 0.1F,
                                   .frequency_penalty = 0.2F,
                                   .seed = 42};
  llama_sampler* chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
  for (llama_sampler* one :
       {llama_sampler_init_penalties(static_cast<int>(VocabSize()), 16, 1.3F, 0.2F, 0.1F),
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
    EXPECT_EQ(token.status().message(), "the logits of the step hold no number");
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

TEST_F(SamplerTest, AGrammarWithoutAWayOnIsAnError) {
  const auto sampler = Make({.temperature = 0, .grammar = "root ::= \"a\""});
  std::vector<float> logits(VocabSize());
  for (Token token = 0; token < static_cast<Token>(VocabSize()); ++token) {
    if (model_->EndsGeneration(token)) logits[token] = -kInfinity;
  }
  ASSERT_TRUE(sampler->Sample(logits, 0).ok());
  const Result<Token> token = sampler->Sample(logits, 0);
  EXPECT_EQ(token.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(token.status().message(), "the grammar admits no further token");
}

TEST_F(SamplerTest, RefusesGrammarsThatItCannotUse) {
  for (const char* grammar : {"root ::= (", "other ::= \"a\"", "root ::= root \"a\"",
                              "root ::= missing", "root ::= \"a\"{99999}"}) {
    const Status status = Refusal({.grammar = grammar});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << grammar;
    EXPECT_TRUE(status.message().starts_with("the grammar is refused: ")) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
}

TEST_F(SamplerTest, RefusesValuesOutOfRangeByName) {
  const std::vector<std::pair<std::string, std::function<void(SamplingOptions&)>>> cases = {
      {"temperature", [](SamplingOptions& o) { o.temperature = -1; }},
      {"temperature", [](SamplingOptions& o) { o.temperature = kNan; }},
      {"top-k", [](SamplingOptions& o) { o.top_k = -1; }},
      {"top-p", [](SamplingOptions& o) { o.top_p = 1.5F; }},
      {"min-p", [](SamplingOptions& o) { o.min_p = -0.1F; }},
      {"repeat-penalty", [](SamplingOptions& o) { o.repeat_penalty = 0; }},
      {"repeat-last-n", [](SamplingOptions& o) { o.repeat_last_n = -1; }},
      {"presence-penalty", [](SamplingOptions& o) { o.presence_penalty = kInfinity; }},
      {"frequency-penalty", [](SamplingOptions& o) { o.frequency_penalty = kNan; }},
  };
  for (const auto& [name, change] : cases) {
    SamplingOptions options;
    change(options);
    const Status status = Refusal(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_TRUE(status.message().starts_with(name + ": expected a number")) << status.message();
  }
}

}  // namespace
}  // namespace ebb
