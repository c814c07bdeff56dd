// Finds formulas in running text.
#ifndef EBB_LAB_ANSWERS_FORMULA_H_
#define EBB_LAB_ANSWERS_FORMULA_H_

#include <string_view>

namespace ebb {

// Returns the formula at the beginning of the text, without its $...$, $$...$$, \(...\) or \[...\];
// empty: there is none.
[[nodiscard]] std::string_view LeadingFormula(std::string_view text);

// Returns the word or LaTeX command, such as \frac, at the beginning of the text, or else its first
// byte. REQUIRES: the text is not empty.
[[nodiscard]] std::string_view FirstWord(std::string_view text);
// Returns whether the text has words of three letters or more, apart from commands, the contents of
// \text{} and "and".
[[nodiscard]] bool HasProse(std::string_view text);
// Returns whether a number in a heading is the number of a list's item, judging by the text after
// it: "1. Let us", "1\. Let us", "1) Let us", "1: Let us", "1 - Let us".
[[nodiscard]] bool IsEnumerated(std::string_view behind_number);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_FORMULA_H_
