#include "src/server/api/llama/llama_request.h"
#include "tests/support/pebble_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ebb::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LlamaRequestTest : public PebbleModelTest {
 protected:
  static ApiResult<CompletionRequest> TryRead(const std::string& text,
                                              LlamaEndpoint endpoint = LlamaEndpoint::kCompletion) {
    RequestDefaults defaults;
    defaults.model_id = "pebble";
    return ReadLlama(endpoint, Json::parse(text), defaults);
  }
  static CompletionRequest ReadText(const std::string& text) {
    ApiResult<CompletionRequest> read = TryRead(text);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? *std::move(read) : CompletionRequest();
  }
  static ApiResult<std::vector<Job>> TryPrepare(CompletionRequest request) {
    return Prepare(*model_, &request);
  }
  // Returns a prepared request.
  static CompletionRequest Prepared(const std::string& text) {
    CompletionRequest request = ReadText(text);
    EXPECT_TRUE(Prepare(*model_, &request).ok());
    return request;
  }
  // Returns the prompts of the jobs of a request.
  static std::vector<std::vector<Token>> PromptsOf(const std::string& text) {
    const auto jobs = TryPrepare(ReadText(text));
    EXPECT_TRUE(jobs.ok()) << text;
    std::vector<std::vector<Token>> prompts;
    for (const Job& job : *jobs) prompts.push_back(job.prompt);
    return prompts;
  }
  static ApiError Refusal(const std::string& text,
                          LlamaEndpoint endpoint = LlamaEndpoint::kCompletion) {
    ApiResult<CompletionRequest> read = TryRead(text, endpoint);
    EXPECT_FALSE(read.ok()) << text;
    return read.ok() ? ApiError() : read.error();
  }
  static std::vector<Token> Tokens(const std::string& text, Model::AddBos add_bos) {
    return *model_->Tokenize(text, add_bos, Model::Specials::kParse);
  }
};

TEST_F(LlamaRequestTest, FieldsOfLlamaServerReachTheLibrary) {
  const CompletionRequest request =
      ReadText(R"({"prompt": "a", "n_predict": 7, "temperature": 3.5, "top_k": 9,
      "repeat_last_n": 5, "repeat_penalty": 1.5, "min_keep": 2, "seed": 11, "n_probs": 30,
      "post_sampling_probs": true, "stop": ["x", ""], "t_max_predict_ms": 1500, "stream": true,
      "ignore_eos": true, "return_tokens": true, "response_fields": ["content"],
      "timings_per_token": true, "return_progress": true, "n_cmpl": 2, "cache_prompt": false})");
  EXPECT_THAT(request.prompts, ElementsAre(MixedPrompt{"a"}));
  EXPECT_EQ(request.generate.max_tokens, 7);
  EXPECT_EQ(request.generate.line_seconds, 1.5);
  EXPECT_THAT(request.generate.stops, ElementsAre("x"));
  EXPECT_EQ(request.generate.on_end, GenerateOptions::OnEnd::kIgnore);
  EXPECT_EQ(request.sampling.temperature, 3.5f);
  EXPECT_EQ(request.sampling.top_k, 9);
  EXPECT_EQ(request.sampling.repeat_last_n, 5);
  EXPECT_EQ(request.sampling.repeat_penalty, 1.5f);
  EXPECT_EQ(request.sampling.min_keep, 2);
  EXPECT_EQ(request.sampling.seed, 11u);
  EXPECT_EQ(request.num_choices, 2);
  EXPECT_EQ(request.logprobs, 30);
  EXPECT_EQ(request.logprob_source, Job::LogprobSource::kSampler);
  EXPECT_TRUE(request.streams && request.reports_tokens && request.reports_progress);
  EXPECT_FALSE(request.caches_prompt);
  EXPECT_THAT(request.ignored, IsEmpty());
  EXPECT_TRUE(request.llama->returns_tokens && request.llama->timings_per_token);
  EXPECT_THAT(request.llama->response_fields, ElementsAre("content"));
}

