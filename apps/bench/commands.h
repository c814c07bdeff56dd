// The commands of `ebb-bench`, each in the source of its name.
#ifndef EBB_APPS_BENCH_COMMANDS_H_
#define EBB_APPS_BENCH_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

ExitCode RunBenchDecode(const CliOptions& options);
ExitCode RunBenchPrefill(const CliOptions& options);
ExitCode RunBenchLossless(const CliOptions& options);
ExitCode RunBenchAttention(const CliOptions& options);
ExitCode RunBenchMemory(const CliOptions& options);
ExitCode RunBenchProducts(const CliOptions& options);

[[nodiscard]] const Program& BenchProgram();

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_COMMANDS_H_
