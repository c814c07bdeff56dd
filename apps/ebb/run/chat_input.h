// Reads turns and commands from the lines that a user types in a conversation.
#ifndef EBB_APPS_RUN_CHAT_INPUT_H_
#define EBB_APPS_RUN_CHAT_INPUT_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ebb::cli {

// ChatInput is what the user typed in a chat: a turn or a command.
struct ChatInput {
  enum class Kind { kTurn, kExit, kReset, kStats, kHelp, kUnknown };
  Kind kind = Kind::kTurn;
  std::string text;  // of kTurn, and of kUnknown the words that are no command
};

// kChatHelp is the text of /help: how turns and commands are written, one per line.
inline constexpr std::string_view kChatHelp =
    "/exit ends the conversation, /reset forgets it, /stats tells what the last answer took\n"
    "//word asks what begins with a slash: one slash is taken off; /a/b needs no second one\n"
    "\"\"\" begins a turn of several lines, and \"\"\" at the end of a line ends it\n"
    "a paste on a terminal is one turn\n";

// Reads lines until they form a turn or a command; returns nothing at the end of the input. Skips
// blank lines. A line is a command if its first word begins with a slash and contains no other one.
// next_line(goes_on) returns the next line without its line end, with line breaks inside if it was
// pasted; `goes_on` says that the line continues a turn of several lines.
[[nodiscard]] std::optional<ChatInput> NextChatInput(
    const std::function<std::optional<std::string>(bool goes_on)>& next_line);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_CHAT_INPUT_H_
