// Describes a program of this repository: its commands, and the options that they take.
#ifndef EBB_APPS_COMMON_COMMANDS_H_
#define EBB_APPS_COMMON_COMMANDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "apps/common/exit_code.h"
#include "apps/common/options/options.h"

namespace ebb::cli {

struct Command {
  std::string_view name;     // "run", "device list"
  std::string_view summary;  // one line
  std::vector<OptionGroup> groups;
  // Takes the parsed options, writes results to stdout and all else to stderr, and returns the exit
  // code of the process. Null: the command has subcommands.
  ExitCode (*run)(const CliOptions& options);
  // Options that the command accepts and ignores, so that all measurements accept the same ones.
  // They are in no list of options.
  std::vector<OptionGroup> without_effect = {};
  // Hidden ones are in no list.
  enum class Visibility { kShown, kHidden };
  Visibility visibility = Visibility::kShown;
  // Whether it runs many settings in turn, and settles the options of each itself.
  bool has_settings = false;
};

// A command that this program had once, and how it is spelled now.
struct MovedCommand {
  std::string_view name;  // "eval"
  std::string_view now;   // "ebb-lab eval"
};

struct Program {
  std::string_view name;           // "ebb-lab"
  std::string_view summary;        // for the manual page; no full stop
  std::string_view reference;      // the page that its `docs` prints: "docs/user/cli-lab.md"
  std::vector<Command> commands;   // parents stand before their subcommands
  std::vector<OptionRow> options;  // every option there is, in the order in which help shows them
  std::vector<MovedCommand> moved = {};
};

// A command that ends with a Status, as Command::run.
template <Status (*kCommand)(const CliOptions& options)>
ExitCode ExitCodeOf(const CliOptions& options) {
  const Status status = kCommand(options);
  return status.ok() ? ExitCode::kOk : Fail(status, options.shared);
}

// Returns the groups, and those about the model and the machine.
[[nodiscard]] std::vector<OptionGroup> WithModel(std::vector<OptionGroup> groups);
// Returns the hidden command `docs`; `run` calls PrintDocs() for its program.
[[nodiscard]] Command DocsCommand(ExitCode (*run)(const CliOptions& options));

// The commands directly under `parent` ("" or "device") that are shown.
[[nodiscard]] std::vector<const Command*> ChildrenOf(const Program& program,
                                                     std::string_view parent);
// "list" of "device list".
[[nodiscard]] std::string_view LastWord(const Command& command);
// By its whole name; null: there is none.
[[nodiscard]] const Command* FindCommand(const Program& program, std::string_view name);
// A sentence about the command's options without effect; empty when it has none.
[[nodiscard]] std::string WithoutEffectText(const Program& program, const Command& command);

}  // namespace ebb::cli

#endif  // EBB_APPS_COMMON_COMMANDS_H_
