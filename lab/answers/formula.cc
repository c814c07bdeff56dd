#include "lab/answers/formula.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "ebb/lab/answers.h"
#include "lab/answers/expression.h"
#include "lab/answers/math_parts.h"
#include "lab/answers/math_tokens.h"
#include "lab/answers/numbers.h"
#include "lab/answers/relations.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

// The length of the formula that begins the text, with its delimiters; 0: none does.
size_t FormulaLength(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kDelimiters[] = {
      {"$$", "$$"}, {"$", "$"}, {"\\(", "\\)"}, {"\\[", "\\]"}};
  for (const auto& [open, close] : kDelimiters) {
    if (!text.starts_with(open)) continue;
    // No answer is longer; a currency sign has no partner.
    const std::string_view inside = text.substr(open.size(), kMaxAnswerBytes);
    for (size_t end = inside.find(close); end != std::string_view::npos;
         end = inside.find(close, end + 1)) {
      // "\$" is a currency.
      if (close != "$" || end == 0 || inside[end - 1] != '\\') {
        return open.size() + end + close.size();
      }
    }
    return 0;
  }
  return 0;
}

// The length of what joins two answers: a comma, "and", "or", white space; 0: nothing does.
size_t JoinLength(std::string_view text) {
  const std::string_view bounded = text.substr(0, 16);
  std::string_view rest = Trim(bounded);
  bool joins = false;
  for (const std::string_view word : {",", ";", "and ", "or "}) {
    if (!rest.starts_with(word)) continue;
    joins = true;
    rest = Trim(rest.substr(word.size()));
  }
  return joins && !rest.empty() ? static_cast<size_t>(rest.data() - text.data()) : 0;
}

// \text{...} and its kin, and the names of environments.
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

std::string_view NumberBeforeWords(std::string_view text) {
  constexpr std::array<std::string_view, 18> kReckoning = {
      "times", "plus",   "minus",   "over", "divided", "squared", "cubed", "factorial", "choose",
      "mod",   "modulo", "percent", "sqrt", "root",    "sin",     "cos",   "tan",       "log"};
  const std::string_view number = LeadingNumber(text);
  if (number.empty()) return {};
  std::string_view rest = Behind(text, number);
  if (rest.empty() || !IsSpace(rest.front())) return {};
  bool is_first = true;
  for (rest = Trim(rest); !rest.empty(); rest = Trim(rest)) {
    size_t end = 0;
    while (end < rest.size() && (IsLetter(rest[end]) || rest[end] == '\'' || rest[end] == '-'))
      ++end;
    const std::string word = LowerCase(rest.substr(0, end));
    const bool is_short = is_first ? end < 3 : end < 2 && word != "a";
    if (is_short || std::find(kReckoning.begin(), kReckoning.end(), word) != kReckoning.end() ||
        !ScaleOfWord(word).empty()) {
      return {};
    }
    rest.remove_prefix(end);
    if (rest.starts_with(',') || rest.starts_with('.')) rest.remove_prefix(1);
    is_first = false;
  }
  return is_first ? std::string_view() : number;
}

std::string_view LeadingFormula(std::string_view text) {
  const size_t length = FormulaLength(text);
  if (length == 0) return {};
  const size_t mark = text.starts_with("$") && !text.starts_with("$$") ? 1 : 2;
  return Trim(text.substr(mark, length - 2 * mark));
}

std::vector<std::string_view> LeadingFormulas(std::string_view text) {
  std::vector<std::string_view> formulas;
  size_t end = 0;
  for (size_t begin = 0; begin < kMaxAnswerBytes;) {
    const size_t length = FormulaLength(text.substr(begin));
    if (length == 0) break;
    formulas.push_back(LeadingFormula(text.substr(begin)));
    end = begin + length;
    const size_t join = JoinLength(text.substr(end));
    if (join == 0) break;
    begin = end + join;
  }
  if (formulas.size() < 2) return formulas;
  const std::string_view behind = text.substr(end, 4);
  const size_t next = behind.find_first_not_of(" *.");
  const bool ends =
      behind.starts_with('.') || next == std::string_view::npos || behind[next] == '\n';
  if (!ends) formulas.resize(1);
  return formulas;
}

bool HasNumericValue(std::string_view formula) {
  if (formula.size() > kMaxAnswerBytes) return false;
  const std::vector<MathToken> tokens = TokenizeMath(formula);
  MathTokens value = WithoutUnit(WithoutGroups(WithoutName(tokens)));
  if (!value.empty() && value.back().Is("%")) value = value.first(value.size() - 1);
  const auto first = Evaluate(value, 0);
  const auto second = Evaluate(value, 1);
  return first && second && first->number == second->number;
}

bool BeginsLikeMath(std::string_view text) {
  constexpr std::string_view kFirst = "\\$(+-.[{|";
  return !text.empty() && (IsDigit(text[0]) || kFirst.find(text[0]) != std::string_view::npos ||
                           text.starts_with("−") || text.starts_with("√") || text.starts_with("π"));
}

bool LooksLikeMath(std::string_view sentence) {
  if (BeginsLikeMath(sentence)) return true;
  if (sentence.size() > kMaxAnswerBytes) return false;
  return std::count_if(sentence.begin(), sentence.end(), IsSpace) <= 1 || !HasProse(sentence);
}

}  // namespace ebb
