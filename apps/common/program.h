// Runs a program: finds its command, parses the options and calls the command's function.
#ifndef EBB_APPS_PROGRAM_H_
#define EBB_APPS_PROGRAM_H_

#include <span>
#include <string>

#include "apps/common/commands.h"
#include "apps/common/terminal/exit_code.h"

namespace ebb::cli {

// Parses `arguments`, which do not include the program's name, and runs the command that they name.
ExitCode RunProgram(const Program& program, std::span<const std::string> arguments);

// Runs `program` with the arguments of main() and returns the exit code of the process.
int ProgramMain(const Program& program, int argc, char** argv);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROGRAM_H_
