// The meaning of commands, words and Unicode characters in mathematics.
#ifndef EBB_LAB_ANSWERS_MATH_NAMES_H_
#define EBB_LAB_ANSWERS_MATH_NAMES_H_

#include <string_view>

#include "lab/answers/math_tokens.h"

namespace ebb {

struct MathName {
  std::string_view name;
  MathTokenKind kind;
  std::string_view text;  // of the token; empty: it means nothing
};

// nullptr: unknown.
[[nodiscard]] const MathName* FindCommand(std::string_view name);  // without the backslash
[[nodiscard]] const MathName* FindWord(std::string_view name);     // lower case
[[nodiscard]] const MathName* FindUnicode(std::string_view character);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_MATH_NAMES_H_
