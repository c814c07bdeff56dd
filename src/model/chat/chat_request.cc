#include "src/model/chat/chat_request.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace ebb {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};

// Limits the nesting of JSON, because the code that reads it later recurses for each level.
constexpr int kMaxJsonDepth = 64;

int JsonDepth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

Status CheckObject(const std::string& field, const std::string& text) {
  if (JsonDepth(text) > kMaxJsonDepth) {
    return InvalidArgument(
        field, fmt::format("expected JSON of at most {} levels, found more", kMaxJsonDepth));
  }
  try {
    if (nlohmann::json::parse(text).is_object()) return OkStatus();
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(field, fmt::format("expected a JSON object: {}", error.what()));
  }
  return InvalidArgument(field, "expected a JSON object, found other JSON");
}

Status CheckMessage(const std::string& field, const ChatMessage& message) {
  if (std::ranges::find(kRoles, message.role) == kRoles.end()) {
    return InvalidArgument(field + ".role", fmt::format("expected one of {}, found \"{}\"",
                                                        fmt::join(kRoles, ", "), message.role));
  }
  if (message.role == "tool" && message.tool_call_id.empty()) {
    return InvalidArgument(field + ".tool_call_id",
                           "expected the id of the call that it answers, found none");
  }
  if (message.role != "tool" && !message.tool_call_id.empty()) {
    return InvalidArgument(field + ".tool_call_id",
                           fmt::format("expected none in a message of role {}", message.role));
  }
  if (message.role != "assistant" && !message.tool_calls.empty()) {
    return InvalidArgument(field + ".tool_calls",
                           fmt::format("expected none in a message of role {}", message.role));
  }
  if (message.role != "assistant" && !message.reasoning_content.empty()) {
    return InvalidArgument(field + ".reasoning_content",
                           fmt::format("expected none in a message of role {}", message.role));
  }
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    const std::string call = fmt::format("{}.tool_calls[{}]", field, i);
    if (message.tool_calls[i].name.empty()) {
      return InvalidArgument(call + ".name", "expected a function, found none");
    }
    EBB_RETURN_IF_ERROR(CheckObject(call + ".arguments", message.tool_calls[i].arguments));
  }
  return OkStatus();
}

Status CheckTools(const ChatRequest& request) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    const Tool& tool = request.tools[i];
    const std::string field = fmt::format("tools[{}]", i);
    constexpr size_t kMaxNameBytes = 64;
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-';
    };
    if (tool.name.empty() || tool.name.size() > kMaxNameBytes ||
        !std::ranges::all_of(tool.name, allowed)) {
      return InvalidArgument(
          field + ".name",
          fmt::format("expected 1 to {} letters, digits, '_' and '-', found \"{}\"", kMaxNameBytes,
                      tool.name));
    }
    if (!names.insert(tool.name).second) {
      return InvalidArgument(field + ".name",
                             fmt::format("expected distinct names, found \"{}\" twice", tool.name));
    }
    if (tool.parameters.empty()) continue;
    EBB_RETURN_IF_ERROR(CheckObject(field + ".parameters", tool.parameters));
  }
  const std::string& choice = request.tool_choice;
  if (choice == "auto" || choice == "none") return OkStatus();
  if (choice == "required") {
    if (!request.tools.empty()) return OkStatus();
    return InvalidArgument("tool_choice", "a call is required, but there are no tools");
  }
  if (names.contains(choice)) return OkStatus();
  return InvalidArgument(
      "tool_choice",
      fmt::format("expected auto, none, required or the name of a tool, found \"{}\"", choice));
}

}  // namespace

bool MayCall(const ChatRequest& request) {
  return !request.tools.empty() && request.tool_choice != "none";
}

Status CheckRequest(const ChatRequest& request) {
  if (request.messages.empty()) {
    return InvalidArgument("messages", "expected at least one, found none");
  }
  for (size_t i = 0; i < request.messages.size(); ++i) {
    EBB_RETURN_IF_ERROR(CheckMessage(fmt::format("messages[{}]", i), request.messages[i]));
  }
  EBB_RETURN_IF_ERROR(CheckTools(request));
  const bool is_formatted = request.response_format != ResponseFormat::kText;
  if (!request.grammar.empty() && (is_formatted || MayCall(request))) {
    return InvalidArgument(
        "grammar", fmt::format("cannot be combined with {}",
                               is_formatted ? "a response format" : "tools that may be called"));
  }
  if (request.response_format == ResponseFormat::kJsonSchema) {
    return CheckObject("response_format.json_schema", request.json_schema);
  }
  return OkStatus();
}

}  // namespace ebb
