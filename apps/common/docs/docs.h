// Generates documents from a program's tables of commands and options: its reference in docs/user,
// the manual page, completion scripts for shells, and the configuration file of the server.
#ifndef EBB_APPS_DOCS_DOCS_H_
#define EBB_APPS_DOCS_DOCS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/commands.h"
#include "apps/common/options/options.h"

namespace ebb::cli {

// Writes the document to stdout. Errors: InvalidArgument for the configuration file of a program
// that reads none.
ExitCode PrintDocs(const Program& program, DocsForm form);

// Returns the program's reference page in Markdown (docs/user/cli*.md).
[[nodiscard]] std::string MarkdownText(const Program& program);
[[nodiscard]] std::string ManPageText(const Program& program);  // roff, section 1
// Returns a completion script for bash.
[[nodiscard]] std::string BashCompletionText(const Program& program);
// Returns a completion script for zsh.
[[nodiscard]] std::string ZshCompletionText(const Program& program);
// Returns a completion script for fish.
[[nodiscard]] std::string FishCompletionText(const Program& program);

// Returns an example file for `ebb serve --config` that lists every setting, commented out, with
// its default. REQUIRES: the program has a command `serve`.
[[nodiscard]] std::string ConfigText(const Program& program);

// Returns the shown commands that run something, without those that only have subcommands.
[[nodiscard]] std::vector<const Command*> DocumentedCommands(const Program& program);
// OptionSection holds options that share a title and that the same commands take. Several sections
// may share a title, one for each set of commands.
struct OptionSection {
  std::string_view title;
  std::vector<const Command*> commands;
  std::vector<const OptionRow*> rows;
};
// Returns all options that at least one command takes, in the order of the program's table.
[[nodiscard]] std::vector<OptionSection> OptionSections(const Program& program);
// Returns the values that an option lists, such as "none" and "host" of "none|host"; empty if one
// alternative is a placeholder that cannot be typed as it is, such as PERCENT.
[[nodiscard]] std::vector<std::string_view> ChoicesOf(const OptionRow& row);
// Returns whether the option's value is the path of a file.
[[nodiscard]] bool TakesFile(const OptionRow& row);

}  // namespace ebb::cli

#endif  // EBB_APPS_DOCS_DOCS_H_
