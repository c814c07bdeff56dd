#include "src/server/api/base/tool_names.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace ebb::server {
namespace {

constexpr size_t kMostNameBytes = 64;

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

bool IsTaken(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && std::ranges::all_of(name, IsPlain);
}

// Returns `name` with '_' for each run of disallowed characters, and with a number added if
// `others` has that name.
std::string PlainName(std::string_view name, const std::set<std::string>& others) {
  std::string plain;
  for (const char c : name) {
    if (IsPlain(c)) {
      plain += c;
    } else if (!plain.ends_with('_')) {
      plain += '_';
    }
  }
  constexpr size_t kRoomForNumber = 8;
  plain.resize(std::min(plain.size(), kMostNameBytes - kRoomForNumber));
  std::string unique = plain;
  for (int i = 2; others.contains(unique); ++i) unique = fmt::format("{}_{}", plain, i);
  return unique;
}

}  // namespace

ToolNames RenameTools(ChatRequest* chat) {
  std::set<std::string> used = {"auto", "none", "required"};
  for (const Tool& tool : chat->tools) used.insert(tool.name);
  std::map<std::string, std::string> renamed;
  ToolNames names;
  const auto rename = [&](std::string* name) {
    if (const auto found = renamed.find(*name); found != renamed.end()) *name = found->second;
  };
  for (Tool& tool : chat->tools) {
    if (!IsTaken(tool.name)) {
      const std::string plain = PlainName(tool.name, used);
      used.insert(plain);
      renamed[tool.name] = plain;
      names[plain] = tool.name;
    }
    rename(&tool.name);
  }
  if (names.empty()) return names;
  rename(&chat->tool_choice);
  for (ChatMessage& message : chat->messages) {
    rename(&message.name);
    for (ToolCall& call : message.tool_calls) rename(&call.name);
  }
  return names;
}

}  // namespace ebb::server
