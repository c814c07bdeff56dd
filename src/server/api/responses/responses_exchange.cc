#include "src/server/api/responses/responses_exchange.h"

#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

using Kind = AnswerPart::Kind;

// Returns the content part of an item with this text.
Json ContentPart(Kind kind, const std::string& text) {
  if (kind == Kind::kThought) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json SummaryPart(const std::string& text) { return {{"type", "summary_text"}, {"text", text}}; }

Json With(Json json, const Json& more) {
  json.update(more);
  return json;
}

// Adds the index 0 to an event, since each item has one content part, and a thought one summary.
Json OfContent(const Json& more) { return With({{"content_index", 0}}, more); }
Json OfSummary(const Json& more) { return With({{"summary_index", 0}}, more); }

}  // namespace

void ResponsesExchange::AddName(const std::string& name, Json* item) const {
  const auto found = request().responses->namespaced.find(name);
  if (found == request().responses->namespaced.end()) {
    (*item)["name"] = name;
    return;
  }
  (*item)["name"] = found->second.name;
  (*item)["namespace"] = found->second.space;
}

const char* ResponsesExchange::Status() const {
  if (error().has_value()) return "failed";
  if (end() == nullptr) return "in_progress";
  return EndedByItself(*end()) ? "completed" : "incomplete";
}

Json ResponsesExchange::Response(std::string_view status, Json output) const {
  Json response = {{"id", options().id},
                   {"object", "response"},
                   {"created_at", options().created},
                   {"status", status},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", options().model_id},
                   {"output", std::move(output)}};
  response.update(request().responses->echo);
  response["usage"] = nullptr;
  // The first events carry no error and no usage, even if they are sent after the answer has ended.
  if (status == "in_progress") return response;
  if (error().has_value()) {
    response["error"] = {{"code", "server_error"}, {"message", error()->message}};
    response["ebb"] = {{"code", error()->code}};
    return response;
  }
  if (status == "incomplete") response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  const Json usage = Usage();
  response["usage"] = {
      {"input_tokens", usage["prompt_tokens"]},
      {"input_tokens_details",
       {{"cached_tokens", usage["prompt_tokens_details"]["cached_tokens"]}}},
      {"output_tokens", usage["completion_tokens"]},
      {"output_tokens_details",
       {{"reasoning_tokens", usage["completion_tokens_details"]["reasoning_tokens"]}}},
      {"total_tokens", usage["total_tokens"]}};
  AddOwn(&response);
  return response;
}

std::string ResponsesExchange::ItemId(size_t part) const {
  const Kind kind = parts()[part].kind;
  const char* const prefix = kind == Kind::kThought ? "rs" : kind == Kind::kText ? "msg" : "fc";
  const size_t own = options().id.find('_') + 1;
  return fmt::format("{}_{}_{}", prefix, options().id.substr(own), part);
}

Json ResponsesExchange::Item(size_t index, std::string_view status) const {
  const AnswerPart& part = parts()[index];
  const bool is_empty = status == "in_progress";
  Json item = {{"id", ItemId(index)}};
  switch (part.kind) {
    case Kind::kThought:
      item["type"] = "reasoning";
      item["summary"] = Json::array();
      item["content"] = Json::array();
      if (!is_empty) item["content"].push_back(ContentPart(part.kind, part.text));
      if (!is_empty && request().responses->wants_summary)
        item["summary"].push_back(SummaryPart(part.text));
      break;
    case Kind::kText:
      item["type"] = "message";
      item["role"] = "assistant";
      item["content"] = Json::array();
      if (!is_empty) item["content"].push_back(ContentPart(part.kind, part.text));
      break;
    case Kind::kCall:
      item["type"] = "function_call";
      item["call_id"] = part.call_id;
      AddName(part.name, &item);
      item["arguments"] = is_empty ? "" : part.text;
      break;
  }
  item["status"] = status;
  return item;
}

// Returns a closed item; the last item of an answer that was cut off is incomplete.
Json ResponsesExchange::ClosedItem(size_t index) const {
  const bool is_cut = end() != nullptr && !EndedByItself(*end()) && index + 1 == parts().size();
  return Item(index, is_cut ? "incomplete" : "completed");
}

Json ResponsesExchange::Output() const {
  Json output = Json::array();
  for (size_t i = 0; i < parts().size(); ++i) output.push_back(ClosedItem(i));
  return output;
}

