// Declares the commands of `ebb-lab`, each of which is defined in the folder of its name.
#ifndef EBB_APPS_LAB_COMMANDS_H_
#define EBB_APPS_LAB_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

[[nodiscard]] Status RunEval(const CliOptions& options);
[[nodiscard]] Status RunProfile(const CliOptions& options);
[[nodiscard]] Status RunFidelity(const CliOptions& options);
[[nodiscard]] Status RunImportance(const CliOptions& options);

[[nodiscard]] const Program& LabProgram();

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_COMMANDS_H_
