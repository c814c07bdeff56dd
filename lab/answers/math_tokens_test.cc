#include "lab/answers/cases_for_test.h"

namespace ebb {
namespace {

using enum Expect;

TEST(SameMath, WritesRepeatingDecimalsOut) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "0.\\overline{3}", "\\frac13"},
                                   {kSame, "\\frac13", "0.\\overline{3}"},
                                   {kSame, "0.1\\overline{6}", "\\frac16"},
                                   {kSame, "2.\\overline{45}", "\\frac{27}{11}"},
                                   {kDifferent, "0.\\overline{3}", "0.3"},
                                   {kDifferent, "\\overline{3}", "3"},
                               });
}

TEST(SameMath, ReadsOrdinalsTimesAndWordsForPowersOfTen) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "13^{\\text{th}}", "13"},
                                   {kSame, "13", "13^{\\text{th}}"},
                                   {kSame, "13th", "13"},
                                   {kSame, "22nd", "22^\\text{nd}"},
                                   {kDifferent, "13^{tx}", "13"},
                                   {kSame, "6\\text{ PM}", "6 PM"},
                                   {kSame, "6 PM", "6\\text{ PM}"},
                                   {kSame, "6\\text{ p.m.}", "6 PM"},
                                   {kSame, "6", "6\\text{ PM}"},
                                   {kDifferent, "6 AM", "6\\text{ PM}"},
                                   {kSame, "6:30 \\text{ PM}", "6:30 PM"},
                                   {kSame, "2 million dollars", "2,000,000"},
                                   {kSame, "2.5 \\text{ million}", "2500000"},
                                   {kDifferent, "2 million", "2"},
                               });
}

TEST(SameMath, TellsEnvironmentsApartAndKnowsTheEmptySet) {
  CheckSame(AnswerKind::kMath, {
                                   {kDifferent, "\\begin{vmatrix}1&2\\\\3&4\\end{vmatrix}",
                                    "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"},
                                   {kSame, "\\begin{vmatrix}1&2\\\\3&4\\end{vmatrix}",
                                    "\\begin{vmatrix} 1 & 2 \\\\ 3 & 4 \\end{vmatrix}"},
                                   {kSame, "\\{\\}", "\\emptyset"},
                                   {kSame, "\\varnothing", "\\left\\{ \\right\\}"},
                                   {kDifferent, "\\{0\\}", "\\emptyset"},
                               });
}

}  // namespace
}  // namespace ebb
