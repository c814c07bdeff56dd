// The value of an expression at a point.
#ifndef EBB_EVAL_ANSWERS_EXPRESSION_H_
#define EBB_EVAL_ANSWERS_EXPRESSION_H_

#include <complex>
#include <optional>

#include "src/eval/answers/math_tokens.h"

namespace ebb {

// Expressions that agree at these many points are taken to be the same.
inline constexpr int kNumPoints = 4;

// Variables take numbers that follow from their names and `point`, of either sign. Empty: the
// tokens are no expression, too deep (64), or without a finite value there.
[[nodiscard]] std::optional<std::complex<double>> Evaluate(MathTokens tokens, int point);

}  // namespace ebb

#endif  // EBB_EVAL_ANSWERS_EXPRESSION_H_