TEST_F(LlamaRequestTest, EachFormOfAPromptBecomesTextsOrTokensInItsOrder) {
  const std::vector<Token> a = Tokens("a tide", Model::AddBos::kAsModelSays);
  const std::vector<Token> b = Tokens("b", Model::AddBos::kAsModelSays);
  EXPECT_THAT(PromptsOf(R"({"prompt": ["b", "a tide"]})"), ElementsAre(b, a));
  EXPECT_THAT(PromptsOf(R"({"prompt": {"prompt_string": "b"}})"), ElementsAre(b));
  EXPECT_THAT(PromptsOf(R"({"prompt": [5, 6]})"), ElementsAre(std::vector<Token>{5, 6}));
  EXPECT_THAT(PromptsOf(R"({"prompt": [[5, 6], "a tide", {"prompt_string": "a tide"}]})"),
              ElementsAre(std::vector<Token>{5, 6}, a, a));
  // A prompt that begins with a token gets no BOS token.
  std::vector<Token> mixed = {5};
  const std::vector<Token> rest = Tokens("a tide", Model::AddBos::kNo);
  mixed.insert(mixed.end(), rest.begin(), rest.end());
  mixed.push_back(6);
  EXPECT_THAT(PromptsOf(R"({"prompt": [5, "a tide", 6]})"), ElementsAre(mixed));
}

TEST_F(LlamaRequestTest, EachFormOfABiasNamesTokens) {
  const auto biases = [](const std::string& json) {
    return Prepared(R"({"prompt": "a", "logit_bias": )" + json + "}").sampling.logit_bias;
  };
  const std::map<Token, float> one = {{7, -2.5f}};
  EXPECT_EQ(biases("[[7, -2.5]]"), one);
  EXPECT_EQ(biases(R"({"7": -2.5})"), one);
  std::map<Token, float> of_text;
  for (const Token token : Tokens(" tide", Model::AddBos::kNo)) of_text[token] = -100;
  EXPECT_EQ(biases(R"([[" tide", -100]])"), of_text);
  EXPECT_EQ(biases(R"({" tide": -100})"), of_text);
  EXPECT_TRUE(std::isinf(biases("[[7, false]]").at(7)));
}

TEST_F(LlamaRequestTest, SamplersRunInTheOrderOfTheRequest) {
  using enum SamplerStage;
  const CompletionRequest request = ReadText(
      R"({"prompt": "a", "samplers": ["top_k", "top_p", "infill"], "top_k": 3, "top_p": 0.5})");
  EXPECT_THAT(request.sampling.samplers, ElementsAre(kTopK, kTopP));
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_THAT(request.ignored, ElementsAre("samplers.infill"));
  EXPECT_THAT(ReadText(R"({"prompt": "a", "samplers": "kt"})").sampling.samplers,
              ElementsAre(kTopK, kTemperature));
  // Front ends for stories always send their own order of samplers.
  const CompletionRequest order =
      ReadText(R"({"prompt": "a", "samplers": ["temperature", "typical_p", "dry", "xtc"]})");
  EXPECT_THAT(order.ignored, IsEmpty());
  EXPECT_THAT(order.sampling.samplers, ElementsAre(kTemperature, kTypicalP, kDry, kXtc));
}

TEST_F(LlamaRequestTest, SamplersOfLlamaServerAreRead) {
  const CompletionRequest request = ReadText(
      R"({"prompt": "a", "mirostat": 2, "mirostat_tau": 4, "mirostat_eta": 0.2, "typical_p": 0.9,
          "xtc_probability": 0.5, "xtc_threshold": 0.2, "dry_multiplier": 0.8, "dry_base": 2,
          "dry_allowed_length": 3, "dry_penalty_last_n": 64, "dry_sequence_breakers": ["."],
          "dynatemp_range": 0.5, "dynatemp_exponent": 2, "top_n_sigma": 1})");
  EXPECT_THAT(request.ignored, IsEmpty());
  const SamplingOptions& sampling = request.sampling;
  EXPECT_EQ(sampling.mirostat, 2);
  EXPECT_EQ(sampling.mirostat_tau, 4);
  EXPECT_EQ(sampling.mirostat_eta, 0.2F);
  EXPECT_EQ(sampling.typical_p, 0.9F);
  EXPECT_EQ(sampling.xtc_probability, 0.5F);
  EXPECT_EQ(sampling.xtc_threshold, 0.2F);
  EXPECT_EQ(sampling.dry_multiplier, 0.8F);
  EXPECT_EQ(sampling.dry_base, 2);
  EXPECT_EQ(sampling.dry_allowed_length, 3);
  EXPECT_EQ(sampling.dry_penalty_last_n, 64);
  EXPECT_THAT(sampling.dry_sequence_breakers, ElementsAre("."));
  EXPECT_EQ(sampling.dynatemp_range, 0.5F);
  EXPECT_EQ(sampling.dynatemp_exponent, 2);
  EXPECT_EQ(sampling.top_n_sigma, 1);
  EXPECT_EQ(Refusal(R"({"prompt": "a", "mirostat": 3})").param, "mirostat");
  EXPECT_EQ(Refusal(R"({"prompt": "a", "adaptive_target": 0.5})").code, "unsupported");
  EXPECT_EQ(Refusal(R"({"prompt": "a", "dry_sequence_breakers": [1]})").param,
            "dry_sequence_breakers");
}

