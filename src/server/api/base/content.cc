#include "src/server/api/base/content.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/base/json_fields.h"

namespace ebb::server {
namespace {

using Names = std::initializer_list<const char*>;
using Kind = MessagePart::Kind;

constexpr std::string_view kTextTypes[] = {"text", "input_text", "output_text", "summary_text"};
constexpr std::string_view kCallTypes[] = {"tool_use", "tool_call", "function_call"};
constexpr std::string_view kResultTypes[] = {"tool_result", "tool_response",
                                             "function_call_output"};

bool IsOneOf(std::string_view type, std::span<const std::string_view> types) {
  return std::ranges::find(types, type) != types.end();
}

// Returns the first of the members `names` that is present and not null; null: none is.
const Json* FirstMember(const Json& json, Names names) {
  for (const char* name : names) {
    const auto found = json.find(name);
    if (found != json.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

// Returns the first of the members `names` that is a text; empty: none is.
std::string FirstText(const Json& json, Names names) {
  for (const char* name : names) {
    const auto found = json.find(name);
    if (found != json.end() && found->is_string()) return found->get<std::string>();
  }
  return "";
}

const Json* ObjectMember(const Json& json, const char* name) {
  const Json* const member = FirstMember(json, {name});
  return member != nullptr && member->is_object() ? member : nullptr;
}

bool IsThoughtType(std::string_view type) {
  constexpr std::string_view kBegins[] = {"thinking", "reasoning", "thought", "redacted_"};
  return std::ranges::any_of(kBegins, [&](auto begin) { return type.starts_with(begin); });
}

// Returns a placeholder line, "[image: this model reads text only]".
std::string StandInFor(std::string_view type) {
  constexpr std::string_view kInput = "input_", kUrl = "_url";
  if (type.starts_with(kInput)) type.remove_prefix(kInput.size());
  if (type.ends_with(kUrl)) type.remove_suffix(kUrl.size());
  constexpr size_t kMostBytes = 40;
  return fmt::format("[{}: this model reads text only]", type.substr(0, kMostBytes));
}

// Returns the text of a part that has it in another member, such as a search result, a document, a
// resource or JSON; for a part without a type, all of its JSON.
std::optional<std::string> TextWithin(const Json& part, const std::string& type) {
  std::vector<std::string> lost;
  const auto within = [&](const Json& json, Names names) {
    return ResultText(FirstMember(json, names), "", &lost);
  };
  if (type.empty()) return Dump(part);
  if (type == "search_result") {
    return fmt::format("{}\n{}\n{}", FirstText(part, {"title"}), FirstText(part, {"source"}),
                       within(part, {"content"}));
  }
  if (type == "json") {
    const Json* const value = FirstMember(part, {"json", "value", "data"});
    return value == nullptr ? std::string("null") : Dump(*value);
  }
  if (const Json* const resource = ObjectMember(part, "resource")) {
    if (const Json* text = FirstMember(*resource, {"text"}); text != nullptr && text->is_string()) {
      return text->get<std::string>();
    }
  }
  const Json* const source = ObjectMember(part, "source");
  if (type != "document" || source == nullptr) return std::nullopt;
  const std::string kind = FirstText(*source, {"type"});
  if (kind == "text") return FirstText(part, {"title"}) + "\n" + FirstText(*source, {"data"});
  if (kind == "content") return within(*source, {"content"});
  return std::nullopt;
}

MessagePart ReadThoughtPart(const Json& json, MessagePart part) {
  part.kind = Kind::kThought;
  std::vector<std::string> lost;
  part.text = ResultText(FirstMember(json, {"thinking", "reasoning", "reasoning_content", "thought",
                                            "text", "content", "summary"}),
                         part.path, &lost);
  // A thought that another server encrypted or redacted cannot be used here.
  part.is_lost = part.text.empty() && FirstMember(json, {"data", "encrypted_content"}) != nullptr;
  return part;
}

MessagePart ReadPart(const Json& json, const std::string& path, std::optional<ApiError>* error) {
  MessagePart part = {.path = path, .type = FirstText(json, {"type"})};
  if (IsThoughtType(part.type)) return ReadThoughtPart(json, std::move(part));
  if (IsOneOf(part.type, kCallTypes)) return ReadCallPart(json, path);
  if (IsOneOf(part.type, kResultTypes)) {
    part.kind = Kind::kResult;
    part.id = FirstText(json, {"tool_use_id", "tool_call_id", "call_id", "id"});
    part.name = FirstText(json, {"name"});
    part.result = FirstMember(json, {"content", "output", "result", "text"});
    return part;
  }
  for (const char* name : {"text", "refusal"}) {
    const auto text = json.find(name);
    if (text == json.end() || !text->is_string()) continue;
    part.text = text->get<std::string>();
    return part;
  }
  if (IsOneOf(part.type, kTextTypes)) {
    const auto text = json.find("text");
    if (text == json.end() || !text->is_null()) {
      Fail(path + ".text", "expected a text", text == json.end() ? "missing_field" : "invalid_type",
           error);
    }
    return part;
  }
  part.is_line = true;
  const std::optional<std::string> text = TextWithin(json, part.type);
  part.is_lost = !text.has_value();
  const bool is_reference = part.type == "tool_reference";
  part.text = is_reference ? fmt::format("[tool_reference: {}]", FirstText(json, {"tool_name"}))
                           : text.value_or(StandInFor(part.type));
  return part;
}

// Appends the parts of `content`. The recursion is bounded, since ParseObject() limits the depth of
// a body.
void AddParts(const Json& content, const std::string& path, std::optional<ApiError>* error,
              std::vector<MessagePart>* parts) {
  if (content.is_null()) return;
  if (content.is_string()) {
    parts->push_back({.path = path, .text = content.get<std::string>()});
  } else if (content.is_object()) {
    parts->push_back(ReadPart(content, path, error));
  } else if (content.is_array()) {
    for (size_t i = 0; i < content.size() && !error->has_value(); ++i) {
      AddParts(content[i], fmt::format("{}[{}]", path, i), error, parts);
    }
  } else {
    Fail(path, "expected a string or an array of parts", "invalid_type", error);
  }
}

// Returns whether a result is data rather than a content: an object without a type, or numbers.
bool IsData(const Json& result) {
  if (result.is_object()) return !result.contains("type");
  if (!result.is_array()) return result.is_number() || result.is_boolean();
  return std::ranges::any_of(result,
                             [](const Json& one) { return one.is_number() || one.is_boolean(); });
}

}  // namespace

std::vector<MessagePart> ReadContent(const Json* content, const std::string& path,
                                     std::optional<ApiError>* error) {
  std::vector<MessagePart> parts;
  if (content != nullptr) AddParts(*content, path, error, &parts);
  return parts;
}

std::string JoinedText(const std::vector<MessagePart>& parts) {
  std::string text;
  bool was_line = false;
  for (const MessagePart& part : parts) {
    if (part.kind != Kind::kText) continue;
    const bool begins_line = part.is_line && !text.empty() && !text.ends_with('\n');
    if (was_line || begins_line) text += '\n';
    text += part.text;
    was_line = part.is_line;
  }
  return text;
}

void LeaveOutLost(std::vector<MessagePart>* parts, std::vector<std::string>* ignored) {
  std::erase_if(*parts, [&](const MessagePart& part) {
    const bool is_lost = part.is_lost || part.kind == Kind::kResult;
    if (is_lost) ignored->push_back(part.path);
    return is_lost;
  });
}

void RefusePart(const MessagePart& part, std::optional<ApiError>* error) {
  Fail(part.path,
       fmt::format("expected a text, found a part of type \"{}\"{}", part.type,
                   part.is_lost ? ": this model reads text only" : ""),
       "unsupported", error);
}

std::string ContentText(const Json* content, const std::string& path,
                        std::optional<ApiError>* error) {
  const std::vector<MessagePart> parts = ReadContent(content, path, error);
  for (const MessagePart& part : parts) {
    if (part.kind != Kind::kText || part.is_lost) RefusePart(part, error);
  }
  return JoinedText(parts);
}

std::string ResultText(const Json* content, const std::string& path,
                       std::vector<std::string>* ignored) {
  if (content == nullptr) return "";
  if (IsData(*content)) return Dump(*content);
  std::optional<ApiError> error;
  std::vector<MessagePart> parts = ReadContent(content, path, &error);
  if (error.has_value()) return Dump(*content);
  for (MessagePart& part : parts) {
    if (part.is_lost) ignored->push_back(part.path);
    if (part.kind == Kind::kResult) part.text = ResultText(part.result, part.path, ignored);
    if (part.kind == Kind::kCall) part.text = part.name + " " + ArgumentsText(part.arguments);
    part.is_line = part.is_line || part.kind == Kind::kCall || part.kind == Kind::kResult;
    part.kind = Kind::kText;
  }
  return JoinedText(parts);
}

MessagePart ReadCallPart(const Json& call, const std::string& path) {
  MessagePart part = {.kind = Kind::kCall, .path = path, .type = FirstText(call, {"type"})};
  part.id = FirstText(call, {"call_id", "id"});
  const Json* function = ObjectMember(call, "function");
  if (function == nullptr) function = ObjectMember(call, "custom");
  const Json& inner = function == nullptr ? call : *function;
  part.name = FirstText(inner, {"name"});
  if (const Json* arguments = FirstMember(inner, {"arguments", "args"})) {
    part.arguments = *arguments;
  } else if (const Json* input = FirstMember(inner, {"input"})) {
    // The input of a custom tool is text, and that of a function an object or its text.
    const bool is_custom = part.type == "custom" && input->is_string();
    part.arguments = is_custom ? Json{{"input", *input}} : *input;
  }
  return part;
}

void Fail(const std::string& path, const std::string& message, std::string code,
          std::optional<ApiError>* error) {
  if (error->has_value()) return;
  *error = Invalid(fmt::format("{}: {}", path, message), path, std::move(code));
}

}  // namespace ebb::server
