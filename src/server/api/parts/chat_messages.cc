#include "src/server/api/parts/chat_messages.h"

#include <utility>

#include "src/server/api/base/json_fields.h"

namespace ebb::server {

void ChatMessages::Add(ChatMessage message) {
  in_turn_ = has_text_ = false;
  messages_.push_back(std::move(message));
}

void ChatMessages::AddSystem(const std::string& text) {
  const bool is_leading = messages_.size() == 1 && messages_.front().role == "system";
  if (!is_leading) return Add({.role = "system", .content = text});
  messages_.front().content += "\n\n" + text;
}

void ChatMessages::AddUser(std::string text) { Add({.role = "user", .content = std::move(text)}); }

void ChatMessages::AddToolAnswer(std::string call_id, std::string text) {
  Add({.role = "tool", .content = std::move(text), .tool_call_id = std::move(call_id)});
}

ChatMessage& ChatMessages::Turn() {
  if (!in_turn_) Add({.role = "assistant"});
  in_turn_ = true;
  return messages_.back();
}

void ChatMessages::AddThought(const std::string& text) {
  if (in_turn_ && (has_text_ || !messages_.back().tool_calls.empty())) EndTurn();
  std::string& thought = Turn().reasoning_content;
  thought += (thought.empty() ? "" : "\n\n") + text;
}

void ChatMessages::AddText(std::string text) {
  if (in_turn_ && (has_text_ || !messages_.back().tool_calls.empty())) EndTurn();
  Turn().content = std::move(text);
  has_text_ = true;
}

void ChatMessages::AddCall(std::string call_id, std::string name, const Json& arguments) {
  Turn().tool_calls.push_back(
      {.name = std::move(name), .arguments = ArgumentsText(arguments), .id = std::move(call_id)});
}

}  // namespace ebb::server
