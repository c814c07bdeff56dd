#include "apps/common/help.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/common/terminal/screen.h"
#include "apps/common/terminal/wrap.h"

namespace ebb::cli {
namespace {

// kTextColumn is the column at which the texts of options begin.
constexpr int kTextColumn = 30;

// Appends the text in lines of at most `columns`, all but the first indented to kTextColumn. `used`
// columns of the first line are taken.
void AppendWrapped(std::string_view text, int used, int columns, std::string* help) {
  if (used >= kTextColumn) {
    *help += '\n';
    used = 0;
  }
  help->append(static_cast<size_t>(kTextColumn - used), ' ');
  *help += Wrapped(text, kTextColumn, columns);
  *help += '\n';
}

std::string HelpText(const OptionRow& row) {
  const std::string value = row.show ? row.show(CliOptions()) : "";
  return value.empty() ? row.help : fmt::format("{} (default: {})", row.help, value);
}

}  // namespace

void PrintCommands(std::FILE* file, const Program& program, std::string_view parent) {
  fmt::print(file, "usage: {} {}{}COMMAND [OPTIONS]\n\n", program.name, parent,
             parent.empty() ? "" : " ");
  for (const Command* command : ChildrenOf(program, parent)) {
    constexpr int kSummaryColumn = 20;
    fmt::print(file, "  {:<18}{}\n", command->name,
               Wrapped(command->summary, kSummaryColumn, HelpColumns()));
  }
  fmt::print(file,
             "\n{0} COMMAND --help shows a command's options, {0} docs those of all commands,\n"
             "{0} --version the version.\n",
             program.name);
}

std::string CommandHelp(const Program& program, const Command& command, HelpLength length,
                        int columns) {
  const bool is_short = length == HelpLength::kUsual && !command.usual.empty();
  std::string help = fmt::format("{} {}: {}\n", program.name, command.name, command.summary);
  for (const std::string_view example : command.examples) help += fmt::format("  {}\n", example);
  std::vector<std::pair<std::string_view, std::string>> groups;  // by title, as they come first
  int left_out = 0;
  for (const OptionRow* row : OptionsOf(program, command)) {
    if (is_short && std::ranges::count(command.usual, LongName(*row)) == 0) {
      ++left_out;
      continue;
    }
    const std::string_view title = OptionGroupTitle(row->group);
    auto group = std::ranges::find(groups, title, &decltype(groups)::value_type::first);
    if (group == groups.end()) group = groups.insert(group, {title, ""});
    const bool shows_value = !row->value.empty() && row->value != row->names;
    const std::string names =
        fmt::format("  {}{}{}", row->names, shows_value ? " " : "", shows_value ? row->value : "");
    group->second += names;
    AppendWrapped(HelpText(*row), static_cast<int>(names.size()), columns, &group->second);
  }
  for (const auto& [title, options] : groups) help += fmt::format("\n{}:\n{}", title, options);
  if (left_out > 0) {
    help += fmt::format("\n{} {} --help-all shows {} more options; docs/user/{} explains them.\n",
                        program.name, command.name, left_out,
                        program.reference.substr(program.reference.rfind('/') + 1));
  }
  const std::string footer = WithoutEffectText(program, command);
  return footer.empty() ? help : fmt::format("{}\n{}\n", help, footer);
}

int HelpColumns() {
  constexpr int kOfPipe = 100;
  constexpr int kMost = 120;
  constexpr int kLeast = 50;
  return std::clamp(TerminalColumns(STDOUT_FILENO, kOfPipe), kLeast, kMost);
}

}  // namespace ebb::cli
