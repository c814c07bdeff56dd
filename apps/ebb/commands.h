// Declares the program `ebb`, the table of its commands.
#ifndef EBB_APPS_EBB_COMMANDS_H_
#define EBB_APPS_EBB_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

[[nodiscard]] const Program& EbbProgram();

}  // namespace ebb::cli

#endif  // EBB_APPS_EBB_COMMANDS_H_
