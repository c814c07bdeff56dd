#include "src/server/api/openai/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "src/server/api/openai/events_for_test.h"

namespace ebb::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

ExchangeOptions Options(size_t num_choices = 1) {
  ChatPrompt prompt;
  prompt.thinking_start = "<think>";
  prompt.thinking_end = "</think>";
  ExchangeOptions options = {.id = "chatcmpl-1", .model_id = "m"};
  options.request = {.num_choices = static_cast<int>(num_choices),
                     .streams = true,
                     .includes_usage = true,
                     .prompt = std::make_shared<const ChatPrompt>(std::move(prompt)),
                     .total_choices = num_choices};
  return options;
}

std::vector<Json> Events(const std::string& text) {
  std::vector<Json> events;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == "data: [DONE]") {
      events.push_back("[DONE]");
    } else if (!line.empty()) {
      EXPECT_TRUE(line.starts_with("data: ")) << line;
      events.push_back(Json::parse(line.substr(6)));
    }
  }
  return events;
}

TEST(Exchange, TokensThatAnotherSessionHadAreToldAsCached) {
  ExchangeOptions options = Options(2);
  options.request.streams = false;
  Exchange exchange(nullptr, options);
  for (const int choice : {0, 1}) {
    JobEnd end = Ended(FinishReason::kStop);
    end.cached_tokens = 3 + choice;
    end.prompt_seconds = 0.5;
    exchange.Take(choice, {.accepted = true, .end = end});
  }
  const Json whole = exchange.Whole();
  // Only the first choice of a prompt counts the tokens that were cached before the request.
  EXPECT_EQ(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(whole["timings"]["cache_n"], 4);
  EXPECT_EQ(whole["timings"]["prompt_n"], 1);
  EXPECT_EQ(whole["timings"]["prompt_per_second"], 2.0);
}

TEST(Exchange, TellsNothingBeforeAllChoicesAreAccepted) {
  Exchange exchange(nullptr, Options(2));
  EXPECT_FALSE(exchange.is_accepted());
  exchange.Take(1, {.accepted = true});
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
  exchange.Take(0, {.accepted = true});
  EXPECT_TRUE(exchange.is_accepted());
  const std::vector<Json> events = Events(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["choices"][0]["index"], 0);
  EXPECT_EQ(events[1]["choices"][0]["index"], 1);
  EXPECT_EQ(events[1]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
}

TEST(Exchange, WhatGatheredComesAsOnePiece) {
  Exchange exchange(nullptr, Options());
  exchange.Take(0, {.accepted = true});
  (void)exchange.TakeEvents();
  exchange.Take(0, {.pieces = {{TextPart::kThought, "<think>a"}, {TextPart::kThought, "b"}}});
  exchange.Take(0, {.pieces = {{TextPart::kThought, "</think>"}, {TextPart::kAnswer, "\nc"}}});
  exchange.Take(0, {.pieces = {{TextPart::kAnswer, "d"}}});
  const std::vector<Json> events = Events(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 1u);
  const Json& delta = events[0]["choices"][0]["delta"];
  EXPECT_EQ(delta["reasoning_content"], "ab");
  EXPECT_FALSE(delta.contains("reasoning"));
  EXPECT_EQ(delta["content"], "cd");
  EXPECT_TRUE(events[0]["choices"][0]["finish_reason"].is_null());
}

TEST(Exchange, ProgressOfThePromptComesInFrontOfTheAnswer) {
  Exchange exchange(nullptr, Options());
  exchange.Take(0, {.accepted = true});
  (void)exchange.TakeEvents();
  exchange.Take(0, {.progress = {{.total = 9, .cached = 3, .processed = 9, .seconds = 2}}});
  exchange.Take(0, {.pieces = {{TextPart::kAnswer, "a"}}});
  const std::vector<Json> events = Events(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 2u);
  const Json progress = {{"total", 9}, {"cache", 3}, {"processed", 9}, {"time_ms", 2000.0}};
  EXPECT_EQ(events[0]["prompt_progress"], progress);
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "a");
}

MemoryReport SomeMemory() {
  return {.num_tokens = 4,
          .rows = {5, 2, 0, 1},
          .page_bytes = {500, 200, 0, 0},
          .full_bytes = 800,
          .tiers = "0013"};
}

const Json& SomeMemoryJson() {
  static const Json json = {{"tokens", 4},
                            {"rows", {5, 2, 0, 1}},
                            {"bytes", {500, 200, 0}},
                            {"full_bytes", 800},
                            {"tiers", "0013"}};
  return json;
}

TEST(Exchange, MemoryComesBesideTheTextWhereItWasAskedFor) {
  ExchangeOptions options = Options();
  options.request.reports_memory = true;
  Exchange exchange(nullptr, options);
  exchange.Take(0, {.accepted = true});
  (void)exchange.TakeEvents();
  exchange.Take(
      0, {.pieces = {{TextPart::kAnswer, "ab"}},
          .tokens = {{.token = 7, .text = "a"}, {.token = 8, .text = "b", .guessed = true}}});
  exchange.Take(0, {.memory = MemoryReport{.num_tokens = 1}});
  exchange.Take(0, {.memory = SomeMemory()});
  std::vector<Json> events = Events(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["content"], "ab");
  const Json tokens = {{{"id", 7}, {"text", "a"}}, {{"id", 8}, {"text", "b"}, {"guessed", true}}};
  EXPECT_EQ(events[0]["ebb"]["tokens"], tokens);
  EXPECT_EQ(events[0]["ebb"]["memory"], SomeMemoryJson()) << "the newest report alone";
  // A report without text is sent as an event of its own.
  exchange.Take(0, {.memory = SomeMemory()});
  events = Events(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json::object());
  EXPECT_FALSE(events[0]["ebb"].contains("tokens")) << "each token comes once";
}

TEST(Exchange, AnAnswerInOnePieceHasItsMemory) {
  ExchangeOptions options = Options();
  options.request.reports_memory = true;
  options.request.streams = false;
  Exchange exchange(nullptr, options);
  exchange.Take(0, {.accepted = true, .tokens = {{.token = 7, .text = "a"}}});
  exchange.Take(0, {.memory = SomeMemory(), .end = Ended(FinishReason::kStop)});
  const Json own = exchange.Whole()["ebb"];
  EXPECT_EQ(own["memory"], SomeMemoryJson());
  EXPECT_EQ(own["tokens"].size(), 1u);
  EXPECT_EQ(own["finish"], "stop");
}

TEST(Exchange, MemoryIsNotToldUnlessItWasAskedFor) {
  Exchange exchange(nullptr, Options());
  exchange.Take(0, {.accepted = true});
  (void)exchange.TakeEvents();
  exchange.Take(0, {.tokens = {{.token = 7, .text = "a"}}, .memory = SomeMemory()});
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
}

TEST(Exchange, AThoughtIsToldUnderTheNamesThatTheServerWasAskedFor) {
  using Field = ReasoningField;
  for (const Field field : {Field::kReasoningContent, Field::kReasoning, Field::kBoth}) {
    for (const bool streams : {false, true}) {
      ExchangeOptions options = Options();
      options.request.streams = streams;
      options.reasoning_field = field;
      Exchange exchange(nullptr, options);
      exchange.Take(0, {.accepted = true});
      (void)exchange.TakeEvents();
      exchange.Take(0, {.pieces = {{TextPart::kThought, "<think>a</think>"}}});
      exchange.Take(0, {.end = Ended(FinishReason::kStop)});
      const Json said = streams ? Events(exchange.TakeEvents())[0]["choices"][0]["delta"]
                                : exchange.Whole()["choices"][0]["message"];
      EXPECT_EQ(said.contains("reasoning_content"), field != Field::kReasoning) << said.dump();
      EXPECT_EQ(said.contains("reasoning"), field != Field::kReasoningContent) << said.dump();
      EXPECT_EQ(said.value("reasoning", said.value("reasoning_content", "")), "a");
    }
  }
}

TEST(Exchange, ASeedThatWasDrawnIsTold) {
  ExchangeOptions options = Options();
  options.request.streams = false;
  options.request.drawn_seed = 9007199254740991;
  Exchange exchange(nullptr, options);
  exchange.Take(0, {.accepted = true, .end = Ended(FinishReason::kStop)});
  EXPECT_EQ(exchange.Whole()["ebb"]["seed"], 9007199254740991u);
}

TEST(Exchange, AStreamEndsWithItsReasonItsUsageAndDone) {
  Exchange exchange(nullptr, Options(2));
  for (size_t i = 0; i < 2; ++i) exchange.Take(i, {.accepted = true});
  (void)exchange.TakeEvents();
  exchange.Take(1, {.end = Ended(FinishReason::kLength)});
  std::vector<Json> events = Events(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[0]["timings"]["predicted_n"], 3);
  EXPECT_FALSE(exchange.is_over());
  exchange.Take(0, {.end = Ended(FinishReason::kStopString)});
  EXPECT_TRUE(exchange.is_over());
  events = Events(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[0]["ebb"]["finish"], "stop_string");
  EXPECT_EQ(events[1]["choices"], Json::array());
  // Two choices of one prompt count it once.
  EXPECT_EQ(events[1]["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(events[1]["usage"]["completion_tokens"], 6);
  EXPECT_EQ(events[1]["usage"]["completion_tokens_details"]["reasoning_tokens"], 4);
  EXPECT_EQ(events[1]["timings"]["predicted_n"], 3);
  EXPECT_EQ(events[2], "[DONE]");
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
}

TEST(Exchange, AnErrorBehindTheFirstEventIsTheLastOne) {
  Exchange exchange(nullptr, Options());
  exchange.Take(0, {.accepted = true, .pieces = {{TextPart::kAnswer, "so far"}}});
  JobEnd end = Ended(FinishReason::kError);
  end.error = IoError("the disk has gone");
  exchange.Take(0, {.end = end});
  EXPECT_EQ(exchange.error()->status, 500);
  const std::vector<Json> events = Events(exchange.TakeEvents());
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "so far");
  EXPECT_EQ(events.back()["error"]["message"], "the disk has gone");
  EXPECT_EQ(events.back()["error"]["code"], "internal_error");
}

TEST(Exchange, HowAJobEndedDecidesTheError) {
  struct Case {
    FinishReason finish;
    Status error;
    bool accepted;
    int status;
    std::string code;
  };
  const Case cases[] = {
      {FinishReason::kCap, InvalidArgument("priority: no"), false, 400, "invalid_value"},
      {FinishReason::kCap, OutOfMemory("too long"), false, 400, "request_too_large"},
      {FinishReason::kCap, OutOfMemory("no room"), true, 503, "out_of_memory"},
      {FinishReason::kError, InvalidArgument("no token"), true, 500, "internal_error"},
      {FinishReason::kCancelled, Cancelled("stopping"), true, 503, "cancelled"},
      {FinishReason::kContext, OutOfMemory("the context is full"), true, 0, ""},
  };
  for (const Case& one : cases) {
    Exchange exchange(nullptr, Options());
    if (one.accepted) exchange.Take(0, {.accepted = true});
    JobEnd end = Ended(one.finish);
    end.error = one.error;
    exchange.Take(0, {.end = end});
    EXPECT_EQ(exchange.error().has_value() ? exchange.error()->status : 0, one.status);
    EXPECT_EQ(exchange.error().has_value() ? exchange.error()->code : "", one.code);
  }
}

TEST(Exchange, AWholeAnswerHasNullForWhatIsNotThere) {
  ExchangeOptions options = Options();
  options.request.streams = false;
  options.request.reports_hash = true;
  Exchange exchange(nullptr, options);
  JobEnd end = Ended(FinishReason::kContext);
  end.logits_hash = 0xab;
  exchange.Take(0, {.accepted = true, .pieces = {{TextPart::kAnswer, "x"}}, .end = end});
  const Json whole = exchange.Whole();
  const Json& choice = whole["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "x");
  EXPECT_FALSE(choice["message"].contains("reasoning_content"));
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(whole["ebb"]["finish"], "context");
  EXPECT_EQ(whole["ebb"]["logits_hash"], "00000000000000ab");
}

TEST(Exchange, BytesThatAreNoTextDoNotBreakTheJson) {
  Exchange exchange(nullptr, Options());
  exchange.Take(0, {.accepted = true, .pieces = {{TextPart::kAnswer, "a\xff"}}});
  EXPECT_THAT(exchange.TakeEvents(), HasSubstr("a\xEF\xBF\xBD"));
}

}  // namespace
}  // namespace ebb::server
