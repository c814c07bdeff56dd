#include "lab/answers/cases_for_test.h"

namespace ebb {
namespace {

using enum Expect;

TEST(SameMath, TellsLargeNumbersApart) {
  CheckSame(AnswerKind::kMath, {
                                   {kDifferent, "1000000000000.5", "1000000000000"},
                                   {kDifferent, "\\frac{123456789012}{1}", "123456789012.05"},
                                   {kSame, "\\frac{123456789012}{1}", "123456789012"},
                                   {kSame, "2^{64}", "18446744073709551616"},
                                   {kDifferent, "2^{64}", "18446744073709551617"},
                                   {kSame, "20!", "2432902008176640000"},
                                   {kDifferent, "20!", "2432902008176640001"},
                                   {kSame, "30!", "265252859812191058636308480000000"},
                                   {kDifferent, "-2^{64}", "2^{64}"},
                                   {kSame, "3 - 2^{64}", "-18446744073709551613"},
                                   {kSame, "\\frac{10^{20}}{2}", "5 \\cdot 10^{19}"},
                                   {kSame, "2^{40}\\sqrt{3}", "\\sqrt{3 \\cdot 2^{80}}"},
                                   {kSame, "(x+y)^{20}", "(x^2+2xy+y^2)^{10}"},
                                   {kSame, "\\binom{30}{15}", "155117520"},
                               });
}

TEST(SameMath, ReadsLettersInARowAsAProductOrAWord) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "2abc", "2bca"},
                                   {kDifferent, "2abc", "2bcd"},
                                   {kSame, "abc", "a\\cdot b\\cdot c"},
                                   {kSame, "a\\cdot b\\cdot c", "abc"},
                                   {kSame, "abc^2", "c \\cdot abc"},
                                   {kDifferent, "ABC", "abc"},
                                   {kDifferent, "2ABC", "2abc"},
                                   {kDifferent, "seat", "east"},
                                   {kSame, "Yes", "yes"},
                                   {kSame, "YES", "\\text{Yes}"},
                                   {kSame, "No", "\\text{no}"},
                               });
}

TEST(SameMath, IgnoresUnitsOfLetters) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "10 m/s", "10"},
                                   {kSame, "10 m/s^2", "10"},
                                   {kSame, "10 km/h", "10"},
                                   {kDifferent, "10 m/x", "10"},
                                   {kDifferent, "10x", "10"},
                                   {kDifferent, "10 m", "10s"},
                               });
}

TEST(SameMath, InvertsFunctions) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "\\sin^{-1}x", "\\arcsin x"},
                                   {kSame, "\\tan^{-1}(2)", "\\arctan 2"},
                                   {kDifferent, "\\frac{1}{\\sin x}", "\\sin^{-1} x"},
                               });
}

}  // namespace
}  // namespace ebb
