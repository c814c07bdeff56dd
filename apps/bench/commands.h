// Declares the commands of `ebb-bench`, each of which is defined in the source file of its name.
#ifndef EBB_APPS_BENCH_COMMANDS_H_
#define EBB_APPS_BENCH_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

[[nodiscard]] Status BenchDecode(const CliOptions& options);
[[nodiscard]] Status BenchPrefill(const CliOptions& options);
[[nodiscard]] Status BenchColumns(const CliOptions& options);
[[nodiscard]] Status BenchLossless(const CliOptions& options);
[[nodiscard]] Status BenchAttention(const CliOptions& options);
[[nodiscard]] Status BenchMemory(const CliOptions& options);
[[nodiscard]] Status BenchProducts(const CliOptions& options);

[[nodiscard]] const Program& BenchProgram();

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_COMMANDS_H_
