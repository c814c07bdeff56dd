// Formulas in running text.
#ifndef EBB_LAB_ANSWERS_FORMULA_H_
#define EBB_LAB_ANSWERS_FORMULA_H_

#include <string_view>

namespace ebb {

// The formula that begins the text, without its $...$, $$...$$, \(...\) or \[...\]; empty: none.
[[nodiscard]] std::string_view LeadingFormula(std::string_view text);

// The word or the command, such as \frac, that begins the text, or its first byte.
// REQUIRES: the text is not empty.
[[nodiscard]] std::string_view FirstWord(std::string_view text);
// Whether there are words of three letters or more besides commands, the contents of \text{} and
// "and".
[[nodiscard]] bool HasProse(std::string_view text);
// "1. Let us", "1\. Let us", "1) Let us", "1: Let us", "1 - Let us": what follows a heading's
// number.
[[nodiscard]] bool IsEnumerated(std::string_view behind_number);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_FORMULA_H_
