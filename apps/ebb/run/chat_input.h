// Reads turns and commands from the lines that a user types in a conversation.
#ifndef EBB_APPS_RUN_CHAT_INPUT_H_
#define EBB_APPS_RUN_CHAT_INPUT_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ebb::cli {

struct ChatInput {
  enum class Kind { kTurn, kExit, kReset, kStats, kHelp, kUnknown };
  Kind kind = Kind::kTurn;
  std::string text;  // of kTurn, and of kUnknown the words that are no command
};

// How turns and commands are written, for /help: a line each.
inline constexpr std::string_view kChatHelp =
    "/exit ends the conversation, /reset forgets it, /stats tells what the last answer took\n"
    "//word asks what begins with a slash: one slash is taken off; /a/b needs no second one\n"
    "\"\"\" begins a turn of several lines, and \"\"\" at the end of a line ends it\n"
    "a paste on a terminal is one turn\n";

// Reads on until there is a turn or a command; nothing at the end of the input. A line of blanks is
// skipped. A line whose first word begins with one slash and has no other one is a command.
// next_line: the next line without its line end, which may have line breaks within it where it was
// pasted; `goes_on`: within a turn of several lines.
[[nodiscard]] std::optional<ChatInput> NextChatInput(
    const std::function<std::optional<std::string>(bool goes_on)>& next_line);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_CHAT_INPUT_H_
