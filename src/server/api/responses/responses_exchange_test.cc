#include "src/server/api/responses/responses_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/server/api/openai/events_for_test.h"

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ResponsesExchange MakeResponses(bool streams, bool wants_summary = false) {
  ChatPrompt prompt;
  prompt.thinking_start = "<think>";
  prompt.thinking_end = "</think>";
  ExchangeOptions options = {.id = "resp_1", .model_id = "m"};
  options.request = {.streams = streams,
                     .responses = std::make_shared<ResponsesAnswer>(ResponsesAnswer{
                         .echo = {{"metadata", {{"a", "b"}}}}, .wants_summary = wants_summary}),
                     .prompt = std::make_shared<const ChatPrompt>(std::move(prompt))};
  return {nullptr, std::move(options)};
}

TEST(ResponsesExchange, EventsComeInTheOrderOfTheInterface) {
  ResponsesExchange exchange = MakeResponses(/*streams=*/true);
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
  exchange.Take(0, {.accepted = true});
  std::string text = exchange.TakeEvents();
  exchange.Take(0, Said(TextPart::kThought, "<think>hm"));
  text += exchange.TakeEvents();
  exchange.Take(0, Said(TextPart::kThought, "m</think>"));
  text += exchange.TakeEvents();
  exchange.Take(0, Said(TextPart::kAnswer, "\nIt is"));
  text += exchange.TakeEvents();
  exchange.Take(0, Said(TextPart::kAnswer, " 9"));
  text += exchange.TakeEvents();
  exchange.Take(0, {.end = Ended(FinishReason::kStop)});
  text += exchange.TakeEvents();
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
  const std::vector<Json> events = NamedEvents(text);
  EXPECT_THAT(Types(events),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.reasoning_text.delta",
                          "response.reasoning_text.delta", "response.reasoning_text.done",
                          "response.content_part.done", "response.output_item.done",
                          "response.output_item.added", "response.content_part.added",
                          "response.output_text.delta", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.completed"));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_TRUE(events[0]["response"]["usage"].is_null());
  EXPECT_EQ(events[6]["text"], "hmm");
  EXPECT_EQ(events[9]["output_index"], 1);
  EXPECT_EQ(events[9]["item"]["content"], Json::array());
  EXPECT_EQ(events[11]["item_id"], events[9]["item"]["id"]);
  EXPECT_EQ(events[13]["text"], "It is 9");
  const Json& whole = events.back()["response"];
  EXPECT_EQ(whole["output"][1], events[15]["item"]);
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "It is 9");
  EXPECT_EQ(whole["metadata"]["a"], "b");
  EXPECT_EQ(whole["usage"]["input_tokens"], 5);
  EXPECT_EQ(whole["usage"]["output_tokens"], 3);
  EXPECT_EQ(whole["usage"]["total_tokens"], 8);
  EXPECT_EQ(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 2);
  EXPECT_EQ(whole["ebb"]["finish"], "stop");
}

TEST(ResponsesExchange, AnAnswerInOnePieceIsThatOfTheStream) {
  Json wholes[2];
  for (const bool streams : {false, true}) {
    ResponsesExchange exchange = MakeResponses(streams);
    exchange.Take(0, {.accepted = true});
    exchange.Take(0, Said(TextPart::kThought, "<think>hm</think>"));
    exchange.Take(0, Said(TextPart::kAnswer, "9"));
    exchange.Take(0, {.end = Ended(FinishReason::kStop)});
    wholes[streams] =
        streams ? NamedEvents(exchange.TakeEvents()).back()["response"] : exchange.Whole();
  }
  EXPECT_EQ(wholes[0], wholes[1]);
}

TEST(ResponsesExchange, AStreamThatIsReadLateTellsTheSame) {
  ResponsesExchange exchange = MakeResponses(/*streams=*/true);
  exchange.Take(0, {.accepted = true});
  exchange.Take(0, Said(TextPart::kAnswer, "a"));
  exchange.Take(0, Said(TextPart::kAnswer, "b"));
  exchange.Take(0, {.end = Ended(FinishReason::kStop)});
  const std::vector<Json> events = NamedEvents(exchange.TakeEvents());
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_FALSE(events[0]["response"].contains("ebb"));
  EXPECT_EQ(events[4]["delta"], "ab");
  EXPECT_EQ(events.back()["type"], "response.completed");
}

TEST(ResponsesExchange, ProgressOfThePromptIsToldWhileTheResponseIsInProgress) {
  ResponsesExchange exchange = MakeResponses(/*streams=*/true);
  exchange.Take(0, {.accepted = true, .progress = {{.total = 9, .cached = 3, .processed = 3}}});
  const std::vector<Json> events = NamedEvents(exchange.TakeEvents());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2]["type"], "response.in_progress");
  EXPECT_EQ(events[2]["prompt_progress"]["total"], 9);
  EXPECT_EQ(events[2]["prompt_progress"]["cache"], 3);
}

TEST(ResponsesExchange, ASummaryIsTheThoughtForThoseWhoAsk) {
  ResponsesExchange exchange = MakeResponses(/*streams=*/true, /*wants_summary=*/true);
  exchange.Take(0, {.accepted = true});
  exchange.Take(0, Said(TextPart::kThought, "<think>hm"));
  exchange.Take(0, {.end = Ended(FinishReason::kStop)});
  const std::vector<Json> events = NamedEvents(exchange.TakeEvents());
  EXPECT_THAT(
      Types(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.reasoning_summary_part.added", "response.content_part.added",
                  "response.reasoning_summary_text.delta", "response.reasoning_text.delta",
                  "response.reasoning_summary_text.done", "response.reasoning_summary_part.done",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.completed"));
  EXPECT_EQ(events.back()["response"]["output"][0]["summary"][0]["text"], "hm");
}

TEST(ResponsesExchange, AnAnswerThatWasCutOffIsIncomplete) {
  ResponsesExchange exchange = MakeResponses(/*streams=*/true);
  exchange.Take(0, {.accepted = true});
  exchange.Take(0, Said(TextPart::kAnswer, "so f"));
  exchange.Take(0, {.end = Ended(FinishReason::kLength)});
  const std::vector<Json> events = NamedEvents(exchange.TakeEvents());
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  const Json& whole = events.back()["response"];
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["output"][0]["status"], "incomplete");
}

TEST(ResponsesExchange, AnErrorBehindTheFirstEventIsAResponseThatFailed) {
  ResponsesExchange exchange = MakeResponses(/*streams=*/true);
  exchange.Take(0, {.accepted = true});
  exchange.Take(0, Said(TextPart::kAnswer, "so far"));
  JobEnd end = Ended(FinishReason::kError);
  end.error = IoError("the disk has gone");
  exchange.Take(0, {.end = end});
  const std::vector<Json> events = NamedEvents(exchange.TakeEvents());
  EXPECT_EQ(events.back()["type"], "response.failed");
  const Json& whole = events.back()["response"];
  EXPECT_EQ(whole["status"], "failed");
  EXPECT_EQ(whole["error"]["message"], "the disk has gone");
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "so far");
}

}  // namespace
}  // namespace ebb::server
