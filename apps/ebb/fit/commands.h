// Declares the function of `ebb fit`.
#ifndef EBB_APPS_EBB_FIT_COMMANDS_H_
#define EBB_APPS_EBB_FIT_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

[[nodiscard]] Status RunFit(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_EBB_FIT_COMMANDS_H_
