// The program as a function: finds the command, reads its options, runs it.
#ifndef EBB_APPS_PROGRAM_H_
#define EBB_APPS_PROGRAM_H_

#include <span>
#include <string>

#include "apps/ebb/commands.h"
#include "apps/ebb/exit_code.h"

namespace ebb::cli {

// arguments: without the program's own name.
ExitCode RunProgram(std::span<const std::string> arguments);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROGRAM_H_
