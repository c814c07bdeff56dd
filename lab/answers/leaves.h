// Answers that are no lists, tuples or matrices: expressions, equations and words.
#ifndef EBB_LAB_ANSWERS_LEAVES_H_
#define EBB_LAB_ANSWERS_LEAVES_H_

#include <vector>

#include "lab/answers/math_tokens.h"

namespace ebb {

// Also where the answer or the reference is in percent.
[[nodiscard]] bool SameLeaves(MathTokens answer, MathTokens reference);

// Each has two sides: the same when the differences of their sides are proportional.
[[nodiscard]] bool SameEquation(const std::vector<MathTokens>& answer,
                                const std::vector<MathTokens>& reference);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_LEAVES_H_
