// Writes a program's reference page in docs/user: the commands, and every option once with the
// commands that take it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/docs/docs.h"

namespace ebb::cli {
namespace {

// Escapes a text for a cell of a table, where a bar ends the cell, even within code.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return cell;
}

std::string NamesCell(const OptionRow& row) {
  std::string cell;
  for (const std::string_view name : NamesOf(row)) {
    cell += fmt::format("{}`{}`", cell.empty() ? "" : ", ", name);
  }
  return row.value.empty() ? cell : fmt::format("{} `{}`", cell, Cell(row.value));
}

// Returns the anchor that GitHub makes of a heading.
std::string Anchor(std::string_view title) {
  std::string anchor;
  for (const char c : title) {
    anchor += c == ' ' ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return anchor;
}

std::string TitlesOf(const Command& command, const std::vector<OptionSection>& sections) {
  std::vector<std::string> titles;
  for (const OptionSection& section : sections) {
    if (std::ranges::find(section.commands, &command) == section.commands.end()) continue;
    std::string link = fmt::format("[{}](#{})", section.title, Anchor(section.title));
    if (std::ranges::find(titles, link) == titles.end()) titles.push_back(std::move(link));
  }
  return fmt::format("{}", fmt::join(titles, ", "));
}

void AppendSection(const OptionSection& section, size_t num_commands, std::string* text) {
  std::vector<std::string> names;
  for (const Command* command : section.commands)
    names.push_back(fmt::format("`{}`", command->name));
  const std::string of =
      names.size() == num_commands ? "every command" : fmt::format("{}", fmt::join(names, ", "));
  *text += fmt::format("\nFor {}:\n\n| option | | default |\n|---|---|---|\n", of);
  for (const OptionRow* row : section.rows) {
    *text += fmt::format("| {} | {} | {} |\n", NamesCell(*row), Cell(row->help),
                         row->show ? Cell(row->show(CliOptions())) : "");
  }
}

}  // namespace

std::string MarkdownText(const Program& program) {
  const std::vector<const Command*> commands = DocumentedCommands(program);
  const std::vector<OptionSection> sections = OptionSections(program);
  std::string text = fmt::format(
      "# The command line of {0}\n\nPrinted by `{0} docs` from the tables of commands and options; "
      "a "
      "test holds this file against them.\n\nText and results go to stdout, all else to stderr",
      program.name);
  if (FindCommand(program, "run") != nullptr) {
    text += "; `run --json` writes its object to stderr, so that stdout has the text alone";
  }
  text += ".\n\nA flag, an option without a value, is off by default";
  if (FindCommand(program, "serve") != nullptr) {
    text += "; `--FLAG=false` turns off one that the file of `ebb serve --config` turns on";
  }
  text +=
      ".\n\n"
      "A SIZE is a number of bytes, which may have a fraction, an exponent and a unit in letters "
      "of either case: `512MiB`, `1.5Gi`, `2G`, `1e9`. Ki, Mi, Gi, Ti (with or without a B) are "
      "powers of 1024; k, M, G, T (with or without a B) are powers of 1000, as in Kubernetes: "
      "`512M` is 488 MiB.\n\n"
      "| exit code | |\n|---|---|\n";
  for (const ExitCodeInfo& info : ExitCodes()) {
    text += fmt::format("| {} | {} |\n", static_cast<int>(info.code), info.meaning);
  }
  text += "\n| command | | options |\n|---|---|---|\n";
  for (const Command* command : commands) {
    const std::string without_effect = WithoutEffectText(program, *command);
    text += fmt::format("| `{} {}` | {}{}{} | {} |\n", program.name, command->name,
                        command->summary, without_effect.empty() ? "" : ". ", without_effect,
                        TitlesOf(*command, sections));
  }
  std::string_view title;
  for (const OptionSection& section : sections) {
    if (section.title != title) text += fmt::format("\n## {}\n", section.title);
    title = section.title;
    AppendSection(section, commands.size(), &text);
  }
  return text;
}

}  // namespace ebb::cli
