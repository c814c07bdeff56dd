// Writes the manual page with the macros of man(7).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/docs/docs.h"
#include "ebb/version.h"

namespace ebb::cli {
namespace {

// Escapes a text for the manual page, so that roff takes no part of it for an escape or a request.
std::string Roff(std::string_view text) {
  std::string roff;
  for (const char c : text) {
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else if (c == '`') {
      continue;  // code is not set apart
    } else {
      roff += c;
    }
  }
  const bool is_request = roff.starts_with('.') || roff.starts_with('\'');
  return is_request ? "\\&" + roff : roff;
}

void AppendOption(const OptionRow& row, std::string* text) {
  std::vector<std::string> names;
  for (const std::string_view name : NamesOf(row)) names.push_back("\\fB" + Roff(name) + "\\fR");
  *text += fmt::format(".TP\n{}{}{}\n{}", fmt::join(names, ", "), row.value.empty() ? "" : " ",
                       row.value.empty() ? "" : "\\fI" + Roff(row.value) + "\\fR", Roff(row.help));
  const std::string value = row.show ? row.show(CliOptions()) : "";
  *text += value.empty() ? ".\n" : fmt::format(" (default: {}).\n", Roff(value));
}

}  // namespace

std::string ManPageText(const Program& program) {
  std::string title(program.name);
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string text = fmt::format(
      ".TH {} 1 \"\" \"ebb {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n"
      ".I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\nText and results go to stdout, all else to "
      "stderr.\n.SH COMMANDS\n",
      Roff(title), Roff(EBB_VERSION), Roff(program.name), Roff(program.summary),
      Roff(program.name));
  for (const Command* command : DocumentedCommands(program)) {
    text += fmt::format(".TP\n.B {}\n{}.\n", Roff(command->name), Roff(command->summary));
  }
  text += ".SH OPTIONS\n";
  std::string_view last;
  for (const OptionSection& section : OptionSections(program)) {
    if (section.title != last) text += fmt::format(".SS {}\n", Roff(section.title));
    last = section.title;
    std::vector<std::string> names;
    for (const Command* command : section.commands) names.push_back(Roff(command->name));
    text += fmt::format(".PP\nTaken by {}:\n", fmt::join(names, ", "));
    for (const OptionRow* row : section.rows) AppendOption(*row, &text);
  }
  text += ".SH EXIT STATUS\n";
  for (const ExitCodeInfo& info : ExitCodes()) {
    text += fmt::format(".TP\n.B {}\n{}.\n", static_cast<int>(info.code), Roff(info.meaning));
  }
  return text;
}

}  // namespace ebb::cli
