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

ExitCode RunRun(const CliOptions& options);             // run.cc
ExitCode RunChat(const CliOptions& options);            // chat.cc
ExitCode RunPull(const CliOptions& options);            // pull.cc
ExitCode RunFidelity(const CliOptions& options);        // fidelity.cc
ExitCode RunBenchDecode(const CliOptions& options);     // bench_decode.cc
ExitCode RunBenchLossless(const CliOptions& options);   // bench_lossless.cc
ExitCode RunBenchPrefill(const CliOptions& options);    // bench_prefill.cc
ExitCode RunBenchAttention(const CliOptions& options);  // bench_attention.cc
ExitCode RunBenchMemory(const CliOptions& options);     // bench_memory.cc
ExitCode RunBenchCompare(const CliOptions& options);    // bench_compare.cc
ExitCode RunProfile(const CliOptions& options);         // profile.cc
ExitCode RunEval(const CliOptions& options);            // eval.cc
ExitCode RunReport(const CliOptions& options);          // report.cc
ExitCode RunImportance(const CliOptions& options);      // importance.cc
ExitCode RunFit(const CliOptions& options);             // fit.cc
ExitCode RunDeviceList(const CliOptions& options);      // device_list.cc
ExitCode RunDeviceTest(const CliOptions& options);      // device_check.cc
ExitCode RunServe(const CliOptions& options);           // serve.cc
ExitCode RunDocs(const CliOptions& options);            // docs.cc: prints docs/user/cli.md

struct Command {
  std::string_view name;     // "run", "bench decode"
  std::string_view summary;  // one line
  std::vector<OptionGroup> groups;
  ExitCode (*run)(const CliOptions& options);  // null: it has subcommands
  // Taken, so that all measurements can be told the same, and of no effect: in no list of options.
  std::vector<OptionGroup> without_effect = {};
  // Hidden ones are in no list.
  enum class Visibility { kShown, kHidden };
  Visibility visibility = Visibility::kShown;
};

// Parents stand before their subcommands.
[[nodiscard]] std::span<const Command> CommandTable();
// A sentence about the command's options without effect; empty when it has none.
[[nodiscard]] std::string WithoutEffectText(const Command& command);

}  // namespace ebb::cli

#endif  // EBB_APPS_COMMANDS_H_
