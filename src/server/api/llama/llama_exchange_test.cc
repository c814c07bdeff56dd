#include "src/server/api/llama/llama_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "src/server/api/error_form.h"
#include "src/server/api/openai/events_for_test.h"

namespace ebb::server {
namespace {

using testing::IsEmpty;

LlamaExchange LlamaAnswers(bool streams, LlamaAnswer answer = {}, size_t num_choices = 1,
                           std::shared_ptr<const Model> model = nullptr) {
  ExchangeOptions options = {.model_id = "m"};
  options.request = {.endpoint = Endpoint::kText,
                     .num_choices = static_cast<int>(num_choices),
                     .streams = streams,
                     .llama = std::make_shared<LlamaAnswer>(std::move(answer)),
                     .prompt = std::make_shared<const ChatPrompt>(),
                     .total_choices = num_choices};
  return {std::move(model), std::move(options)};
}

std::vector<Json> DataOf(const std::string& text) {
  std::vector<Json> events;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("data: ")) events.push_back(Json::parse(line.substr(6)));
  }
  return events;
}

JobUpdate SaidToken(Token token, const std::string& text) {
  return {.pieces = {{TextPart::kAnswer, text}}, .tokens = {{.token = token, .text = text}}};
}

TEST(LlamaExchange, AnAnswerInOnePieceTellsWhatLlamaServerTells) {
  LlamaExchange exchange = LlamaAnswers(
      false,
      {.returns_tokens = true, .generation_settings = {{"seed", 4}}, .prompts = {"<s>the prompt"}});
  exchange.Take(0, {.accepted = true});
  exchange.Take(0, SaidToken(8, "a\n"));
  exchange.Take(0, SaidToken(9, "b"));
  JobEnd end = Ended(FinishReason::kStopString);
  end.stop_string = "###";
  end.cached_tokens = 2;
  exchange.Take(0, {.end = end});
  const Json whole = exchange.Whole();
  EXPECT_EQ(whole["content"], "a\nb");
  EXPECT_EQ(whole["tokens"], Json::array({8, 9}));
  EXPECT_EQ(whole["stop"], true);
  EXPECT_EQ(whole["stop_type"], "word");
  EXPECT_EQ(whole["stopping_word"], "###");
  EXPECT_EQ(whole["has_new_line"], true);
  EXPECT_EQ(whole["truncated"], false);
  EXPECT_EQ(whole["tokens_predicted"], 3);
  EXPECT_EQ(whole["tokens_evaluated"], 5);
  EXPECT_EQ(whole["tokens_cached"], 2);
  EXPECT_EQ(whole["prompt"], "<s>the prompt");
  EXPECT_EQ(whole["generation_settings"]["seed"], 4);
  EXPECT_EQ(whole["timings"]["prompt_n"], 3);
  EXPECT_EQ(whole["model"], "m");
}

TEST(LlamaExchange, TheEndIsNamed) {
  const std::pair<FinishReason, const char*> cases[] = {{FinishReason::kStop, "eos"},
                                                        {FinishReason::kLength, "limit"},
                                                        {FinishReason::kContext, "limit"}};
  for (const auto& [finish, name] : cases) {
    LlamaExchange exchange = LlamaAnswers(false);
    exchange.Take(0, {.accepted = true, .end = Ended(finish)});
    EXPECT_EQ(exchange.Whole()["stop_type"], name);
    EXPECT_EQ(exchange.Whole()["truncated"], finish == FinishReason::kContext);
    EXPECT_THAT(exchange.Whole()["tokens"], IsEmpty());
  }
}

TEST(LlamaExchange, SeveralPromptsHaveAnArrayAndSeedsThatCountUp) {
  LlamaExchange exchange = LlamaAnswers(false, {.generation_settings = {{"seed", 4}}}, 2);
  for (const size_t i : {0, 1}) {
    exchange.Take(i, {.accepted = true, .end = Ended(FinishReason::kStop)});
  }
  const Json whole = exchange.Whole();
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole[1]["index"], 1);
  EXPECT_EQ(whole[1]["generation_settings"]["seed"], 5);
}

TEST(LlamaExchange, AStreamHasAnEventForEachTokenAndNoDone) {
  LlamaExchange exchange = LlamaAnswers(true);
  exchange.Take(0, {.accepted = true});
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
  // Two tokens have gathered because the client was slow.
  exchange.Take(0, SaidToken(8, "a"));
  exchange.Take(0, SaidToken(9, ""));
  std::vector<Json> events = DataOf(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["content"], "a");
  EXPECT_EQ(events[0]["tokens"], Json::array({8}));
  EXPECT_EQ(events[0]["stop"], false);
  EXPECT_EQ(events[1]["content"], "");
  EXPECT_EQ(events[1]["tokens_predicted"], 2);
  // The last event carries text that was held back.
  exchange.Take(0, {.pieces = {{TextPart::kAnswer, "###"}}, .end = Ended(FinishReason::kLength)});
  const std::string last = exchange.TakeEvents();
  EXPECT_THAT(last, testing::Not(testing::HasSubstr("[DONE]")));
  events = DataOf(last);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["stop"], true);
  EXPECT_EQ(events[0]["content"], "###");
  EXPECT_THAT(events[0]["tokens"], IsEmpty());
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
}

