#include "lab/answers/equality.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "ebb/lab/answers.h"
#include "lab/answers/formula.h"
#include "lab/answers/number_value.h"
#include "lab/answers/numbers.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

// Returns whether the text contains a variable: "w" in "\frac{w}{2}" and "x" in "5 x". Does not
// count "a" in "18 a day" and the text inside \text{}.
bool HasVariable(std::string_view text) {
  while (!text.empty()) {
    const std::string_view word = FirstWord(text);
    if (word.size() == 1 && IsLetter(word[0]) && word != "a" && word != "A") return true;
    text = Behind(text, word);
    const bool is_text =
        word == "\\text" || word == "\\textbf" || word == "\\mathrm" || word == "\\mbox";
    if (is_text) text.remove_prefix(std::min(text.find('}'), text.size()));
  }
  return false;
}

// Returns whether the number is an operand in the text: "8" in "L - 8", "n + 8" and "8 * n", but
// not in "Cost - 8 dollars".
bool IsOperand(std::string_view number, std::string_view text) {
  const std::string_view before = Trim(text.substr(0, number.data() - text.data()));
  const std::string_view behind = Trim(Behind(text, number));
  for (const std::string_view sign : {"+", "*", "/", "^", "×", "÷", "\\times", "\\cdot", "\\div"}) {
    if (before.ends_with(sign) || (sign != "/" && behind.starts_with(sign))) return true;
  }
  for (const std::string_view minus : {"-", "−"}) {
    if (!before.ends_with(minus)) continue;
    const std::string_view from = Trim(before.substr(0, before.size() - minus.size()));
    if (from.empty()) return false;
    const bool is_word =
        from.size() > 1 && IsLetter(from.back()) && IsLetter(from[from.size() - 2]);
    return !is_word;
  }
  return false;
}

}  // namespace

bool SameWritten(std::string_view answer, std::string_view reference) {
  const auto bare = [](std::string_view text) {
    std::string kept;
    std::ranges::copy_if(text, std::back_inserter(kept),
                         [](char c) { return !IsSpace(c) && c != '$'; });
    if (kept.ends_with('.')) kept.pop_back();
    return kept;
  };
  if (Trim(answer) == Trim(reference)) return !Trim(answer).empty();
  const std::string written = bare(answer);
  return !written.empty() && written == bare(reference);
}

bool SameNumber(std::string_view answer, std::string_view reference) {
  if (answer.size() > kMaxAnswerBytes) return Trim(answer) == Trim(reference);
  const std::optional<NumberValue> expected = ValueOf(reference);
  if (!expected.has_value()) return SameWritten(answer, reference);
  const auto is_expected = [&](std::string_view text) {
    const std::optional<NumberValue> value = ValueOf(text);
    return value.has_value() && SameValue(*value, *expected);
  };
  if (is_expected(answer)) return true;
  const std::vector<std::string_view> numbers = StandaloneNumbers(answer);
  return numbers.size() == 1 && !IsOperand(numbers[0], answer) && !HasVariable(answer) &&
         is_expected(numbers[0]);
}

bool SameWord(std::string_view answer, std::string_view reference) {
  constexpr std::array<std::string_view, 11> kNumbers = {
      "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"};
  const auto word_of = [&](std::string_view text) {
    text = SkipMarkup(text);
    while (!text.empty() && !IsAlphanumeric(text.back()) &&
           static_cast<unsigned char>(text.back()) < 0x80)
      text.remove_suffix(1);
    for (size_t i = 0; i < kNumbers.size(); ++i) {
      if (text == std::to_string(i)) return std::string(kNumbers[i]);
    }
    return LowerCase(text);
  };
  const std::string word = word_of(answer);
  return !word.empty() && word == word_of(reference);
}

}  // namespace ebb
