#include "lab/answers/formula.h"

#include <algorithm>
#include <utility>

#include "ebb/lab/answers.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

// Returns the length, with delimiters, of the formula at the beginning of the text; 0: there is
// none.
size_t FormulaLength(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kDelimiters[] = {
      {"$$", "$$"}, {"$", "$"}, {"\\(", "\\)"}, {"\\[", "\\]"}};
  for (const auto& [open, close] : kDelimiters) {
    if (!text.starts_with(open)) continue;
    // Limits the search: no answer is longer, and a currency sign has no closing $.
    const std::string_view inside = text.substr(open.size(), kMaxAnswerBytes);
    for (size_t end = inside.find(close); end != std::string_view::npos;
         end = inside.find(close, end + 1)) {
      // A "\$" is a currency sign and does not close a formula.
      if (close != "$" || end == 0 || inside[end - 1] != '\\') {
        return open.size() + end + close.size();
      }
    }
    return 0;
  }
  return 0;
}

// Returns whether the argument of a LaTeX command is words: \text{...} and similar ones, and the
// names of environments.
bool HasWordArgument(std::string_view command) {
  constexpr std::string_view kCommands[] = {"\\text",   "\\mbox",  "\\textbf", "\\textit",
                                            "\\mathrm", "\\begin", "\\end",    "\\operatorname"};
  return std::find(std::begin(kCommands), std::end(kCommands), command) != std::end(kCommands);
}

}  // namespace

std::string_view FirstWord(std::string_view text) {
  const bool has_letters = text[0] == '\\' || IsLetter(text[0]);
  size_t end = 1;
  while (has_letters && end < text.size() && IsLetter(text[end])) ++end;
  return text.substr(0, end);
}

bool HasProse(std::string_view text) {
  while (!text.empty()) {
    const std::string_view word = FirstWord(text);
    if (word[0] != '\\' && word.size() > 2 && word != "and") return true;
    text = Behind(text, word);
    if (HasWordArgument(word)) text.remove_prefix(std::min(text.find('}'), text.size()));
  }
  return false;
}

bool IsEnumerated(std::string_view behind_number) {
  const std::string_view rest = Trim(behind_number);
  if (rest.size() < 2) return false;
  for (const std::string_view mark : {".", ")", ":", "\\.", "\\)"}) {
    if (rest.starts_with(mark)) return true;
  }
  return (rest.starts_with("-") || rest.starts_with("–") || rest.starts_with("—")) &&
         HasProse(rest);
}

std::string_view LeadingFormula(std::string_view text) {
  const size_t length = FormulaLength(text);
  if (length == 0) return {};
  const size_t mark = text.starts_with("$") && !text.starts_with("$$") ? 1 : 2;
  return Trim(text.substr(mark, length - 2 * mark));
}

}  // namespace ebb
