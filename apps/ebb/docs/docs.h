// Documents made from the tables of commands and options: docs/user/cli.md, the manual page,
// completions for shells, and the configuration file of the server.
#ifndef EBB_APPS_DOCS_DOCS_H_
#define EBB_APPS_DOCS_DOCS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/ebb/commands.h"
#include "apps/ebb/options/options.h"

namespace ebb::cli {

[[nodiscard]] std::string MarkdownText();
[[nodiscard]] std::string ManPageText();  // roff, section 1
// Scripts that a shell reads.
[[nodiscard]] std::string BashCompletionText();
[[nodiscard]] std::string ZshCompletionText();
[[nodiscard]] std::string FishCompletionText();

// A file for `ebb serve --config`, which has every setting in a comment.
[[nodiscard]] std::string ConfigText();

// The commands that are shown and run something.
[[nodiscard]] std::vector<const Command*> DocumentedCommands();
// Rows of one title that the same commands take; a title may have several.
struct OptionSection {
  std::string_view title;
  std::vector<const Command*> commands;
  std::vector<const OptionRow*> rows;
};
// All options that some command takes, in the order of the table.
[[nodiscard]] std::vector<OptionSection> OptionSections();
// "-m", "--model"
[[nodiscard]] std::vector<std::string_view> NamesOf(const OptionRow& row);
// "none", "host" of "none|host"; empty where some alternative is no word to be typed as it is.
[[nodiscard]] std::vector<std::string_view> ChoicesOf(const OptionRow& row);
[[nodiscard]] bool TakesFile(const OptionRow& row);
[[nodiscard]] bool Takes(const Command& command, const OptionRow& row);

}  // namespace ebb::cli

#endif  // EBB_APPS_DOCS_DOCS_H_
