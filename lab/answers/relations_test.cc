#include "lab/answers/cases_for_test.h"

namespace ebb {
namespace {

using enum Expect;

TEST(SameMath, TakesWhatIsSaidOfANameForItsValue) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "(x,y)=(3,4)", "(3,4)"},
                                   {kSame, "(3,4)", "(x,y)=(3,4)"},
                                   {kDifferent, "(3,4)", "(x,y)=(4,3)"},
                                   {kSame, "(x,y)=(3,4)", "(x,y)=(3, \\frac{8}{2})"},
                                   {kSame, "x \\in \\{1,2\\}", "\\{1,2\\}"},
                                   {kSame, "x \\in \\{1,2\\}", "1,2"},
                                   {kSame, "1,2", "x \\in \\{1,2\\}"},
                                   {kSame, "S=\\{1,2\\}", "\\{2,1\\}"},
                                   {kSame, "S=\\{1,2\\}", "1,2"},
                                   {kSame, "\\{1,2\\}", "S=\\{1,2\\}"},
                                   {kDifferent, "6", "S=\\{1,2\\}"},
                                   {kSame, "f(2)=9", "9"},
                                   {kSame, "9", "f(2)=9"},
                                   {kSame, "P(3)=9", "9"},
                                   {kSame, "9", "P(-3)=9"},
                                   {kDifferent, "f(2)=9", "P(3)=9"},
                                   {kSame, "a_{10}=9", "9"},
                                   {kSame, "9", "a_{10}=9"},
                                   {kSame, "x_1=1, x_2=2", "1,2"},
                                   {kSame, "1,2", "x_1=1, x_2=2"},
                                   {kSame, "x_1=1 \\text{, and } x_2=2", "1,2"},
                                   {kSame, "|AB|=5", "5"},
                                   {kSame, "\\angle ABC=30^\\circ", "30^\\circ"},
                                   {kSame, "\\sin\\theta=\\frac12", "\\frac{1}{2}"},
                                   {kSame, "x+y=5", "5"},
                                   {kDifferent, "5", "x+y=5"},
                                   {kDifferent, "x=5", "y=5"},
                               });
}

TEST(SameMath, TakesTheLastSideOfAChain) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "3+4=7", "7"},
                                   {kSame, "3 \\times 6 = 18", "18"},
                                   {kSame, "m + n = 5 + 7 = 12", "12"},
                                   {kDifferent, "m + n = 5 + 7 = 12", "5"},
                                   {kSame, "x = 3 + 4 = 7", "x = 7"},
                                   {kSame, "x = \\sqrt{13} \\approx 3.606", "\\sqrt{13}"},
                                   {kSame, "x \\approx 3.606", "3.606"},
                               });
}

TEST(SameMath, TakesAlternativesOfInequalitiesForAUnion) {
  constexpr std::string_view kUnion = "(-\\infty,2)\\cup(3,\\infty)";
  CheckSame(AnswerKind::kMath,
            {
                {kSame, "x<2 \\text{ or } x>3", kUnion},
                {kSame, kUnion, "x<2 \\text{ or } x>3"},
                {kSame, "x \\in (-\\infty,2)\\cup(3,\\infty)", "x>3 \\text{ or } x<2"},
                {kDifferent, "x<2 \\text{ or } x>4", kUnion},
                {kDifferent, "x<2", kUnion},
                {kDifferent, "2, 3", kUnion},
            });
}

}  // namespace
}  // namespace ebb
