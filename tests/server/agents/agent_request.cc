#include "tests/server/agents/agent_request.h"

#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

using nlohmann::json;
using Kind = AgentStep::Kind;

constexpr const char* kPixel =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg==";

json Text(const char* type, const std::string& text) { return {{"type", type}, {"text", text}}; }

// Returns the arguments as the object that Messages require; arguments that were cut off become an
// empty object.
json Input(const AgentCall& call) {
  json input = json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
  return input.is_object() ? input : json::object();
}

json MessagesResult(const AgentResult& result) {
  json block = {{"type", "tool_result"}, {"tool_use_id", result.call_id}};
  if (result.is_error) block["is_error"] = true;
  block["content"] = result.text;
  if (!result.has_picture) return block;
  const json source = {{"type", "base64"}, {"media_type", "image/png"}, {"data", kPixel}};
  block["content"] = json::array({{{"type", "image"}, {"source", source}}});
  if (!result.text.empty()) block["content"].push_back(Text("text", result.text));
  return block;
}

json MessagesTurn(const AgentStep& step) {
  json content = json::array();
  switch (step.kind) {
    case Kind::kUser:
      return {{"role", "user"}, {"content", json::array({Text("text", step.text)})}};
    case Kind::kSystem:
      return {{"role", "system"}, {"content", step.text}};
    case Kind::kResults:
      for (const AgentResult& result : step.results) content.push_back(MessagesResult(result));
      if (!step.text.empty()) content.push_back(Text("text", step.text));
      return {{"role", "user"}, {"content", content}};
    case Kind::kAssistant:
      break;
  }
  if (!step.thought.empty()) {
    content.push_back({{"type", "thinking"}, {"thinking", step.thought}, {"signature", "ebb-0"}});
  }
  if (!step.text.empty()) content.push_back(Text("text", step.text));
  for (const AgentCall& call : step.calls) {
    content.push_back(
        {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Input(call)}});
  }
  return {{"role", "assistant"}, {"content", content}};
}

json MessagesBody(const AgentPreamble& preamble, const std::vector<AgentStep>& steps) {
  const json edit = {{"type", "clear_thinking_20251015"}, {"keep", "all"}};
  json body = {{"system", json::array()},
               {"messages", json::array()},
               {"tools", json::array()},
               {"metadata", {{"user_id", std::string(150, 'u')}}},
               {"thinking", {{"type", "adaptive"}, {"display", "updates"}}},
               {"context_management", {{"edits", json::array({edit})}}},
               {"output_config", {{"effort", "high"}}}};
  for (const std::string& text : preamble.system) body["system"].push_back(Text("text", text));
  if (!preamble.system.empty()) body["system"].back()["cache_control"] = {{"type", "ephemeral"}};
  for (const json& tool : preamble.tools) {
    body["tools"].push_back({{"name", tool["name"]},
                             {"description", tool["description"]},
                             {"input_schema", tool["schema"]}});
  }
  body["tools"].back()["defer_loading"] = true;
  for (const AgentStep& step : steps) body["messages"].push_back(MessagesTurn(step));
  // The cache mark moves to the last message with every turn.
  json& last = body["messages"].back()["content"];
  if (last.is_array()) last.back()["cache_control"] = {{"type", "ephemeral"}};
  return body;
}

void AddItems(const AgentStep& step, json* items) {
  const auto message = [&](const char* role, const char* type, const std::string& text) {
    items->push_back(
        {{"type", "message"}, {"role", role}, {"content", json::array({Text(type, text)})}});
  };
  switch (step.kind) {
    case Kind::kUser:
      return message("user", "input_text", step.text);
    case Kind::kSystem:
      return message("developer", "input_text", step.text);
    case Kind::kResults:
      for (const AgentResult& result : step.results) {
        json item = {{"type", "function_call_output"}, {"call_id", result.call_id}};
        item["output"] = result.text;
        if (result.has_picture) {
          const std::string url = fmt::format("data:image/png;base64,{}", kPixel);
          const json picture = {{"type", "input_image"}, {"image_url", url}, {"detail", "high"}};
          item["output"] = json::array({picture});
        }
        items->push_back(std::move(item));
      }
      if (!step.text.empty()) message("user", "input_text", step.text);
      return;
    case Kind::kAssistant:
      break;
  }
  if (!step.thought.empty()) {
    items->push_back({{"type", "reasoning"},
                      {"summary", json::array()},
                      {"content", json::array({Text("reasoning_text", step.thought)})}});
  }
  if (!step.text.empty()) message("assistant", "output_text", step.text);
  for (const AgentCall& call : step.calls) {
    items->push_back({{"type", "function_call"},
                      {"status", "completed"},
                      {"call_id", call.id},
                      {"name", call.name},
                      {"arguments", call.arguments}});
  }
}

