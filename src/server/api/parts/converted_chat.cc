#include "src/server/api/parts/converted_chat.h"

#include <utility>

namespace ebb::server {

ApiError UnderNames(ApiError error, std::span<const FieldName> names) {
  for (const FieldName& name : names) {
    const std::string_view param = error.param;
    if (!param.starts_with(name.chat)) continue;
    const std::string_view rest = param.substr(name.chat.size());
    if (!rest.empty() && rest.front() != '.' && rest.front() != '[') continue;
    const std::string shown = std::string(name.shown) + std::string(rest);
    if (error.message.starts_with(error.param + ":")) {
      error.message.replace(0, error.param.size(), shown);
    }
    error.param = shown;
    break;
  }
  return error;
}

void ChatMessages::Add(Json message) {
  in_turn_ = false;
  messages_.push_back(std::move(message));
}

void ChatMessages::AddSystem(const std::string& text) {
  const bool is_leading =
      !messages_.empty() && messages_.size() == 1 && messages_.front()["role"] == "system";
  if (!is_leading) return Add({{"role", "system"}, {"content", text}});
  Json& content = messages_.front()["content"];
  content = content.get<std::string>() + "\n\n" + text;
}

void ChatMessages::AddUser(std::string text) {
  Add({{"role", "user"}, {"content", std::move(text)}});
}

void ChatMessages::AddToolAnswer(std::string call_id, std::string text) {
  Add({{"role", "tool"}, {"tool_call_id", std::move(call_id)}, {"content", std::move(text)}});
}

Json& ChatMessages::Turn() {
  if (!in_turn_) Add({{"role", "assistant"}, {"content", nullptr}});
  in_turn_ = true;
  return messages_.back();
}

void ChatMessages::AddThought(const std::string& text) {
  if (in_turn_) {
    const Json& turn = messages_.back();
    if (!turn["content"].is_null() || turn.contains("tool_calls")) EndTurn();
  }
  Json& thought = Turn()["reasoning_content"];
  thought = thought.is_null() ? text : thought.get<std::string>() + "\n\n" + text;
}

void ChatMessages::AddText(std::string text) {
  if (in_turn_ && !messages_.back()["content"].is_null()) EndTurn();
  if (in_turn_ && messages_.back().contains("tool_calls")) EndTurn();
  Turn()["content"] = std::move(text);
}

void ChatMessages::AddCall(std::string call_id, std::string name, Json arguments) {
  Json& calls = Turn()["tool_calls"];
  calls.push_back({{"id", std::move(call_id)},
                   {"type", "function"},
                   {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}});
}

}  // namespace ebb::server
