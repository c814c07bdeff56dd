// The value of an expression at a point.
#ifndef EBB_LAB_ANSWERS_EXPRESSION_H_
#define EBB_LAB_ANSWERS_EXPRESSION_H_

#include <optional>

#include "lab/answers/math_tokens.h"
#include "lab/answers/values.h"

namespace ebb {

// Expressions that agree at these many points are taken to be the same.
inline constexpr int kNumPoints = 4;

// Variables take numbers that follow from their names and `point`, of either sign; letters
// in a row are their product. Empty: the
// tokens are no expression, too deep (64), or without a finite value there.
[[nodiscard]] std::optional<Value> Evaluate(MathTokens tokens, int point);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_EXPRESSION_H_
