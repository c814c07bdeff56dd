// The manual page, in the macros of man(7).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "apps/ebb/docs/docs.h"
#include "ebb/version.h"

namespace ebb::cli {
namespace {

// Text of a page: what begins a request or an escape is none.
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

std::string ManPageText() {
  std::string text = fmt::format(
      ".TH EBB 1 \"\" \"ebb {}\" \"User Commands\"\n.SH NAME\nebb \\- run language models whose "
      "key\\-value cache lives in a memory hierarchy\n.SH SYNOPSIS\n.B ebb\n.I COMMAND\n"
      "[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\nText and results go to stdout, all else to stderr.\n"
      ".SH COMMANDS\n",
      Roff(EBB_VERSION));
  for (const Command* command : DocumentedCommands()) {
    text += fmt::format(".TP\n.B {}\n{}.\n", Roff(command->name), Roff(command->summary));
  }
  text += ".SH OPTIONS\n";
  std::string_view title;
  for (const OptionSection& section : OptionSections()) {
    if (section.title != title) text += fmt::format(".SS {}\n", Roff(section.title));
    title = section.title;
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