TEST_F(LlamaRequestTest, FieldsWithoutEffectAreNamed) {
  const CompletionRequest request =
      ReadText(R"({"prompt": "a", "id_slot": 1, "n_keep": 3, "n_indent": 0})");
  EXPECT_THAT(request.ignored, testing::UnorderedElementsAre("id_slot", "n_keep", "n_indent"));
}

TEST_F(LlamaRequestTest, ASchemaBecomesAGrammar) {
  const CompletionRequest request =
      ReadText(R"({"prompt": "a", "json_schema": {"type": "boolean"}})");
  EXPECT_THAT(request.sampling.grammar, HasSubstr("true"));
  EXPECT_EQ(Refusal(R"({"prompt": "a", "json_schema": {"type": "unheard of"}})").param,
            "json_schema");
  EXPECT_THAT(Refusal(R"({"prompt": "a", "json_schema": {}, "grammar": "root ::= \"a\""})").message,
              HasSubstr("found both"));
}

TEST_F(LlamaRequestTest, SettingsTellWhatHolds) {
  const Json settings =
      Prepared(R"({"prompt": "a", "n_predict": 7, "seed": 11, "samplers": ["top_k", "temperature"],
                   "logit_bias": [[7, false]], "ignore_eos": true})")
          .llama->generation_settings;
  EXPECT_EQ(settings["n_predict"], 7);
  EXPECT_EQ(settings["seed"], 11);
  EXPECT_EQ(settings["samplers"], Json::array({"top_k", "temperature"}));
  EXPECT_EQ(settings["ignore_eos"], true);
  const Json banned = {{"bias", nullptr}, {"token", 7}};
  EXPECT_EQ(settings["logit_bias"][0], banned);
  EXPECT_GT(settings["logit_bias"].size(), 1u);
  EXPECT_THAT(Prepared(R"({"prompt": "a"})").llama->generation_settings["logit_bias"], IsEmpty());
}

TEST_F(LlamaRequestTest, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "prompt"},
      {R"({"prompt": true})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [1, true]})", "prompt"},
      {R"({"prompt": ["a", []]})", "prompt[1]"},
      {R"({"prompt": [5, -1]})", "prompt"},
      {R"({"prompt": {"prompt_string": 1}})", "prompt.prompt_string"},
      {R"({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}})", "prompt.multimodal_data"},
      {R"({"prompt": "a", "n_predict": -2})", "n_predict"},
      {R"({"prompt": "a", "n_probs": 101})", "n_probs"},
      {R"({"prompt": "a", "logit_bias": [[1]]})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": [[1, true]]})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": {"1": 1000}})", "logit_bias"},
      {R"({"prompt": "a", "response_fields": [1]})", "response_fields"},
      {R"({"prompt": "a", "samplers": 1})", "samplers"},
      {R"({"prompt": "a", "lora": [{"id": 0, "scale": 1}]})", "lora"},
      {R"({"prompt": "a", "top_p": 2})", "top_p"},
  };
  for (const auto& [text, param] : cases) {
    const ApiError error = Refusal(text);
    EXPECT_EQ(error.status, 400) << text;
    EXPECT_EQ(error.param, param) << text << ": " << error.message;
  }
}

TEST_F(LlamaRequestTest, InfillNeedsPrefixSuffixAndAVocabularyThatMarksThem) {
  const auto refused = [](const std::string& text) {
    return Refusal(text, LlamaEndpoint::kInfill);
  };
  EXPECT_EQ(refused(R"({"input_suffix": "b"})").param, "input_prefix");
  EXPECT_EQ(refused(R"({"input_prefix": "a"})").param, "input_suffix");
  const std::string both = R"({"input_prefix": "a", "input_suffix": "b")";
  EXPECT_EQ(refused(both + R"(, "input_extra": [{"filename": "f"}]})").param, "input_extra[0]");
  EXPECT_EQ(refused(both + R"(, "input_extra": [{"filename": 1, "text": "t"}]})").param,
            "input_extra[0].filename");
  EXPECT_EQ(refused(both + R"(, "prompt": 1})").param, "prompt");
  const ApiError missing = TryPrepare(*TryRead(both + "}", LlamaEndpoint::kInfill)).error();
  EXPECT_EQ(missing.status, 501);
  EXPECT_THAT(missing.message, HasSubstr("has no tokens for the prefix"));
}

}  // namespace
}  // namespace ebb::server
