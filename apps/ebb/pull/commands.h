// Declares the functions of `ebb pull`, `ebb list` and `ebb rm`.
#ifndef EBB_APPS_EBB_PULL_COMMANDS_H_
#define EBB_APPS_EBB_PULL_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

ExitCode RunPull(const CliOptions& options);
ExitCode RunList(const CliOptions& options);
ExitCode RunRemove(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_EBB_PULL_COMMANDS_H_
