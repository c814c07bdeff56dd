// Rewrites the tokens of a formula after they are read.
#ifndef EBB_LAB_ANSWERS_MATH_REWRITES_H_
#define EBB_LAB_ANSWERS_MATH_REWRITES_H_

#include <vector>

#include "lab/answers/math_tokens.h"

namespace ebb {

// Degrees change nothing: ^\circ, ^{\circ}, °.
void DropDegrees(std::vector<MathToken>* tokens);
// 13^{\text{th}} and 2nd are 13 and 2.
void DropOrdinalEnds(std::vector<MathToken>* tokens);
// \frac12 and \frac1{10}: an argument without braces is one digit.
void SplitFractionDigits(std::vector<MathToken>* tokens);
// \{\} is \emptyset.
void NameEmptySets(std::vector<MathToken>* tokens);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_MATH_REWRITES_H_
