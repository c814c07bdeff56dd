// Documents made from a program's tables of commands and options: its reference in docs/user, the
// manual page, completions for shells, and the configuration file of the server.
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

[[nodiscard]] std::string MarkdownText(const Program& program);
[[nodiscard]] std::string ManPageText(const Program& program);  // roff, section 1
// Scripts that a shell reads.
[[nodiscard]] std::string BashCompletionText(const Program& program);
[[nodiscard]] std::string ZshCompletionText(const Program& program);
[[nodiscard]] std::string FishCompletionText(const Program& program);

// A file for `ebb serve --config`, which has every setting in a comment. REQUIRES: the program has
// a command `serve`.
[[nodiscard]] std::string ConfigText(const Program& program);

// The commands that are shown and run something.
[[nodiscard]] std::vector<const Command*> DocumentedCommands(const Program& program);
// Rows of one title that the same commands take; a title may have several.
struct OptionSection {
  std::string_view title;
  std::vector<const Command*> commands;
  std::vector<const OptionRow*> rows;
};
// All options that some command takes, in the order of the table.
[[nodiscard]] std::vector<OptionSection> OptionSections(const Program& program);
// "-m", "--model"
[[nodiscard]] std::vector<std::string_view> NamesOf(const OptionRow& row);
// "none", "host" of "none|host"; empty where some alternative is no word to be typed as it is.
[[nodiscard]] std::vector<std::string_view> ChoicesOf(const OptionRow& row);
[[nodiscard]] bool TakesFile(const OptionRow& row);
[[nodiscard]] bool Takes(const Command& command, const OptionRow& row);

}  // namespace ebb::cli

#endif  // EBB_APPS_DOCS_DOCS_H_