json ResponsesBody(const AgentPreamble& preamble, const std::vector<AgentStep>& steps) {
  json body = {{"input", json::array()},
               {"tools", json::array()},
               {"tool_choice", "auto"},
               {"parallel_tool_calls", true},
               {"reasoning", {{"summary", "auto"}}},
               {"store", false},
               {"include", json::array({"reasoning.encrypted_content"})},
               {"prompt_cache_key", "01a221e7-5319-7003-b1e0-ed3e93482eda"},
               {"client_metadata", {{"turn_id", std::string(36, 't')}}}};
  for (const std::string& text : preamble.system) {
    body["input"].push_back({{"type", "message"},
                             {"role", "developer"},
                             {"content", json::array({Text("input_text", text)})}});
  }
  json nested = json::array();
  for (const json& tool : preamble.tools) {
    json function = {{"type", "function"},
                     {"name", tool["name"]},
                     {"description", tool["description"]},
                     {"strict", false},
                     {"parameters", tool["schema"]}};
    // The last third of the tools is in a namespace, as Codex sends tools of MCP servers and of
    // other agents.
    const bool is_nested = body["tools"].size() > preamble.tools.size() * 2 / 3;
    (is_nested ? nested : body["tools"]).push_back(std::move(function));
  }
  body["tools"].push_back({{"type", "namespace"},
                           {"name", "agents"},
                           {"description", "Starts other agents."},
                           {"tools", std::move(nested)}});
  for (const AgentStep& step : steps) AddItems(step, &body["input"]);
  return body;
}

void AddChatMessages(const AgentStep& step, json* messages) {
  switch (step.kind) {
    case Kind::kUser:
      messages->push_back({{"role", "user"}, {"content", step.text}});
      return;
    case Kind::kSystem:
      messages->push_back({{"role", "system"}, {"content", step.text}});
      return;
    case Kind::kResults:
      for (const AgentResult& result : step.results) {
        json message = {{"role", "tool"}, {"tool_call_id", result.call_id}};
        message["content"] = result.text;
        if (result.has_picture) {
          const std::string url = fmt::format("data:image/png;base64,{}", kPixel);
          message["content"] = {Text("text", result.text),
                                {{"type", "image_url"}, {"image_url", {{"url", url}}}}};
        }
        messages->push_back(std::move(message));
      }
      if (!step.text.empty()) messages->push_back({{"role", "user"}, {"content", step.text}});
      return;
    case Kind::kAssistant:
      break;
  }
  json message = {{"role", "assistant"}, {"content", step.text}};
  if (step.text.empty()) message["content"] = nullptr;
  if (!step.thought.empty()) message["reasoning_content"] = step.thought;
  for (const AgentCall& call : step.calls) {
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  messages->push_back(std::move(message));
}

json ChatBody(const AgentPreamble& preamble, const std::vector<AgentStep>& steps) {
  json body = {{"messages", json::array()}, {"tools", json::array()}};
  for (const std::string& text : preamble.system) {
    body["messages"].push_back({{"role", "system"}, {"content", text}});
  }
  for (const json& tool : preamble.tools) {
    body["tools"].push_back({{"type", "function"},
                             {"function",
                              {{"name", tool["name"]},
                               {"description", tool["description"]},
                               {"parameters", tool["schema"]}}}});
  }
  for (const AgentStep& step : steps) AddChatMessages(step, &body["messages"]);
  return body;
}

void TakeOwn(const json& whole, AgentReply* reply) {
  if (whole.contains("timings")) {
    reply->cached_tokens = whole["timings"]["cache_n"];
    reply->prompt_tokens = reply->cached_tokens + whole["timings"]["prompt_n"].get<int>();
  }
  if (whole.contains("ebb")) {
    reply->parks = whole["ebb"]["parks"];
    reply->logits_hash = whole["ebb"].value("logits_hash", "");
  }
}

void TakeMessage(const json& message, AgentReply* reply) {
  for (const json& block : message["content"]) {
    if (block["type"] == "thinking") reply->thought += block["thinking"];
    if (block["type"] == "text") reply->text += block["text"];
    if (block["type"] == "tool_use") {
      reply->calls.push_back({block["id"], block["name"], block["input"].dump()});
    }
  }
  TakeOwn(message, reply);
}

void TakeResponse(const json& response, AgentReply* reply) {
  for (const json& item : response["output"]) {
    if (item["type"] == "function_call") {
      reply->calls.push_back({item["call_id"], item["name"], item["arguments"]});
      continue;
    }
    for (const json& part : item["content"]) {
      (item["type"] == "reasoning" ? reply->thought : reply->text) += part["text"];
    }
  }
  TakeOwn(response, reply);
}

void TakeChatMessage(const json& message, AgentReply* reply) {
  if (message.contains("content") && message["content"].is_string()) {
    reply->text += message["content"];
  }
  if (message.contains("reasoning_content")) reply->thought += message["reasoning_content"];
  if (!message.contains("tool_calls")) return;
  for (const json& call : message["tool_calls"]) {
    const size_t index = call.value("index", reply->calls.size());
    if (index >= reply->calls.size()) reply->calls.resize(index + 1);
    AgentCall& taken = reply->calls[index];
    if (call.contains("id")) taken.id = call["id"];
    if (call["function"].contains("name")) taken.name = call["function"]["name"];
    taken.arguments += call["function"].value("arguments", "");
  }
}

// Joins the events of a stream of Messages.
void TakeMessageEvents(const std::vector<json>& events, AgentReply* reply) {
  for (const json& event : events) {
    if (event["type"] == "content_block_start" && event["content_block"]["type"] == "tool_use") {
      reply->calls.push_back({event["content_block"]["id"], event["content_block"]["name"], ""});
    }
    if (event["type"] == "message_delta") TakeOwn(event, reply);
    if (event["type"] != "content_block_delta") continue;
    const json& delta = event["delta"];
    if (delta["type"] == "thinking_delta") reply->thought += delta["thinking"];
    if (delta["type"] == "text_delta") reply->text += delta["text"];
    if (delta["type"] == "input_json_delta") reply->calls.back().arguments += delta["partial_json"];
  }
}

void TakeEvents(AgentApi api, const ClientAnswer& answer, AgentReply* reply) {
  std::vector<json> events;
  bool is_done = false;
  for (const std::string& data : answer.events()) {
    is_done = is_done || data == "[DONE]";
    if (data != "[DONE]") events.push_back(json::parse(data));
    if (events.empty() || !events.back().contains("error")) continue;
    if (!events.back()["error"].is_null()) reply->error = events.back().dump();
  }
  if (api == AgentApi::kMessages) {
    is_done = !events.empty() && events.back()["type"] == "message_stop";
    TakeMessageEvents(events, reply);
  } else if (api == AgentApi::kResponses) {
    const std::string last = events.empty() ? "" : events.back()["type"];
    is_done = last == "response.completed" || last == "response.incomplete";
    if (is_done) TakeResponse(events.back()["response"], reply);
  } else {
    for (const json& event : events) {
      if (!event["choices"].empty()) TakeChatMessage(event["choices"][0]["delta"], reply);
      TakeOwn(event, reply);
    }
  }
  if (!is_done && reply->error.empty()) reply->error = "the stream has no end: " + answer.body;
}

}  // namespace

