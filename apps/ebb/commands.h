// Declares the commands of `ebb`, each of which is defined in the folder of its name.
#ifndef EBB_APPS_EBB_COMMANDS_H_
#define EBB_APPS_EBB_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

ExitCode RunRun(const CliOptions& options);
ExitCode RunChat(const CliOptions& options);
ExitCode RunServe(const CliOptions& options);
ExitCode RunPull(const CliOptions& options);
ExitCode RunList(const CliOptions& options);
ExitCode RunRemove(const CliOptions& options);
[[nodiscard]] Status RunFit(const CliOptions& options);
ExitCode RunDeviceList(const CliOptions& options);
ExitCode RunDeviceTest(const CliOptions& options);

[[nodiscard]] const Program& EbbProgram();

}  // namespace ebb::cli

#endif  // EBB_APPS_EBB_COMMANDS_H_
