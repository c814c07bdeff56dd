// The samplers of llama.cpp that go beyond top-k, top-p and min-p: compared with libllama's own, or
// with the definitions in their papers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ebb/sampler.h"
#include "src/model/loaded/loaded_model.h"
#include "src/model/sampling/filters.h"
#include "src/model/sampling/gumbel_draw.h"
#include "tests/support/tiny_model.h"

namespace ebb {
namespace {

using testing::HasSubstr;

class FiltersTest : public TinyModelTest {
 protected:
  static std::unique_ptr<Sampler> Make(const SamplingOptions& options) {
    Result<std::unique_ptr<Sampler>> sampler = Sampler::Create(*model_, options);
    EXPECT_TRUE(sampler.ok()) << sampler.status().ToString();
    return *std::move(sampler);
  }
  static const llama_vocab* Vocab() {
    return llama_model_get_vocab(model_->loaded().vocab_model.get());
  }
  static std::vector<float> RandomLogits(uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits(model_->shape().vocab_size);
    for (float& logit : logits) logit = normal(random);
    return logits;
  }
  // Returns the tokens that the sampler drew from RandomLogits(), at positions from 0.
  static std::vector<Token> Draw(Sampler& sampler, int count) {
    std::vector<Token> tokens;
    for (int i = 0; i < count; ++i) {
      const Result<Token> token = sampler.Sample(RandomLogits(i), i);
      EXPECT_TRUE(token.ok()) << token.status().ToString();
      tokens.push_back(token.ok() ? *token : -1);
    }
    return tokens;
  }
  // Returns the tokens that ebb's draw chooses after libllama's samplers.
  static std::vector<Token> DrawBehind(std::vector<llama_sampler*> samplers, uint64_t seed,
                                       int count) {
    std::vector<LlamaSamplerPtr> owned(samplers.begin(), samplers.end());
    std::vector<Token> tokens;
    for (int i = 0; i < count; ++i) {
      const std::vector<float> logits = RandomLogits(i);
      std::vector<llama_token_data> data(logits.size());
      for (size_t j = 0; j < data.size(); ++j) data[j] = {static_cast<Token>(j), logits[j], 0};
      llama_token_data_array array = {data.data(), data.size(), -1, false};
      for (const LlamaSamplerPtr& one : owned) llama_sampler_apply(one.get(), &array);
      const auto noisy = [&](const llama_token_data& one) {
        return one.logit + GumbelNoise(seed, i, one.id);
      };
      tokens.push_back(std::ranges::max_element(std::span(array.data, array.size), {}, noisy)->id);
      for (const LlamaSamplerPtr& one : owned) llama_sampler_accept(one.get(), tokens.back());
    }
    return tokens;
  }
  // Turns all usual filters off.
  static SamplingOptions Plain() {
    return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 7};
  }
};

TEST_F(FiltersTest, TypicalSigmaAndDynamicTemperatureAreLibllamas) {
  SamplingOptions typical = Plain();
  typical.typical_p = 0.3F;
  EXPECT_EQ(Draw(*Make(typical), 60), DrawBehind({llama_sampler_init_typical(0.3F, 1)}, 7, 60));
  SamplingOptions sigma = Plain();
  sigma.top_n_sigma = 1.5F;
  EXPECT_EQ(Draw(*Make(sigma), 60), DrawBehind({llama_sampler_init_top_n_sigma(1.5F)}, 7, 60));
  SamplingOptions dynamic = Plain();
  dynamic.temperature = 1.2F;
  dynamic.dynatemp_range = 0.9F;
  dynamic.dynatemp_exponent = 2;
  EXPECT_EQ(Draw(*Make(dynamic), 60),
            DrawBehind({llama_sampler_init_temp_ext(1.2F, 0.9F, 2)}, 7, 60));
  // Each of them changes the drawn tokens.
  EXPECT_NE(Draw(*Make(typical), 60), Draw(*Make(Plain()), 60));
  EXPECT_NE(Draw(*Make(sigma), 60), Draw(*Make(Plain()), 60));
  EXPECT_NE(Draw(*Make(dynamic), 60), Draw(*Make(Plain()), 60));
}

TEST_F(FiltersTest, SamplersRunInTheirOwnOrder) {
  SamplingOptions usual = Plain();
  usual.temperature = 3;
  usual.top_p = 0.5F;
  EXPECT_EQ(Draw(*Make(usual), 60),
            DrawBehind({llama_sampler_init_top_p(0.5F, 1), llama_sampler_init_temp(3)}, 7, 60));
  SamplingOptions own = usual;
  own.samplers = {SamplerStage::kTemperature, SamplerStage::kTopP};
  EXPECT_EQ(Draw(*Make(own), 60),
            DrawBehind({llama_sampler_init_temp(3), llama_sampler_init_top_p(0.5F, 1)}, 7, 60));
  EXPECT_NE(Draw(*Make(own), 60), Draw(*Make(usual), 60));
  // Penalties after a filter lower the candidates that it left.
  SamplingOptions late = Plain();
  late.top_k = 5;
  late.frequency_penalty = 2;
  late.samplers = {SamplerStage::kTopK, SamplerStage::kPenalties, SamplerStage::kTemperature};
  EXPECT_EQ(Draw(*Make(late), 60),
            DrawBehind({llama_sampler_init_top_k(5),
                        llama_sampler_init_penalties(model_->shape().vocab_size, 64, 1, 2, 0),
                        llama_sampler_init_temp(1)},
                       7, 60));
  // Samplers that are not listed are off.
  late.samplers = {SamplerStage::kPenalties};
  late.frequency_penalty = 0;
  late.temperature = 9;
  EXPECT_EQ(Draw(*Make(late), 60), DrawBehind({}, 7, 60));
}

TEST_F(FiltersTest, NamesOfSamplersAreRead) {
  const auto stages = ParseSamplerStages("temperature;top_k,typ_p");
  ASSERT_TRUE(stages.ok());
  EXPECT_EQ(*stages, (std::vector{SamplerStage::kTemperature, SamplerStage::kTopK,
                                  SamplerStage::kTypicalP}));
  for (const SamplerStage stage : SamplingOptions().samplers) {
    EXPECT_EQ(FindSamplerStage(SamplerStageName(stage)), stage);
  }
  EXPECT_EQ(SamplingOptions().samplers.size(), 9u);
  EXPECT_THAT(ParseSamplerStages("top_k;fly").status().message(),
              HasSubstr("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature, found "
                        "\"fly\""));
  EXPECT_THAT(ParseSamplerStages("top_k;top_k").status().message(), HasSubstr("twice"));
}

TEST_F(FiltersTest, XtcLeavesTheLeastLikelyOfTheLikelyTokens) {
  SamplingOptions options = Plain();
  options.xtc_probability = 1;
  options.xtc_threshold = 0.1F;
  std::vector<float> logits(model_->shape().vocab_size, -20);
  logits[10] = 3;
  logits[11] = 2;
  logits[12] = 1.5F;
  logits[13] = 0;  // 0.03 of the probability
  std::set<Token> drawn;
  const auto sampler = Make(options);
  for (int i = 0; i < 300; ++i) drawn.insert(*sampler->Sample(logits, i));
  EXPECT_EQ(drawn, (std::set<Token>{12, 13}));
  // With one likely token there is nothing to leave out.
  logits[11] = logits[12] = -20;
  EXPECT_EQ(*sampler->Sample(logits, 0), 10);
  // Greedy sampling takes the likeliest token that XTC leaves.
  logits[11] = 2;
  options.temperature = 0;
  EXPECT_EQ(*Make(options)->Sample(logits, 0), 11);
}

TEST_F(FiltersTest, XtcActsAsOftenAsAskedAtPlacesOfTheSeed) {
  SamplingOptions options = Plain();
  options.xtc_probability = 0.3F;
  std::vector<float> logits(model_->shape().vocab_size, -50);
  logits[10] = 0.5F;
  logits[11] = 0;
  options.temperature = 0;
  const auto removals = [&](uint64_t seed) {
    options.seed = seed;
    const auto sampler = Make(options);
    std::vector<int> places;
    for (int i = 0; i < 1000; ++i) {
      if (*sampler->Sample(logits, i) == 11) places.push_back(i);
    }
    return places;
  };
  const std::vector<int> places = removals(1);
  EXPECT_NEAR(static_cast<double>(places.size()), 300, 60);
  EXPECT_EQ(removals(1), places);
  EXPECT_NE(removals(2), places);
}

TEST_F(FiltersTest, DryIsLibllamasAndLooksAtThePromptToo) {
  SamplingOptions options = Plain();
  options.temperature = 0;
  options.dry_multiplier = 100;
  options.dry_sequence_breakers = {};
  const auto sampler = Make(options);
  const std::vector<Token> prompt = {20, 21, 22, 23, 30, 20, 21, 22};
  sampler->SetText(prompt, prompt.size());
  std::vector<float> logits(model_->shape().vocab_size, 0);
  logits[23] = 5;
  logits[40] = 4;
  EXPECT_EQ(*sampler->Sample(logits, 8), 40);  // 23 would repeat four tokens
  // A shorter repetition is allowed.
  options.dry_allowed_length = 5;
  const auto patient = Make(options);
  patient->SetText(prompt, prompt.size());
  EXPECT_EQ(*patient->Sample(logits, 8), 23);
  // The same as libllama's over a text of its own choice.
  options.dry_allowed_length = 2;
  options.dry_multiplier = 0.8F;
  options.temperature = 1;
  options.top_k = 3;
  const auto free = Make(options);
  free->SetText({}, 0);
  llama_sampler* const dry =
      llama_sampler_init_dry(Vocab(), 0.8F, 1.75F, 2, model_->shape().trained_context, nullptr, 0);
  EXPECT_EQ(Draw(*free, 200), DrawBehind({dry, llama_sampler_init_top_k(3)}, 7, 200));
}

TEST_F(FiltersTest, MirostatKeepsTheSurpriseNearItsTarget) {
  for (const int version : {1, 2}) {
    for (const float target : {1.0F, 3.0F}) {
      SamplingOptions options = Plain();
      options.mirostat = version;
      options.mirostat_tau = target;
      const auto sampler = Make(options);
      double surprise = 0;
      int counted = 0;
      for (int i = 0; i < 800; ++i) {
        ASSERT_TRUE(sampler->Sample(RandomLogits(i), i).ok());
        if (i < 200) continue;
        surprise -= sampler->LastDraw(0).chosen.logprob / std::log(2.0);
        ++counted;
      }
      EXPECT_NEAR(surprise / counted, target, 0.25) << version << " " << target;
    }
  }
}

TEST_F(FiltersTest, MirostatTakesThePlaceOfFiltersAndGreedyOfMirostat) {
  SamplingOptions options = Plain();
  options.mirostat = 2;
  const std::vector<Token> tokens = Draw(*Make(options), 50);
  options.top_k = 1;
  options.xtc_probability = 1;
  EXPECT_EQ(Draw(*Make(options), 50), tokens);
  options.temperature = 0;
  const std::vector<float> logits = RandomLogits(3);
  EXPECT_EQ(*Make(options)->Sample(logits, 0), std::ranges::max_element(logits) - logits.begin());
}

// A token that the grammar refused was not chosen, so that mirostat does not learn from it.
TEST_F(FiltersTest, MirostatLearnsFromTheTokenThatIsTaken) {
  SamplingOptions options = Plain();
  options.mirostat = 2;
  options.grammar = "root ::= [a-z]+";
  const auto sampler = Make(options);
  const auto clone = sampler->Clone();
  EXPECT_EQ(Draw(*sampler, 60), Draw(*clone, 60));
  StateWriter state;
  sampler->SaveState(&state);
  StateReader from(state.bytes(), "the sampler");
  const auto other = Make(options);
  ASSERT_TRUE(other->LoadState(&from).ok());
  ASSERT_TRUE(from.End().ok());
  EXPECT_EQ(Draw(*other, 60), Draw(*sampler, 60));
}

TEST_F(FiltersTest, ValuesOutOfRangeAreRefusedByName) {
  const auto refusal = [](auto SamplingOptions::*member, auto value) {
    SamplingOptions options;
    options.*member = value;
    return Sampler::Create(*model_, options).status().field();
  };
  EXPECT_EQ(refusal(&SamplingOptions::typical_p, 1.5F), "typical_p");
  EXPECT_EQ(refusal(&SamplingOptions::dynatemp_range, -1.0F), "dynatemp_range");
  EXPECT_EQ(refusal(&SamplingOptions::xtc_probability, 2.0F), "xtc_probability");
  EXPECT_EQ(refusal(&SamplingOptions::dry_base, 0.5F), "dry_base");
  EXPECT_EQ(refusal(&SamplingOptions::mirostat, 3), "mirostat");
  EXPECT_EQ(refusal(&SamplingOptions::mirostat_tau, std::nanf("")), "mirostat_tau");
}

}  // namespace
}  // namespace ebb
