// Whether two answers denote the same thing.
#ifndef EBB_LAB_ANSWERS_EQUALITY_H_
#define EBB_LAB_ANSWERS_EQUALITY_H_

#include <string_view>

namespace ebb {

// Whether both are written alike, but for white space, $ and a full stop at the end: what a formula
// is worth, math-verify says (python/src/ebb/judge.py).
[[nodiscard]] bool SameWritten(std::string_view answer, std::string_view reference);
// A number with whatever words around it, where it is the only one: "18 eggs".
[[nodiscard]] bool SameNumber(std::string_view answer, std::string_view reference);
// "seven", "Seven." and 7.
[[nodiscard]] bool SameWord(std::string_view answer, std::string_view reference);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_EQUALITY_H_
