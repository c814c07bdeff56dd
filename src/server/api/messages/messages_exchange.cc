#include "src/server/api/messages/messages_exchange.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

using Kind = AnswerPart::Kind;

// Returns a call's arguments as an object. Text that was cut off or is no object is wrapped in one,
// in a form that Anthropic's API accepts back.
Json InputJson(const std::string& arguments) {
  Json input = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (input.is_object()) return input;
  if (arguments.empty()) return Json::object();
  return {{"INVALID_JSON", arguments}};
}

// Returns the block of a part before any of its text is sent.
Json EmptyBlock(const AnswerPart& part) {
  switch (part.kind) {
    case Kind::kThought:
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    case Kind::kText:
      return {{"type", "text"}, {"text", ""}};
    case Kind::kCall:
      break;
  }
  return {
      {"type", "tool_use"}, {"id", part.call_id}, {"name", part.name}, {"input", Json::object()}};
}

Json Block(const AnswerPart& part) {
  Json block = EmptyBlock(part);
  switch (part.kind) {
    case Kind::kThought:
      block["thinking"] = part.text;
      block["signature"] = ThoughtSignature(part.text);
      break;
    case Kind::kText:
      block["text"] = part.text;
      break;
    case Kind::kCall:
      block["input"] = InputJson(part.text);
      break;
  }
  return block;
}

Json Delta(Kind kind, const std::string& text) {
  switch (kind) {
    case Kind::kThought:
      return {{"type", "thinking_delta"}, {"thinking", text}};
    case Kind::kText:
      return {{"type", "text_delta"}, {"text", text}};
    case Kind::kCall:
      break;
  }
  return {{"type", "input_json_delta"}, {"partial_json", text}};
}

// Returns Anthropic's name of an error; only two differ from OpenAI's.
std::string_view MessagesErrorType(int status) {
  if (status == 413) return "request_too_large";
  const std::string_view type = ErrorType(status);
  return type == "server_error" ? "api_error" : type;
}

}  // namespace

// Returns the usage. `input_tokens` excludes the tokens that the prefix cache had.
Json MessagesExchange::TokenUsage() const {
  const Json usage = Usage();
  const int cached = usage["prompt_tokens_details"]["cached_tokens"];
  return {{"input_tokens", usage["prompt_tokens"].get<int>() - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", usage["completion_tokens"]}};
}

void MessagesExchange::AddStop(Json* json) const {
  const JobEnd& how = *end();
  const std::vector<std::string>& stops = request().stop_sequences;
  const bool is_asked_for = how.finish == FinishReason::kStopString &&
                            std::ranges::find(stops, how.stop_string) != stops.end();
  std::string reason = "end_turn";
  if (how.finish == FinishReason::kContext) {
    reason = "model_context_window_exceeded";
  } else if (!EndedByItself(how)) {
    reason = "max_tokens";
  } else if (is_asked_for) {
    reason = "stop_sequence";
  } else if (choice(0).reader.has_calls()) {
    reason = "tool_use";
  }
  (*json)["stop_reason"] = reason;
  (*json)["stop_sequence"] = is_asked_for ? Json(how.stop_string) : Json();
}

Json MessagesExchange::Message(Json content) const {
  return {{"id", options().id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", options().model_id},
          {"content", std::move(content)},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

Json MessagesExchange::Whole() const {
  Json content = Json::array();
  for (const AnswerPart& part : parts()) content.push_back(Block(part));
  Json message = Message(std::move(content));
  AddStop(&message);
  message["usage"] = TokenUsage();
  AddOwn(&message);
  return message;
}

void MessagesExchange::Tell(const PartEvent& event, std::string* events) const {
  const AnswerPart& part = parts()[event.part];
  const auto delta = [&](const Json& json) {
    *events +=
        NamedEvent("content_block_delta",
                   {{"type", "content_block_delta"}, {"index", event.part}, {"delta", json}});
  };
  switch (event.kind) {
    case PartEvent::Kind::kOpened:
      *events += NamedEvent("content_block_start", {{"type", "content_block_start"},
                                                    {"index", event.part},
                                                    {"content_block", EmptyBlock(part)}});
      break;
    case PartEvent::Kind::kGrew:
      delta(Delta(part.kind, event.text));
      break;
    case PartEvent::Kind::kClosed:
      if (part.kind == Kind::kThought) {
        delta({{"type", "signature_delta"}, {"signature", ThoughtSignature(part.text)}});
      }
      *events +=
          NamedEvent("content_block_stop", {{"type", "content_block_stop"}, {"index", event.part}});
      break;
  }
}

std::string MessagesExchange::TakeEvents() {
  std::string events;
  if (sent_end_ || !is_accepted()) return events;
  if (!std::exchange(sent_begin_, true)) {
    Json message = Message(Json::array());
    message["usage"] = {{"input_tokens", request().prompt_tokens}, {"output_tokens", 0}};
    events +=
        NamedEvent("message_start", {{"type", "message_start"}, {"message", std::move(message)}});
    events += NamedEvent("ping", {{"type", "ping"}});
  }
  for (const PartEvent& event : TakePartEvents()) Tell(event, &events);
  if (!is_over()) return events;
  sent_end_ = true;
  if (error().has_value()) {
    return events += NamedEvent("error", MessagesErrorJson(error()->status, error()->message));
  }
  Json end = {{"type", "message_delta"}};
  AddStop(&end["delta"]);
  end["usage"] = TokenUsage();
  AddOwn(&end);
  events += NamedEvent("message_delta", end);
  return events += NamedEvent("message_stop", {{"type", "message_stop"}});
}

// Hashes by FNV-1a, so that all servers compute the same signature.
std::string ThoughtSignature(std::string_view thought) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : thought) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("ebb-{:016x}", hash);
}

Json MessagesErrorJson(int status, const std::string& message) {
  return {{"type", "error"},
          {"error", {{"type", MessagesErrorType(status)}, {"message", message}}}};
}

HttpAnswer AsMessagesError(HttpAnswer answer) {
  if (answer.status < 400) return answer;
  const Json body = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  const bool is_known = body.is_object() && body.contains("error") && body["error"].is_object() &&
                        body["error"].contains("message") && body["error"]["message"].is_string();
  if (is_known) {
    answer.body =
        Dump(MessagesErrorJson(answer.status, body["error"]["message"].get<std::string>()));
  }
  return answer;
}

}  // namespace ebb::server