Json ResponsesExchange::Whole() const { return Response(Status(), Output()); }

void ResponsesExchange::Tell(std::string_view name, Json data, std::string* events) {
  Json json = {{"type", name}, {"sequence_number", sequence_number_++}};
  json.update(data);
  *events += NamedEvent(name, json);
}

void ResponsesExchange::TellOf(size_t part, std::string_view name, Json more, std::string* events) {
  Tell(name, With({{"item_id", ItemId(part)}, {"output_index", part}}, more), events);
}

void ResponsesExchange::TellOpened(size_t index, std::string* events) {
  const Kind kind = parts()[index].kind;
  Tell("response.output_item.added",
       {{"output_index", index}, {"item", Item(index, "in_progress")}}, events);
  if (kind == Kind::kCall) return;
  if (kind == Kind::kThought && request().responses->wants_summary) {
    TellOf(index, "response.reasoning_summary_part.added", OfSummary({{"part", SummaryPart("")}}),
           events);
  }
  TellOf(index, "response.content_part.added", OfContent({{"part", ContentPart(kind, "")}}),
         events);
}

void ResponsesExchange::TellGrown(size_t index, const std::string& text, std::string* events) {
  const Json delta = {{"delta", text}};
  switch (parts()[index].kind) {
    case Kind::kThought:
      if (request().responses->wants_summary) {
        TellOf(index, "response.reasoning_summary_text.delta", OfSummary(delta), events);
      }
      return TellOf(index, "response.reasoning_text.delta", OfContent(delta), events);
    case Kind::kText:
      return TellOf(index, "response.output_text.delta",
                    OfContent({{"delta", text}, {"logprobs", Json::array()}}), events);
    case Kind::kCall:
      return TellOf(index, "response.function_call_arguments.delta", delta, events);
  }
}

void ResponsesExchange::TellClosed(size_t index, std::string* events) {
  const AnswerPart& part = parts()[index];
  const Json text = {{"text", part.text}};
  switch (part.kind) {
    case Kind::kThought:
      if (request().responses->wants_summary) {
        TellOf(index, "response.reasoning_summary_text.done", OfSummary(text), events);
        TellOf(index, "response.reasoning_summary_part.done",
               OfSummary({{"part", SummaryPart(part.text)}}), events);
      }
      TellOf(index, "response.reasoning_text.done", OfContent(text), events);
      break;
    case Kind::kText:
      TellOf(index, "response.output_text.done",
             OfContent({{"text", part.text}, {"logprobs", Json::array()}}), events);
      break;
    case Kind::kCall: {
      Json call = Json::object();
      AddName(part.name, &call);
      call["arguments"] = part.text;
      TellOf(index, "response.function_call_arguments.done", std::move(call), events);
      break;
    }
  }
  if (part.kind != Kind::kCall) {
    TellOf(index, "response.content_part.done",
           OfContent({{"part", ContentPart(part.kind, part.text)}}), events);
  }
  Tell("response.output_item.done", {{"output_index", index}, {"item", ClosedItem(index)}}, events);
}

std::string ResponsesExchange::TakeEvents() {
  std::string events;
  if (sent_end_ || !is_accepted()) return events;
  if (!std::exchange(sent_begin_, true)) {
    // The first events show an empty response even if they are sent late.
    Json begin = {{"response", Response("in_progress", Json::array())}};
    Tell("response.created", begin, &events);
    Tell("response.in_progress", std::move(begin), &events);
  }
  for (const PromptProgress& progress : std::exchange(choice(0).progress, {})) {
    Tell("response.in_progress",
         {{"response", Response("in_progress", Json::array())},
          {"prompt_progress", ProgressJson(progress)}},
         &events);
  }
  for (const PartEvent& event : TakePartEvents()) {
    switch (event.kind) {
      case PartEvent::Kind::kOpened:
        TellOpened(event.part, &events);
        break;
      case PartEvent::Kind::kGrew:
        TellGrown(event.part, event.text, &events);
        break;
      case PartEvent::Kind::kClosed:
        TellClosed(event.part, &events);
        break;
    }
  }
  if (!is_over()) return events;
  sent_end_ = true;
  Tell(fmt::format("response.{}", Status()), {{"response", Whole()}}, &events);
  return events;
}

}  // namespace ebb::server
