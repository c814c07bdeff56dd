// Declares the function of `ebb serve`.
#ifndef EBB_APPS_EBB_SERVE_COMMANDS_H_
#define EBB_APPS_EBB_SERVE_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

ExitCode RunServe(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_EBB_SERVE_COMMANDS_H_
