#include "src/server/api/messages/messages_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/server/api/error_form.h"
#include "src/server/api/openai/events_for_test.h"

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

MessagesExchange MakeMessages(bool streams, std::vector<std::string> stops = {}) {
  ChatPrompt prompt;
  prompt.thinking_start = "<think>";
  prompt.thinking_end = "</think>";
  ExchangeOptions options = {.id = "msg_1", .model_id = "m"};
  options.request = {.streams = streams,
                     .stop_sequences = std::move(stops),
                     .prompt = std::make_shared<const ChatPrompt>(std::move(prompt)),
                     .prompt_tokens = 5};
  return {nullptr, std::move(options)};
}

JobEnd EndedBy(std::string stop) {
  JobEnd end = Ended(FinishReason::kStopString);
  end.stop_string = std::move(stop);
  return end;
}

TEST(MessagesExchange, EventsComeInTheOrderOfTheInterface) {
  MessagesExchange exchange = MakeMessages(/*streams=*/true);
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
  exchange.Take(0, {.accepted = true});
  std::string text = exchange.TakeEvents();
  exchange.Take(0, Said(TextPart::kThought, "<think>hmm</think>"));
  text += exchange.TakeEvents();
  exchange.Take(0, Said(TextPart::kAnswer, "\nIt is 9"));
  text += exchange.TakeEvents();
  exchange.Take(0, {.end = Ended(FinishReason::kStop)});
  text += exchange.TakeEvents();
  EXPECT_THAT(exchange.TakeEvents(), IsEmpty());
  const std::vector<Json> events = NamedEvents(text);
  EXPECT_THAT(
      Types(events),
      ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                  "content_block_delta", "content_block_stop", "content_block_start",
                  "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events[0]["message"]["usage"]["input_tokens"], 5);
  EXPECT_EQ(events[2]["content_block"]["type"], "thinking");
  EXPECT_EQ(events[3]["delta"]["thinking"], "hmm");
  EXPECT_EQ(events[4]["delta"]["type"], "signature_delta");
  EXPECT_EQ(events[4]["delta"]["signature"], ThoughtSignature("hmm"));
  EXPECT_EQ(events[6]["index"], 1);
  EXPECT_EQ(events[7]["delta"]["text"], "It is 9");
  EXPECT_EQ(events[9]["delta"]["stop_reason"], "end_turn");
  EXPECT_EQ(events[9]["usage"]["output_tokens"], 3);
}

TEST(MessagesExchange, AnAnswerInOnePieceHasBlocks) {
  MessagesExchange exchange = MakeMessages(/*streams=*/false);
  exchange.Take(0, {.accepted = true});
  exchange.Take(0, Said(TextPart::kThought, "<think>hm</think>"));
  exchange.Take(0, Said(TextPart::kAnswer, "9"));
  exchange.Take(0, {.end = Ended(FinishReason::kStop)});
  const Json whole = exchange.Whole();
  EXPECT_EQ(whole["type"], "message");
  EXPECT_EQ(whole["content"],
            Json::array(
                {{{"type", "thinking"}, {"thinking", "hm"}, {"signature", ThoughtSignature("hm")}},
                 {{"type", "text"}, {"text", "9"}}}));
  EXPECT_EQ(whole["usage"]["input_tokens"], 5);
  EXPECT_NE(ThoughtSignature("hm"), ThoughtSignature("hmm"));
}

TEST(MessagesExchange, ReasonsToStopAreThoseOfTheInterface) {
  const auto end = [](JobEnd how) {
    MessagesExchange exchange = MakeMessages(/*streams=*/false, {"END"});
    exchange.Take(0, {.accepted = true, .end = std::move(how)});
    const Json whole = exchange.Whole();
    return whole["stop_reason"].get<std::string>() + "," + whole["stop_sequence"].dump();
  };
  EXPECT_EQ(end(Ended(FinishReason::kStop)), "end_turn,null");
  EXPECT_EQ(end(Ended(FinishReason::kLength)), "max_tokens,null");
  EXPECT_EQ(end(Ended(FinishReason::kContext)), "model_context_window_exceeded,null");
  EXPECT_EQ(end(EndedBy("END")), "stop_sequence,\"END\"");
  // A stop string of the template is not reported.
  EXPECT_EQ(end(EndedBy("<|end|>")), "end_turn,null");
}

TEST(MessagesExchange, AnErrorBehindTheFirstEventIsTheLastOne) {
  MessagesExchange exchange = MakeMessages(/*streams=*/true);
  exchange.Take(0, {.accepted = true});
  JobEnd end = Ended(FinishReason::kCancelled);
  end.error = Cancelled("stopping");
  exchange.Take(0, {.end = end});
  const std::vector<Json> events = NamedEvents(exchange.TakeEvents());
  EXPECT_EQ(events.back(), Json::parse(R"({"type": "error", "error": {"type": "overloaded_error",
      "message": "stopping"}})"));
}

// Kept records the answer that is sent.
class Kept final : public Reply {
 public:
  explicit Kept(HttpAnswer* answer) : answer_(answer) {}
  void Send(HttpAnswer answer) override { *answer_ = std::move(answer); }
  void Stream(HttpAnswer, std::function<std::string()>) override {}
  void NotifyData() override {}
  void EndStream() override {}
  void OnDisconnect(std::function<void()>) override {}

 private:
  HttpAnswer* const answer_;
};

TEST(MessagesErrors, AreInTheirOwnForm) {
  HttpAnswer answer;
  const auto reply = WithErrorsInFormOf("/v1/messages", std::make_shared<Kept>(&answer));
  for (const auto& [status, type] : {std::pair{400, "invalid_request_error"},
                                     {401, "authentication_error"},
                                     {403, "permission_error"},
                                     {404, "not_found_error"},
                                     {413, "request_too_large"},
                                     {429, "rate_limit_error"},
                                     {500, "api_error"},
                                     {503, "overloaded_error"}}) {
    HttpAnswer error = ErrorAnswer({.status = status, .message = "no", .retry_after = 2.0});
    reply->Send(error);
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(answer.headers, error.headers);
    EXPECT_EQ(Json::parse(answer.body),
              (Json{{"type", "error"}, {"error", {{"type", type}, {"message", "no"}}}}));
  }
  reply->Send({.body = R"({"error": {"message": "no error at all"}})"});
  EXPECT_EQ(answer.body, R"({"error": {"message": "no error at all"}})");
  reply->Send({.status = 502, .body = "no JSON"});
  EXPECT_EQ(answer.body, "no JSON");
}

}  // namespace
}  // namespace ebb::server
