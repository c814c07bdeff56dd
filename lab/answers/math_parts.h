// Tokens taken apart: lists, brackets, matrices, units.
#ifndef EBB_LAB_ANSWERS_MATH_PARTS_H_
#define EBB_LAB_ANSWERS_MATH_PARTS_H_

#include <initializer_list>
#include <string_view>
#include <vector>

#include "lab/answers/math_tokens.h"

namespace ebb {

// The parts between the symbols that stand outside all brackets and groups.
[[nodiscard]] std::vector<MathTokens> SplitAt(MathTokens tokens,
                                              std::initializer_list<std::string_view> symbols);

// Whether commas or semicolons stand outside all brackets; "and" and "or" are commas.
[[nodiscard]] bool IsList(MathTokens tokens);

// Whether the first token opens a bracket that the last one closes. Any bracket closes any other,
// as intervals need: (3,4].
[[nodiscard]] bool IsEnclosed(MathTokens tokens);

// Without groups around everything, which mean nothing.
[[nodiscard]] MathTokens WithoutGroups(MathTokens tokens);

// Without a unit at the end: "5 cm", "15\mbox{ cm}^2", "3 eggs" in \text. Never all of the tokens.
[[nodiscard]] MathTokens WithoutUnit(MathTokens tokens);
// 6 AM and 6 PM: they count as units, but for this.
[[nodiscard]] bool NameOtherHalves(MathTokens a, MathTokens b);

// Both readings of plus-or-minus; the tokens themselves without one.
[[nodiscard]] std::vector<std::vector<MathToken>> ReadingsOfSigns(MathTokens tokens);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_MATH_PARTS_H_
