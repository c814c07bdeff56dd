// Prints the help of a program and of its commands.
#ifndef EBB_APPS_COMMON_HELP_H_
#define EBB_APPS_COMMON_HELP_H_

#include <cstdio>
#include <string>
#include <string_view>

#include "apps/common/commands.h"

namespace ebb::cli {

// Prints the commands under `parent` ("" for those of the program).
void PrintCommands(std::FILE* file, const Program& program, std::string_view parent);

// HelpLength selects the options that the help of a command lists.
enum class HelpLength { kUsual, kAll };
// Returns the help of a command: its examples and options, wrapped at `columns`.
[[nodiscard]] std::string CommandHelp(const Program& program, const Command& command,
                                      HelpLength length, int columns);
// Returns the width for help on stdout: the terminal's, but at most 120 columns, and 100 for a
// pipe.
[[nodiscard]] int HelpColumns();

}  // namespace ebb::cli

#endif  // EBB_APPS_COMMON_HELP_H_
