#include <string>
#include <string_view>

#include "lab/answers/cases_for_test.h"

namespace ebb {
namespace {

using enum Expect;

TEST(SameNumber, ReadsNumbersAsPeopleWriteThem) {
  CheckSame(AnswerKind::kNumber, {
                                     {kSame, "18", "18"},
                                     {kSame, "18.0", "18"},
                                     {kSame, "18.000004", "18"},
                                     {kDifferent, "18.001", "18"},
                                     {kSame, "018", "18"},
                                     {kSame, "+18", "18"},
                                     {kSame, "-10", "-10"},
                                     {kDifferent, "10", "-10"},
                                     {kSame, "−10", "-10"},
                                     {kSame, "1,450,000", "1450000"},
                                     {kSame, "1450000", "1,450,000"},
                                     {kSame, "1 450 000", "1,450,000"},
                                     {kDifferent, "1,450", "1,450,000"},
                                     {kSame, "$65,960", "65960"},
                                     {kSame, "\\$65,960.00", "65960"},
                                     {kSame, "€18", "18"},
                                     {kSame, "18 dollars", "18"},
                                     {kSame, "18 eggs", "18"},
                                     {kSame, "18 eggs per day", "18"},
                                     {kDifferent, "18 eggs in 3 days", "3"},
                                     {kSame, "5 m", "5"},
                                     {kSame, "5kg", "5"},
                                     {kSame, "150%", "150"},
                                     {kSame, "1.8e1", "18"},
                                     {kSame, "1.8 \\times 10^{1}", "18"},
                                     {kSame, "x = 18", "18"},
                                     {kSame, ".5", "0.5"},
                                     {kSame, "1/2", "0.5"},
                                     {kSame, "33", "033"},
                                     {kDifferent, "12345678901234567890", "12345678901234567891"},
                                     {kSame, "12345678901234567890", "12,345,678,901,234,567,890"},
                                     {kDifferent, "1000001", "1000000"},
                                     {kDifferent, "", "18"},
                                     {kDifferent, "eighteen apples", "18"},
                                     {kSame, "1 1/2 cups", "1.5"},
                                     {kSame, "2 million", "2000000"},
                                     {kDifferent, "3:30", "3"},
                                     {kSame, "m + n = 5 + 7 = 12", "12"},
                                     {kDifferent, "1000000000000.5", "1000000000000"},
                                     {kDifferent, "L - 8", "8"},
                                     {kDifferent, "\\frac{w}{2}", "2"},
                                     {kDifferent, "5 x", "5"},
                                     {kDifferent, "2(L+x)", "2"},
                                     {kSame, "18 dollars a day", "18"},
                                     {kSame, "18 \\text{ m of a rope}", "18"},
                                     {kDifferent, "n + 8", "8"},
                                     {kDifferent, "8 * n", "8"},
                                     {kSame, "Cost - 8 dollars", "8"},
                                     {kSame, "8 dollars/day", "8"},
                                     {kSame, "- 8 apples", "8"},
                                 });
}

TEST(SameNumber, ComparesFractionsPercentsAndWhatIsComputed) {
  CheckSame(AnswerKind::kNumber, {
                                     {kSame, "\\frac{3}{4}", "0.75"},
                                     {kSame, "\\dfrac34", "0.75"},
                                     {kSame, "\\tfrac{3}4", "0.75"},
                                     {kSame, "-\\frac{1}{2}", "-0.5"},
                                     {kSame, "1\\frac{4}{5}", "1.8"},
                                     {kSame, "-1 1/2", "-1.5"},
                                     {kSame, "\\frac{\\frac{1}{2}}{2}", "0.25"},
                                     {kDifferent, "\\frac{4}{3}", "0.75"},
                                     {kDifferent, "\\frac{1}{0}", "0"},
                                     {kDifferent, "0.33", "0.333333"},
                                     {kSame, "75\\%", "75"},
                                     {kSame, "75\\%", "0.75"},
                                     {kSame, "0.75", "75\\%"},
                                     {kDifferent, "75", "0.75"},
                                     {kDifferent, "7.5\\%", "0.75"},
                                     {kSame, ".0000672", "6.72 \\cdot 10^{-5}"},
                                     {kDifferent, "0", ".0000672"},
                                     {kSame, "9 \\times 2 = 18", "18"},
                                     {kSame, "$9 \\times 2$", "18"},
                                     {kSame, "(3 + 4) \\cdot 2", "14"},
                                     {kSame, "2^{10}", "1024"},
                                     {kSame, "20 \\div 5 - 1", "3"},
                                     {kSame, "\\text{18 dollars}", "18"},
                                     {kSame, "10 \\text{ m/s}", "10"},
                                     {kDifferent, "2^", "2"},
                                     {kDifferent, "(18", "19"},
                                 });
}

TEST(SameMath, ComparesTexts) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "\\frac{3}{4}", "\\frac{3}{4}"},
                                   {kSame, "( 3, \\pi )", "(3,\\pi)"},
                                   {kSame, "$x+1$.", "x+1"},
                                   {kDifferent, "0.75", "\\frac{3}{4}"},
                                   {kDifferent, "1+x", "x+1"},
                                   {kDifferent, "", "5"},
                                   {kDifferent, " ", ""},
                               });
}

TEST(SameWord, IsTheWordWithoutItsMarks) {
  CheckSame(AnswerKind::kWord, {
                                   {kSame, "seven", "seven"},
                                   {kSame, "Seven.", "seven"},
                                   {kSame, "**seven**", "seven"},
                                   {kSame, "7", "seven"},
                                   {kDifferent, "17", "seven"},
                                   {kDifferent, "seventeen", "seven"},
                                   {kDifferent, "seven hundred", "seven"},
                                   {kDifferent, "", "seven"},
                               });
}

std::string Repeat(std::string_view text, int times) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

TEST(SameNumber, IsOverwhelmedByNoNesting) {
  for (const std::string& deep :
       {Repeat("(", 900) + "5" + Repeat(")", 900), Repeat("{", 900) + "5" + Repeat("}", 900),
        Repeat("\\frac{", 300) + "5" + Repeat("}{1}", 300), Repeat("-", 1999) + "5",
        Repeat("2^", 900) + "5", Repeat("1 ", 900)}) {
    EXPECT_FALSE(SameAnswer(deep, "6", AnswerKind::kNumber));
  }
}

}  // namespace
}  // namespace ebb
