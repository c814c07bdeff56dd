#include "src/eval/answers/formula.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ebb/answers.h"
#include "src/eval/answers/expression.h"
#include "src/eval/answers/math_parts.h"
#include "src/eval/answers/math_tokens.h"
#include "src/eval/answers/text.h"

namespace ebb {
namespace {

// Whether there are words of three letters or more besides commands, "and" and "or".
bool HasProse(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const bool command = text[at] == '\\';
    size_t end = at + 1;
    while ((command || IsLetter(text[at])) && end < text.size() && IsLetter(text[end])) ++end;
    if (!command && end - at > 2 && text.substr(at, end - at) != "and") return true;
    at = end;
  }
  return false;
}

}  // namespace

std::string_view LeadingFormula(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kDelimiters[] = {
      {"$$", "$$"}, {"$", "$"}, {"\\(", "\\)"}, {"\\[", "\\]"}};
  for (const auto& [open, close] : kDelimiters) {
    if (!text.starts_with(open)) continue;
    // No answer is longer; a currency sign has no partner.
    std::string_view inside = text.substr(open.size(), kMaxAnswerBytes);
    for (size_t end = inside.find(close); end != std::string_view::npos;
         end = inside.find(close, end + 1)) {
      // "\$" is a currency.
      if (close != "$" || end == 0 || inside[end - 1] != '\\') return Trim(inside.substr(0, end));
    }
    return {};
  }
  return {};
}

bool HasNumericValue(std::string_view formula) {
  if (formula.size() > kMaxAnswerBytes) return false;
  const std::vector<MathToken> tokens = TokenizeMath(formula);
  MathTokens value = WithoutUnit(WithoutGroups(WithoutName(tokens)));
  if (!value.empty() && value.back().Is("%")) value = value.first(value.size() - 1);
  const auto first = Evaluate(value, 0);
  return first && first == Evaluate(value, 1);
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
