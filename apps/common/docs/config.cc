// Writes the example configuration file of `ebb serve`: every setting as a comment, with its
// default.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <string_view>

#include "apps/common/docs/docs.h"
#include "apps/common/options/config_file.h"

namespace ebb::cli {
namespace {

// Wraps a text into comment lines of at most 100 columns.
std::string WrappedComment(std::string_view text) {
  constexpr size_t kColumns = 100;
  std::string comment;
  size_t column = kColumns;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (column + 1 + word.size() > kColumns) {
      comment += comment.empty() ? "#" : "\n#";
      column = 1;
    }
    comment += fmt::format(" {}", word);
    column += 1 + word.size();
  }
  return comment + "\n";
}

// Returns the default of an option as a TOML value, or the placeholder of its value ("FILE") if it
// has no default.
std::string ExampleValue(const OptionRow& row) {
  if (row.value.empty()) return "false";
  const std::string shown = row.show ? row.show(CliOptions()) : "";
  const bool is_number = !shown.empty() && std::ranges::all_of(shown, [](unsigned char c) {
    return std::isdigit(c) != 0 || c == '.' || c == '-';
  }) && shown != "-" && std::ranges::count(shown, '.') < 2;
  if (is_number) return shown;
  const std::string text = fmt::format("\"{}\"", shown.empty() ? row.value : shown);
  return row.is_repeatable ? fmt::format("[{}]", text) : text;
}

}  // namespace

std::string ConfigText(const Program& program) {
  const Command& serve = *FindCommand(program, "serve");
  std::string text =
      "# Options of `ebb serve --config`, each in a comment with its default or the kind of its "
      "value.\n# Options of the command line win over those in this file.\n";
  std::string_view title;
  for (const OptionSection& section : OptionSections(program)) {
    for (const OptionRow* row : section.rows) {
      if (!Takes(serve, *row) || !IsConfigurable(*row)) continue;
      if (section.title != title) text += fmt::format("\n## {}\n", section.title);
      title = section.title;
      text += fmt::format("\n{}#{} = {}\n", WrappedComment(row->help), ConfigName(*row),
                          ExampleValue(*row));
    }
  }
  return text;
}

}  // namespace ebb::cli
