#include "src/server/api/converted_chat.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/server/api/json_fields.h"

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

void ChatMessages::AddCall(std::string call_id, std::string name, std::string arguments) {
  Json& calls = Turn()["tool_calls"];
  calls.push_back({{"id", std::move(call_id)},
                   {"type", "function"},
                   {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}});
}

std::string ContentText(const Json* content, const std::string& path,
                        std::span<const std::string_view> types, std::optional<ApiError>* error) {
  if (content == nullptr || content->is_null()) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    Fail(path, "expected a string or an array of parts", "invalid_type", error);
    return "";
  }
  std::string text;
  for (size_t i = 0; i < content->size() && !error->has_value(); ++i) {
    const std::string part_path = fmt::format("{}[{}]", path, i);
    const Json& part = (*content)[i];
    if (!part.is_object()) {
      Fail(part_path, "expected an object", "invalid_type", error);
      break;
    }
    JsonFields fields(part, part_path, error);
    const std::string type = fields.Text("type").value_or("");
    const auto part_text = fields.Text(type == "refusal" ? "refusal" : "text");
    if (std::ranges::find(types, type) == types.end() || !part_text.has_value()) {
      Fail(part_path,
           fmt::format("expected a text, of type {}, found \"{}\"; images, audio and files are "
                       "not supported",
                       fmt::join(types, " or "), type),
           "unsupported", error);
      break;
    }
    text += *part_text;
  }
  return text;
}

void Fail(const std::string& path, const std::string& message, std::string code,
          std::optional<ApiError>* error) {
  if (error->has_value()) return;
  *error = Invalid(fmt::format("{}: {}", path, message), path, std::move(code));
}

}  // namespace ebb::server