const char* AgentPath(AgentApi api) {
  switch (api) {
    case AgentApi::kMessages:
      return "/v1/messages";
    case AgentApi::kResponses:
      return "/v1/responses";
    case AgentApi::kChat:
      break;
  }
  return "/v1/chat/completions";
}

json AgentBody(AgentApi api, const AgentPreamble& preamble, const std::vector<AgentStep>& steps) {
  switch (api) {
    case AgentApi::kMessages:
      return MessagesBody(preamble, steps);
    case AgentApi::kResponses:
      return ResponsesBody(preamble, steps);
    case AgentApi::kChat:
      break;
  }
  return ChatBody(preamble, steps);
}

void LimitAnswer(AgentApi api, int max_tokens, json* body) {
  (*body)[api == AgentApi::kResponses ? "max_output_tokens" : "max_tokens"] = max_tokens;
}

void DemandCall(AgentApi api, json* body) {
  (*body)["tool_choice"] = "required";
  if (api == AgentApi::kMessages) (*body)["tool_choice"] = {{"type", "any"}};
}

AgentReply ReadAgentReply(AgentApi api, const ClientAnswer& answer) {
  AgentReply reply{.status = answer.status};
  if (answer.status != 200) {
    reply.error = answer.body.empty() ? "no answer" : answer.body;
    return reply;
  }
  const auto type = answer.headers.find("content-type");
  if (type != answer.headers.end() && type->second.starts_with("text/event-stream")) {
    TakeEvents(api, answer, &reply);
    return reply;
  }
  const json whole = answer.json();
  if (api == AgentApi::kMessages) TakeMessage(whole, &reply);
  if (api == AgentApi::kResponses) TakeResponse(whole, &reply);
  if (api == AgentApi::kChat) {
    TakeChatMessage(whole["choices"][0]["message"], &reply);
    TakeOwn(whole, &reply);
  }
  return reply;
}

}  // namespace ebb::server
