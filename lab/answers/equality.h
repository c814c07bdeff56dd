// Decides whether an answer and the reference mean the same.
#ifndef EBB_LAB_ANSWERS_EQUALITY_H_
#define EBB_LAB_ANSWERS_EQUALITY_H_

#include <string_view>

namespace ebb {

// Returns whether both texts are the same apart from white space, $ and a full stop at the end. The
// values of formulas are compared by math-verify (python/src/ebb/verdicts.py), not here.
[[nodiscard]] bool SameWritten(std::string_view answer, std::string_view reference);
// Returns whether both texts contain the same number and no other number, with any words around it:
// "18 eggs".
[[nodiscard]] bool SameNumber(std::string_view answer, std::string_view reference);
// Returns whether both are the same word or number word: "seven", "Seven." and 7.
[[nodiscard]] bool SameWord(std::string_view answer, std::string_view reference);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_EQUALITY_H_
