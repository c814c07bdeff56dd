// Equations and inequalities taken apart.
#ifndef EBB_LAB_ANSWERS_RELATIONS_H_
#define EBB_LAB_ANSWERS_RELATIONS_H_

#include <vector>

#include "lab/answers/math_tokens.h"

namespace ebb {

// The sides of a = b = c; one side if the tokens are no equation, and for lists, whose parts may be
// equations.
[[nodiscard]] std::vector<MathTokens> SidesOf(MathTokens tokens);

// Returns the tokens after "x =", "f(2) =", "(x,y) =" or "x \in"; all tokens if they begin with no
// such name.
[[nodiscard]] MathTokens WithoutName(MathTokens tokens);

// Returns the value that an equation or a chain of them states: its last side. Two sides if the
// last one is approximate: \sqrt{13} \approx 3.6. Empty: it states none.
[[nodiscard]] std::vector<MathTokens> ValuesSaid(MathTokens tokens);

// "x > 5" as (5, infinity), "1 \le x < 2" as [1, 2); empty: the tokens bound no single name.
[[nodiscard]] std::vector<MathToken> AsInterval(MathTokens tokens);

// The parts of A \cup B, and the intervals of "x < 2 or x > 3"; one part if the tokens are no
// union.
[[nodiscard]] std::vector<std::vector<MathToken>> UnionParts(MathTokens tokens);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_RELATIONS_H_
