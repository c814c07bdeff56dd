// Describes a program of this repository: its commands, and the options that they take.
#ifndef EBB_APPS_COMMON_COMMANDS_H_
#define EBB_APPS_COMMON_COMMANDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "apps/common/options/option_errors.h"
#include "apps/common/options/options.h"

namespace ebb::cli {

// Command describes one command of a program: its name, its options and the function that runs it.
struct Command {
  std::string_view name;     // "run", "device list"
  std::string_view summary;  // one line
  std::vector<OptionGroup> groups;
  // Runs the command: receives the parsed options, writes results to stdout and all else to stderr,
  // and returns the exit code of the process. Null if the command only has subcommands.
  ExitCode (*run)(const CliOptions& options);
  // Holds the options that the command accepts and ignores, so that scripts can pass the same
  // options to every benchmark. Help does not list them.
  std::vector<OptionGroup> without_effect = {};
  // Visibility selects whether help and the documentation list the command.
  enum class Visibility { kShown, kHidden };
  Visibility visibility = Visibility::kShown;
  // Declares whether the command runs many settings one after the other and validates the options
  // of each setting itself (ebb-lab eval).
  bool has_settings = false;
  // Holds the options that --help shows, by their long names; --help-all shows the others too.
  // Empty:
  // --help shows all.
  std::vector<std::string_view> usual = {};
  std::vector<std::string_view> examples = {};  // whole lines, for --help
};

// MovedCommand names a command that this program had in an earlier version, and its present
// spelling, which an error message suggests.
struct MovedCommand {
  std::string_view name;  // "eval"
  std::string_view now;   // "ebb-lab eval"
};

// Program describes an executable: its commands and every option that one of them takes.
struct Program {
  std::string_view name;           // "ebb-lab"
  std::string_view summary;        // for the manual page; no full stop
  std::string_view reference;      // the page that its `docs` prints: "docs/user/cli-lab.md"
  std::vector<Command> commands;   // parents stand before their subcommands
  std::vector<OptionRow> options;  // every option there is, in the order in which help shows them
  std::vector<MovedCommand> moved = {};
};

// Runs a command that ends with a Status, as Command::run does: says an error on stderr.
template <Status (*kCommand)(const CliOptions& options)>
ExitCode ExitCodeOf(const CliOptions& options) {
  const Status status = kCommand(options);
  return status.ok() ? ExitCode::kOk : Fail(status, options.shared);
}

// Returns `groups` together with ModelGroups(), which every command that runs a model takes.
[[nodiscard]] std::vector<OptionGroup> WithModel(std::vector<OptionGroup> groups);
// Returns the hidden command `docs`; `run` calls PrintDocs() for its program.
[[nodiscard]] Command DocsCommand(ExitCode (*run)(const CliOptions& options));

// Returns whether the command takes the option.
[[nodiscard]] bool Takes(const Command& command, const OptionRow& row);
// Returns the options that the command takes, in the order of the program's table.
[[nodiscard]] std::vector<const OptionRow*> OptionsOf(const Program& program,
                                                      const Command& command);
// Returns the shown commands directly under `parent`: those of the program for "", "list" and
// "test" for "device".
[[nodiscard]] std::vector<const Command*> ChildrenOf(const Program& program,
                                                     std::string_view parent);
// Returns the last word of a command's name, such as "list" of "device list".
[[nodiscard]] std::string_view LastWord(const Command& command);
// Returns the command with the whole name `name` ("device list"), or null if there is none.
[[nodiscard]] const Command* FindCommand(const Program& program, std::string_view name);
// Returns a sentence that lists Command::without_effect, or an empty text if that is empty.
[[nodiscard]] std::string WithoutEffectText(const Program& program, const Command& command);

}  // namespace ebb::cli

#endif  // EBB_APPS_COMMON_COMMANDS_H_
