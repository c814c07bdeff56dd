// Reads turns and commands from the lines that a user types in a conversation.
#ifndef EBB_APPS_RUN_CHAT_INPUT_H_
#define EBB_APPS_RUN_CHAT_INPUT_H_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::cli {

// ChatInput is what the user typed in a chat: a turn or a command.
struct ChatInput {
  enum class Kind {
    kTurn,
    kExit,
    kReset,
    kRegenerate,
    kRead,
    kSave,
    kLoad,
    kSet,
    kSystem,
    kStats,
    kHelp,
    kUnknown
  };
  Kind kind = Kind::kTurn;
  std::string text = {};  // the turn; a command's argument; the words typed (kUnknown)
};

// ChatCommand describes a command of the chat.
struct ChatCommand {
  std::string_view names;  // "/exit /bye": the first is shown in messages
  ChatInput::Kind kind;
  std::string_view argument;  // "FILE"; empty: the command has none
  std::string_view help;
  bool takes_file = false;  // the argument is a file's name
};
[[nodiscard]] std::span<const ChatCommand> ChatCommands();
// Returns the command that has this name, such as "/bye", or null.
[[nodiscard]] const ChatCommand* FindChatCommand(std::string_view name);

// Returns the text of /help: the commands, and how turns are written, one per line.
[[nodiscard]] std::string ChatHelp();

// Returns the lines that begin with `typed` and complete it: commands, and for commands that take a
// file the names of files. Returns nothing for a text that does not begin with a slash.
[[nodiscard]] std::vector<std::string> CompleteChatInput(std::string_view typed);

// Reads lines until they form a turn or a command; returns nothing at the end of the input. Skips
// blank lines. A line is a command if its first word begins with a slash and contains no other one.
// next_line(goes_on) returns the next line without its line end, with line breaks inside if it was
// pasted; `goes_on` says that the line continues a turn of several lines.
[[nodiscard]] std::optional<ChatInput> NextChatInput(
    const std::function<std::optional<std::string>(bool goes_on)>& next_line);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_CHAT_INPUT_H_
