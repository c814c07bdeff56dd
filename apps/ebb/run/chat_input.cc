#include "apps/ebb/run/chat_input.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "apps/common/options/option_values.h"

namespace ebb::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kQuotes = "\"\"\"";

using Kind = ChatInput::Kind;

constexpr std::array kCommands = {
    ChatCommand{"/help /?", Kind::kHelp, "", "shows this"},
    ChatCommand{"/exit /bye /quit", Kind::kExit, "", "ends the conversation; so does Ctrl-D"},
    ChatCommand{"/reset /clear", Kind::kReset, "", "forgets the conversation"},
    ChatCommand{"/regen", Kind::kRegenerate, "",
                "answers the last question again, with other random draws (if temp is above 0)"},
    ChatCommand{"/read", Kind::kRead, "FILE", "puts a file's text before the next question", true},
    ChatCommand{"/system", Kind::kSystem, "TEXT",
                "sets the system message from here on; alone, shows it; none removes it"},
    ChatCommand{"/set", Kind::kSet, "NAME VALUE",
                "sets an option of sampling, as in /set temp 0.2"},
    ChatCommand{"/save", Kind::kSave, "FILE", "saves the conversation with its cache", true},
    ChatCommand{"/load", Kind::kLoad, "FILE", "continues a saved conversation", true},
    ChatCommand{"/stats", Kind::kStats, "",
                "shows the speed of the last answer and the tiers of its tokens"},
};

// Returns the command or the turn that a text with one slash at its beginning means. It is a turn
// if its first word has another slash, as a path has. It is kUnknown if no command has that name,
// if text follows a command without an argument (it may be a question that begins with the word),
// or if a command lacks the argument that it needs.
ChatInput ReadSlash(std::string text) {
  const size_t end = std::min(text.find_first_of(kBlanks), text.size());
  if (text.substr(0, end).find('/', 1) != std::string::npos) return {.text = std::move(text)};
  text.erase(text.find_last_not_of(kBlanks) + 1);
  const std::string_view word = std::string_view(text).substr(0, end);
  const size_t begin = std::min(text.find_first_not_of(kBlanks, end), text.size());
  const ChatCommand* const command = FindChatCommand(word);
  // /set alone shows the options, /system alone the message.
  const bool may_stand_alone = command != nullptr && !command->takes_file;
  const bool is_complete =
      command != nullptr &&
      (command->argument.empty() ? begin == text.size() : begin < text.size() || may_stand_alone);
  if (!is_complete) return {.kind = Kind::kUnknown, .text = std::move(text)};
  return {.kind = command->kind, .text = text.substr(begin)};
}

// Returns the paths that begin with `typed`, folders with a slash at their end.
std::vector<std::string> FilesThatBeginWith(std::string_view typed) {
  namespace fs = std::filesystem;
  const size_t slash = typed.rfind('/');
  const std::string folder(slash == std::string_view::npos ? "" : typed.substr(0, slash + 1));
  const std::string_view name = typed.substr(folder.size());
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error);
       !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string file = at->path().filename().string();
    // Like a shell, completes a hidden file only if the user typed its dot.
    if (!file.starts_with(name) || (name.empty() && file.starts_with('.'))) continue;
    std::error_code unknown;
    paths.push_back(folder + file + (at->is_directory(unknown) ? "/" : ""));
  }
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

std::span<const ChatCommand> ChatCommands() { return kCommands; }

const ChatCommand* FindChatCommand(std::string_view name) {
  const auto found = std::ranges::find_if(kCommands, [&](const ChatCommand& command) {
    return std::ranges::count(Split(command.names, ' '), name) > 0;
  });
  return found == kCommands.end() ? nullptr : &*found;
}

std::string ChatHelp() {
  std::string text;
  for (const ChatCommand& command : kCommands) {
    const std::string left =
        fmt::format("{}{}{}", command.names, command.argument.empty() ? "" : " ", command.argument);
    text += fmt::format("{:<20} {}\n", left, command.help);
  }
  return text +
         "//word asks a question that begins with a slash: one slash is removed; /a/b needs none\n"
         "\"\"\" begins a turn of several lines, and \"\"\" at the end of a line ends it\n"
         "a paste on a terminal is one turn; Ctrl-C stops an answer or clears the line\n";
}

std::vector<std::string> CompleteChatInput(std::string_view typed) {
  // On an empty line, Tab shows the commands.
  if (!typed.empty() && !typed.starts_with('/')) return {};
  std::vector<std::string> lines;
  if (const size_t blank = typed.find(' '); blank != std::string_view::npos) {
    const ChatCommand* const command = FindChatCommand(typed.substr(0, blank));
    if (command == nullptr || !command->takes_file) return {};
    for (const std::string& path : FilesThatBeginWith(typed.substr(blank + 1))) {
      lines.push_back(fmt::format("{} {}", typed.substr(0, blank), path));
    }
    return lines;
  }
  for (const ChatCommand& command : kCommands) {
    for (const std::string_view name : Split(command.names, ' ')) {
      if (!name.starts_with(typed)) continue;
      lines.push_back(fmt::format("{}{}", name, command.argument.empty() ? "" : " "));
    }
  }
  return lines;
}

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
