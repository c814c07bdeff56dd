// Declares the functions of `ebb run` and `ebb chat`.
#ifndef EBB_APPS_EBB_RUN_COMMANDS_H_
#define EBB_APPS_EBB_RUN_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

ExitCode RunRun(const CliOptions& options);
ExitCode RunChat(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_EBB_RUN_COMMANDS_H_
