// Finds formulas in running text.
#ifndef EBB_LAB_ANSWERS_FORMULA_H_
#define EBB_LAB_ANSWERS_FORMULA_H_

#include <string_view>

namespace ebb {

// Returns the formula that begins the text, without its $...$, $$...$$, \(...\) or \[...\]; empty:
// the text begins with none.
[[nodiscard]] std::string_view LeadingFormula(std::string_view text);

// Returns the word or the command, such as \frac, that begins the text, or otherwise its first
// byte. REQUIRES: the text is not empty.
[[nodiscard]] std::string_view FirstWord(std::string_view text);
// Returns whether the text has words of three letters or more, not counting commands, the contents
// of \text{} and "and".
[[nodiscard]] bool HasProse(std::string_view text);
// Returns whether a heading's number is the number of a list's item, by the text behind it: "1. Let
// us", "1\. Let us", "1) Let us", "1: Let us", "1 - Let us".
[[nodiscard]] bool IsEnumerated(std::string_view behind_number);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_FORMULA_H_