TEST(LlamaExchange, ProgressAndTimesAreToldWhereTheyAreAskedFor) {
  LlamaExchange exchange =
      LlamaAnswers(true, {.timings_per_token = true, .returns_progress = true});
  exchange.Take(0, {.accepted = true, .progress = {{.total = 9, .cached = 3, .processed = 3}}});
  exchange.Take(0, {.progress = {{.total = 9, .cached = 3, .processed = 9, .seconds = 2}}});
  exchange.Take(0,
                {.tokens = {{.token = 8, .text = "a"}, {.token = 9, .text = "b", .seconds = 4}}});
  const std::vector<Json> events = DataOf(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["prompt_progress"]["processed"], 3);
  EXPECT_EQ(events[0]["prompt_progress"]["cache"], 3);
  EXPECT_EQ(events[0]["timings"]["prompt_n"], 0);
  EXPECT_EQ(events[0]["timings"]["predicted_n"], 0);
  EXPECT_EQ(events[1]["prompt_progress"]["time_ms"], 2000.0);
  EXPECT_EQ(events[1]["timings"]["prompt_per_second"], 3.0);
  EXPECT_EQ(events[2]["tokens_evaluated"], 9);
  EXPECT_EQ(events[3]["timings"]["predicted_n"], 2);
  EXPECT_EQ(events[3]["timings"]["predicted_ms"], 4000.0);
  // One token was decoded in these four seconds; the prompt's last step gave the first.
  EXPECT_EQ(events[3]["timings"]["predicted_per_second"], 0.25);
}

TEST(LlamaExchange, OnlyTheFieldsThatWereAskedForAreTold) {
  LlamaExchange exchange = LlamaAnswers(
      false, {.response_fields = {"content", "generation_settings/n_predict", "no/such"},
              .generation_settings = {{"n_predict", 7}}});
  exchange.Take(0, {.accepted = true, .end = Ended(FinishReason::kStop)});
  const Json expected = {{"content", ""}, {"generation_settings/n_predict", 7}};
  EXPECT_EQ(exchange.Whole(), expected);
}

class LlamaProbabilitiesTest : public testing::Test {
 protected:
  static Json Told(bool post_sampling) {
    auto model = Model::Load({.path = EBB_SOURCE_DIR "/training/pebble/pebble.gguf"});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    LlamaExchange exchange =
        LlamaAnswers(false, {.post_sampling_probs = post_sampling}, /*num_choices=*/1, *model);
    JobUpdate update = SaidToken(70, "x");
    update.accepted = true;
    update.logprobs = {{.of = {.chosen = {70, std::log(0.25)},
                               .top = {{71, std::log(0.75)}, {70, std::log(0.25)}}}}};
    update.end = Ended(FinishReason::kStop);
    exchange.Take(0, std::move(update));
    return exchange.Whole()["completion_probabilities"];
  }
};

TEST_F(LlamaProbabilitiesTest, AreLogarithmsOfTheModelOrSharesOfTheSampler) {
  const Json of_model = Told(false);
  ASSERT_EQ(of_model.size(), 1u);
  EXPECT_EQ(of_model[0]["id"], 70);
  EXPECT_EQ(of_model[0]["logprob"], std::log(0.25));
  EXPECT_EQ(of_model[0]["top_logprobs"][0]["id"], 71);
  EXPECT_EQ(of_model[0]["bytes"].size(), of_model[0]["token"].get<std::string>().size());
  const Json of_sampler = Told(true);
  EXPECT_EQ(of_sampler[0]["prob"], 0.25);
  EXPECT_EQ(of_sampler[0]["top_probs"].size(), 2u);
  EXPECT_FALSE(of_sampler[0].contains("logprob"));
}

TEST(LlamaErrors, AreInLlamaServersFormOnItsPathsAlone) {
  const HttpAnswer too_long =
      ErrorAnswer(Invalid("the prompt is too long", "prompt", "context_length_exceeded"));
  const Json error = Json::parse(InFormOf("/completion", too_long).body)["error"];
  EXPECT_EQ(error["code"], 400);
  EXPECT_EQ(error["type"], "exceed_context_size_error");
  EXPECT_EQ(error["message"], "the prompt is too long");
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(InFormOf("/v1/completions", too_long).body, too_long.body);
  const HttpAnswer none = ErrorAnswer({.status = 501, .message = "no tokens"});
  const Json missing = Json::parse(InFormOf("/infill", none).body)["error"];
  EXPECT_EQ(missing["type"], "not_supported_error");
  EXPECT_FALSE(missing.contains("param"));
}

TEST(LlamaErrors, AnErrorBehindTheFirstEventIsTheLastOne) {
  LlamaExchange exchange = LlamaAnswers(true);
  JobUpdate update = SaidToken(8, "a");
  update.accepted = true;
  exchange.Take(0, std::move(update));
  JobEnd end = Ended(FinishReason::kError);
  end.error = IoError("the disk has gone");
  exchange.Take(0, {.end = end});
  const std::vector<Json> events = DataOf(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1]["error"]["code"], 500);
  EXPECT_EQ(events[1]["error"]["message"], "the disk has gone");
}

}  // namespace
}  // namespace ebb::server
