#include "apps/ebb/run/chat_input.h"

#include <array>
#include <utility>

namespace ebb::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kQuotes = "\"\"\"";

constexpr std::array<std::pair<std::string_view, ChatInput::Kind>, 4> kCommands = {
    {{"/exit", ChatInput::Kind::kExit},
     {"/reset", ChatInput::Kind::kReset},
     {"/stats", ChatInput::Kind::kStats},
     {"/help", ChatInput::Kind::kHelp}}};

// Reads a text that begins with one slash: a command, or a turn if the first word has another
// slash, as a path has.
ChatInput ReadSlash(std::string text) {
  const std::string_view first = std::string_view(text).substr(0, text.find_first_of(kBlanks));
  if (first.find('/', 1) != std::string_view::npos) return {.text = std::move(text)};
  text.erase(text.find_last_not_of(kBlanks) + 1);
  for (const auto& [name, kind] : kCommands) {
    if (text == name) return {.kind = kind, .text = {}};
  }
  return {.kind = ChatInput::Kind::kUnknown, .text = std::move(text)};
}

}  // namespace

std::optional<ChatInput> NextChatInput(
    const std::function<std::optional<std::string>(bool goes_on)>& next_line) {
  std::optional<std::string> line = next_line(false);
  while (line && line->find_first_not_of(kBlanks) == std::string::npos) line = next_line(false);
  if (!line) return std::nullopt;
  if (line->starts_with(kQuotes)) {
    std::string text = line->substr(kQuotes.size());
    // If the input ends within a turn of several lines, the turn ends there.
    while (!text.ends_with(kQuotes) && (line = next_line(true))) text += "\n" + *line;
    if (text.ends_with(kQuotes)) text.erase(text.size() - kQuotes.size());
    // Line breaks next to the quotes are not part of the turn.
    if (text.starts_with('\n')) text.erase(0, 1);
    if (text.ends_with('\n')) text.pop_back();
    if (text.find_first_not_of(kBlanks) == std::string::npos) return NextChatInput(next_line);
    return ChatInput{.text = std::move(text)};
  }
  if (line->starts_with("//")) return ChatInput{.text = line->substr(1)};
  if (line->starts_with('/')) return ReadSlash(*std::move(line));
  return ChatInput{.text = *std::move(line)};
}

}  // namespace ebb::cli
