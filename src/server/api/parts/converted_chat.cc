#include "src/server/api/parts/converted_chat.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/server/api/json_fields.h"

namespace ebb::server {
namespace {

const Json* Member(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

const Json* ObjectMember(const Json& json, const char* name) {
  const Json* const member = Member(json, name);
  return member != nullptr && member->is_object() ? member : nullptr;
}

// Empty where there is none.
std::string TextMember(const Json& json, const char* name) {
  const Json* const member = Member(json, name);
  return member != nullptr && member->is_string() ? member->get<std::string>() : "";
}

// The texts of the parts of a member, which may be one text itself.
std::string TextsOf(const Json& json, const char* name) {
  const Json* const parts = Member(json, name);
  if (parts == nullptr || !parts->is_array()) return TextMember(json, name);
  std::string text;
  for (const Json& part : *parts) {
    if (part.is_object()) text += TextMember(part, "text");
  }
  return text;
}

}  // namespace

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

std::string ContentText(const Json* content, const std::string& path, const ContentRules& rules,
                        std::optional<ApiError>* error) {
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
    const bool is_text = std::ranges::find(rules.types, type) != rules.types.end();
    if (!is_text && rules.ignored != nullptr) {
      if (!text.empty() && !text.ends_with('\n')) text += '\n';
      text += StandInFor(part, part_path, rules.ignored);
      if (i + 1 < content->size()) text += '\n';
      continue;
    }
    if (!is_text) {
      Fail(part_path,
           fmt::format("expected a part of type {}, found \"{}\": this model reads text only",
                       fmt::join(rules.types, " or "), type),
           "unsupported", error);
      break;
    }
    const auto part_text = fields.Text(type == "refusal" ? "refusal" : "text");
    if (!part_text.has_value()) Fail(part_path, "expected a text", "missing_field", error);
    text += part_text.value_or("");
  }
  return text;
}

std::string StandInFor(const Json& part, const std::string& path,
                       std::vector<std::string>* ignored) {
  const std::string type = TextMember(part, "type");
  if (type == "search_result") {
    return fmt::format("{}\n{}\n{}", TextMember(part, "title"), TextMember(part, "source"),
                       TextsOf(part, "content"));
  }
  const Json* const source = ObjectMember(part, "source");
  if (type == "document" && source != nullptr) {
    const std::string kind = TextMember(*source, "type");
    if (kind == "text") return TextMember(part, "title") + "\n" + TextMember(*source, "data");
    if (kind == "content") return TextsOf(*source, "content");
  }
  ignored->push_back(path);
  if (type == "tool_reference") {
    return fmt::format("[tool_reference: {}]", TextMember(part, "tool_name"));
  }
  std::string_view name = type;
  constexpr std::string_view kInput = "input_", kUrl = "_url";
  if (name.starts_with(kInput)) name.remove_prefix(kInput.size());
  if (name.ends_with(kUrl)) name.remove_suffix(kUrl.size());
  constexpr size_t kMostBytes = 40;
  return fmt::format("[{}: this model reads text only]", name.substr(0, kMostBytes));
}

void Fail(const std::string& path, const std::string& message, std::string code,
          std::optional<ApiError>* error) {
  if (error->has_value()) return;
  *error = Invalid(fmt::format("{}: {}", path, message), path, std::move(code));
}

}  // namespace ebb::server
