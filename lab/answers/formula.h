// Formulas in running text.
#ifndef EBB_LAB_ANSWERS_FORMULA_H_
#define EBB_LAB_ANSWERS_FORMULA_H_

#include <string_view>
#include <vector>

namespace ebb {

// The formula that begins the text, without its $...$, $$...$$, \(...\) or \[...\]; empty: none.
[[nodiscard]] std::string_view LeadingFormula(std::string_view text);

// That, and those that commas, "and" and "or" join to it, where the sentence ends with them.
[[nodiscard]] std::vector<std::string_view> LeadingFormulas(std::string_view text);

// Whether a formula is a number: \frac{3}{4}, x = 5, \$18.
[[nodiscard]] bool HasNumericValue(std::string_view formula);

// The word or the command, such as \frac, that begins the text, or its first byte.
// REQUIRES: the text is not empty.
[[nodiscard]] std::string_view FirstWord(std::string_view text);
// Whether there are words of three letters or more besides commands, the contents of \text{} and
// "and".
[[nodiscard]] bool HasProse(std::string_view text);
// "1. Let us", "1\. Let us", "1) Let us", "1: Let us", "1 - Let us": what follows a heading's
// number.
[[nodiscard]] bool IsEnumerated(std::string_view behind_number);
// "12" of "12 ways", "$5 for each student": what only words follow, none of which reckons. Empty:
// something else does, or nothing.
[[nodiscard]] std::string_view NumberBeforeWords(std::string_view text);
// Whether the text begins as an expression does: with a digit, a sign, a bracket, a command.
[[nodiscard]] bool BeginsLikeMath(std::string_view text);
// That, or a word or two: "Evelyn", "no solution".
[[nodiscard]] bool LooksLikeMath(std::string_view sentence);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_FORMULA_H_
