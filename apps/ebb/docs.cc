#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "apps/ebb/commands.h"
#include "apps/ebb/program.h"

namespace ebb::cli {
namespace {

// In a table's cell a bar ends the cell, in code too.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return cell;
}

std::string NamesCell(const OptionRow& row) {
  std::string cell;
  for (size_t begin = 0; begin < row.names.size();) {
    const size_t end = std::min(row.names.find(',', begin), row.names.size());
    cell += fmt::format("{}`{}`", cell.empty() ? "" : ", ", row.names.substr(begin, end - begin));
    begin = end + 1;
  }
  return row.value.empty() ? cell : fmt::format("{} `{}`", cell, Cell(row.value));
}

void AppendCommand(const Command& command, std::string* text) {
  *text += fmt::format("\n## ebb {}\n\n{}.\n", command.name, command.summary);
  std::string_view title;
  for (const OptionRow& row : OptionTable()) {
    if (std::ranges::find(command.groups, row.group) == command.groups.end()) continue;
    if (OptionGroupTitle(row.group) != title) {
      title = OptionGroupTitle(row.group);
      *text += fmt::format("\n| {} | | default |\n|---|---|---|\n", title);
    }
    *text += fmt::format("| {} | {} | {} |\n", NamesCell(row), Cell(row.help),
                         row.show ? Cell(row.show(CliOptions())) : "");
  }
  const std::string without_effect = WithoutEffectText(command);
  if (!without_effect.empty()) *text += fmt::format("\n{}\n", without_effect);
}

}  // namespace

std::string DocsText() {
  std::string text =
      "# The command line\n\nPrinted by `ebb docs` from the table of options; a test holds this "
      "file against it.\n\nText and results go to stdout, all else to stderr.\n\n"
      "| exit code | |\n|---|---|\n";
  for (const ExitCodeInfo& info : ExitCodes()) {
    text += fmt::format("| {} | {} |\n", static_cast<int>(info.code), info.meaning);
  }
  for (const Command& command : CommandTable()) {
    if (command.run != nullptr && command.visibility == Command::Visibility::kShown) {
      AppendCommand(command, &text);
    }
  }
  return text;
}

ExitCode RunDocs(const CliOptions&) {
  fmt::print("{}", DocsText());
  return ExitCode::kOk;
}

}  // namespace ebb::cli
