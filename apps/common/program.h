// A program as a function: finds the command, reads its options, runs it.
#ifndef EBB_APPS_PROGRAM_H_
#define EBB_APPS_PROGRAM_H_

#include <span>
#include <string>

#include "apps/common/commands.h"
#include "apps/common/exit_code.h"

namespace ebb::cli {

// arguments: without the program's own name.
ExitCode RunProgram(const Program& program, std::span<const std::string> arguments);

// Runs `program` in a process of its own and returns its exit code: what main() returns.
int ProgramMain(const Program& program, int argc, char** argv);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROGRAM_H_
