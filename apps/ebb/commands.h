// The commands of the program. Each takes the parsed options, writes results to stdout and all
// else to stderr, and returns the exit code of the process.
#ifndef EBB_APPS_COMMANDS_H_
#define EBB_APPS_COMMANDS_H_

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/ebb/exit_code.h"
#include "apps/ebb/options/options.h"

namespace ebb::cli {

// In the folder of the command.
ExitCode RunRun(const CliOptions& options);
ExitCode RunChat(const CliOptions& options);
ExitCode RunPull(const CliOptions& options);
ExitCode RunList(const CliOptions& options);
ExitCode RunRemove(const CliOptions& options);
ExitCode RunFidelity(const CliOptions& options);
ExitCode RunBenchDecode(const CliOptions& options);
ExitCode RunBenchLossless(const CliOptions& options);
ExitCode RunBenchPrefill(const CliOptions& options);
ExitCode RunBenchAttention(const CliOptions& options);
ExitCode RunBenchMemory(const CliOptions& options);
ExitCode RunBenchProducts(const CliOptions& options);
ExitCode RunProfile(const CliOptions& options);
ExitCode RunEval(const CliOptions& options);
ExitCode RunReport(const CliOptions& options);
ExitCode RunImportance(const CliOptions& options);
ExitCode RunFit(const CliOptions& options);
ExitCode RunDeviceList(const CliOptions& options);
ExitCode RunDeviceTest(const CliOptions& options);
ExitCode RunServe(const CliOptions& options);
ExitCode RunDocs(const CliOptions& options);

struct Command {
  std::string_view name;     // "run", "bench decode"
  std::string_view summary;  // one line
  std::vector<OptionGroup> groups;
  ExitCode (*run)(const CliOptions& options);  // null: it has subcommands
  // Options that the command accepts and ignores, so that all measurements accept the same ones.
  // They are in no list of options.
  std::vector<OptionGroup> without_effect = {};
  // Hidden ones are in no list.
  enum class Visibility { kShown, kHidden };
  Visibility visibility = Visibility::kShown;
};

// Parents stand before their subcommands.
[[nodiscard]] std::span<const Command> CommandTable();
// The commands directly under `parent` ("" or "bench") that are shown.
[[nodiscard]] std::vector<const Command*> ChildrenOf(std::string_view parent);
// "decode" of "bench decode".
[[nodiscard]] std::string_view LastWord(const Command& command);
// By its whole name; null: there is none.
[[nodiscard]] const Command* FindCommand(std::string_view name);
// A sentence about the command's options without effect; empty when it has none.
[[nodiscard]] std::string WithoutEffectText(const Command& command);

}  // namespace ebb::cli

#endif  // EBB_APPS_COMMANDS_H_
