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

TEST(SameMath, ComparesFractionsDecimalsAndPercents) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "\\frac{3}{4}", "0.75"},
                                   {kSame, "\\dfrac34", "\\frac{3}{4}"},
                                   {kSame, "\\tfrac{3}4", "\\frac34"},
                                   {kSame, "3/4", "\\frac{3}{4}"},
                                   {kSame, "\\frac{6}{8}", "\\frac{3}{4}"},
                                   {kSame, "\\frac 59", "5/9"},
                                   {kSame, "\\frac9{19}", "\\frac{9}{19}"},
                                   {kSame, "-\\frac{1}{3}", "\\frac{-1}{3}"},
                                   {kSame, "0.333333", "\\frac{1}{3}"},
                                   {kDifferent, "0.33", "\\frac{1}{3}"},
                                   {kDifferent, "\\frac{4}{3}", "\\frac{3}{4}"},
                                   {kSame, "1\\frac{4}{5}", "1.8"},
                                   {kSame, "137 \\frac{1}{2}", "\\frac{275}{2}"},
                                   {kSame, "-1 1/2", "-1.5"},
                                   {kDifferent, "1\\frac{4}{5}", "\\frac{4}{5}"},
                                   {kSame, "75\\%", "75"},
                                   {kSame, "75\\%", "0.75"},
                                   {kSame, "0.75", "75\\%"},
                                   {kDifferent, "75", "0.75"},
                                   {kDifferent, "7.5\\%", "0.75"},
                                   {kSame, ".0000672", "6.72 \\cdot 10^{-5}"},
                                   {kDifferent, "0.00006", ".0000672"},
                                   {kDifferent, "0", ".0000672"},
                                   {kSame, "\\frac{\\frac{1}{2}}{2}", "0.25"},
                                   {kDifferent, "\\frac{1}{0}", "0"},
                               });
}

TEST(SameMath, ComparesRootsPowersAndConstants) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "2\\sqrt{2}", "\\sqrt{8}"},
                                   {kSame, "11\\sqrt2", "11 \\sqrt{2}"},
                                   {kSame, "\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt{3}}"},
                                   {kSame, "3 \\cdot \\sqrt{13}", "3\\sqrt{13}"},
                                   {kSame, "sqrt(51)", "\\sqrt{51}"},
                                   {kSame, "√51", "\\sqrt{51}"},
                                   {kDifferent, "3.6", "\\sqrt{13}"},
                                   {kSame, "\\sqrt[3]{27}", "3"},
                                   {kSame, "\\sqrt[3]{-8}", "-2"},
                                   {kSame, "2^{10}", "1024"},
                                   {kSame, "2^10", "1024"},
                                   {kSame, "7\\pi", "7 \\cdot \\pi"},
                                   {kSame, "\\frac{\\pi}{2}", "\\pi/2"},
                                   {kSame, "0.5π", "\\frac{\\pi}{2}"},
                                   {kSame, "21.9911485751", "7\\pi"},
                                   {kDifferent, "22", "7\\pi"},
                                   {kSame, "18+2\\pi", "2\\pi + 18"},
                                   {kSame, "\\frac{20000}{\\pi}", "20000/\\pi"},
                                   {kSame, "5!", "120"},
                                   {kSame, "\\binom{5}{2}", "10"},
                                   {kSame, "\\log_2 8", "3"},
                                   {kSame, "\\sin 30^\\circ", "\\sin(30)"},
                                   {kSame, "6 - 5i", "-5i+6"},
                                   {kSame, "(1+2i)^2", "-3+4i"},
                                   {kDifferent, "6+5i", "6 - 5i"},
                                   {kSame, "|{-5}|", "5"},
                               });
}

TEST(SameMath, ComparesExpressionsWithVariables) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "q+p-2q", "p - q"},
                                   {kSame, "2(k+1)", "2k+2"},
                                   {kSame, "(b+2)(a+5)", "(a+5)(b+2)"},
                                   {kSame, "ab+2a+5b+10", "(a+5)(b+2)"},
                                   {kDifferent, "(a+2)(b+5)", "(a+5)(b+2)"},
                                   {kSame, "6r^{2}-4r-24", "-24 - 4r + 6r^2"},
                                   {kSame, "\\frac{11}{20}+\\frac{9a}{20}", "\\frac{11+9a}{20}"},
                                   {kSame, "\\frac{\\cos x}{\\sin x}", "\\cot x"},
                                   {kDifferent, "\\tan x", "\\cot x"},
                                   {kSame, "1-\\cos^2 x", "\\sin^2 x"},
                                   {kSame, "x_1 + x_2", "x_{2}+x_{1}"},
                                   {kDifferent, "x_1", "x_2"},
                                   {kDifferent, "\\sqrt{x^2}", "x"},
                                   {kDifferent, "3R^2", "3r^2"},
                                   {kSame, "y = 2x + 3", "y=3+2x"},
                                   {kSame, "y - 2x = 3", "y = 2x + 3"},
                                   {kSame, "2x+3", "y = 2x + 3"},
                                   {kSame, "-5x+7y-11z-4=0", "5x - 7y + 11z + 4 = 0"},
                                   {kDifferent, "5x - 7y + 11z - 4 = 0", "5x - 7y + 11z + 4 = 0"},
                                   {kSame, "x=5", "5"},
                                   {kSame, "5", "x=5"},
                                   {kSame, "f(x) = 2x", "2x"},
                                   {kDifferent, "x=6", "5"},
                                   {kDifferent, "x=6", "x=5"},
                               });
}

TEST(SameMath, IgnoresUnitsDegreesCurrencyAndSeparators) {
  CheckSame(AnswerKind::kMath,
            {
                {kSame, "864", "864 \\mbox{ inches}^2"},
                {kSame, "864 \\text{ square inches}", "864 \\mbox{ inches}^2"},
                {kSame, "15 cm^2", "15\\mbox{ cm}^2"},
                {kSame, "15 cm²", "15"},
                {kSame, "5.4", "5.4 \\text{ cents}"},
                {kSame, "60 miles per hour", "60"},
                {kSame, "60\\text{ mi/hr}", "60"},
                {kSame, "12 ways", "12"},
                {kSame, "\\$5 for each student", "5"},
                {kSame, "12 different paths.", "12"},
                {kDifferent, "12 squared", "12"},
                {kDifferent, "12 hundred", "12"},
                {kDifferent, "12 ways", "w"},
                {kDifferent, "12 x", "12"},
                {kDifferent, "12 ways and 3", "12"},
                {kDifferent, "5x^2", "5"},
                {kSame, "90", "90^\\circ"},
                {kSame, "90^{\\circ}", "90^\\circ"},
                {kSame, "90°", "90^\\circ"},
                {kSame, "90 degrees", "90^\\circ"},
                {kSame, "\\frac{270}{7}", "\\frac{270}7\\text{ degrees}"},
                {kSame, "32348", "\\$32,\\!348"},
                {kSame, "$32,348", "\\$32,\\!348"},
                {kSame, "18.9", "\\$18.90"},
                {kSame, "10080", "10,\\!080"},
                {kSame, "10{,}080", "10080"},
                {kSame, "10\\,080", "10080"},
                {kSame, "11,111,111,100", "11,\\! 111,\\! 111,\\! 100"},
                {kSame, "58500", "58,500"},
                {kSame, "\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\frac{\\pi}2)"},
                {kSame, "$\\displaystyle 5\\,$", "5"},
                {kSame, "5.", "5"},
                {kSame, "{5}", "5"},
            });
}

TEST(SameMath, ComparesIntervalsTuplesSetsAndMatrices) {
  CheckSame(
      AnswerKind::kMath,
      {
          {kSame, "(3, 4]", "(3,4]"},
          {kDifferent, "(3,4)", "(3,4]"},
          {kDifferent, "[3,4]", "(3,4]"},
          {kSame, "\\left(0.6,\\frac{8}{3}\\right]", "\\left(\\frac{3}{5},\\frac{8}{3}\\right]"},
          {kSame, "(-∞, 0]", "(-\\infty, 0]"},
          {kSame, "(-infinity, 0]", "(-\\infty, 0]"},
          {kDifferent, "(-\\infty, 0]", "(\\infty, 0]"},
          {kSame, "[-2,7]", "x \\in [-2,7]"},
          {kSame, "(3,\\infty)\\cup(-\\infty,2)", "(-\\infty, 2) \\cup (3, \\infty)"},
          {kDifferent, "(-\\infty, 2)", "(-\\infty, 2) \\cup (3, \\infty)"},
          {kSame, "x > 5", "(5,\\infty)"},
          {kSame, "5 < x", "(5,\\infty)"},
          {kSame, "x \\le 0", "(-\\infty, 0]"},
          {kSame, "1 < x \\leq 2", "(1,2]"},
          {kSame, "2 \\ge x > 1", "(1,2]"},
          {kSame, "(1,2]", "1 < x \\le 2"},
          {kSame, "5 < x", "x > 5"},
          {kDifferent, "x < 5", "(5,\\infty)"},
          {kDifferent, "x \\ge 5", "(5,\\infty)"},
          {kDifferent, "1 < x > 2", "(1,2)"},
          {kDifferent, "1 < 2", "(1,2)"},
          {kSame, "(6,31,-1)", "(6, 31, -1)"},
          {kDifferent, "(31,6,-1)", "(6,31,-1)"},
          {kDifferent, "(6,31)", "(6,31,-1)"},
          {kDifferent, "6,31,-1", "(6,31,-1)"},
          {kSame, "-2,1", "1,-2"},
          {kSame, "x=-2 \\text{ or } x=1", "1,-2"},
          {kSame, "-2 and 1", "1,-2"},
          {kSame, "\\{1,-2\\}", "1,-2"},
          {kDifferent, "1,2", "1,-2"},
          {kDifferent, "1,1", "1,-2"},
          {kSame, "3, 5, 7", "7,5,3"},
          {kSame, "1 + \\sqrt{19}, 1 - \\sqrt{19}", "1 \\pm \\sqrt{19}"},
          {kSame, "1\\pm\\sqrt{19}", "1 \\pm \\sqrt{19}"},
          {kDifferent, "1 + \\sqrt{19}", "1 \\pm \\sqrt{19}"},
          {kSame, "\\{-2,1-\\sqrt{5},1+\\sqrt{5}\\}", "\\{1\\pm\\sqrt{5},-2\\}"},
          {kSame, "\\begin{bmatrix}-1/3\\\\2/3\\\\5/3\\end{bmatrix}",
           "\\begin{pmatrix} -1/3 \\\\ 2/3 \\\\ 5/3 \\end{pmatrix}"},
          {kSame, "\\begin{pmatrix} \\frac{-1}{3} \\\\ \\frac{2}{3} \\\\ \\frac53 \\end{pmatrix}",
           "\\begin{pmatrix} -1/3 \\\\ 2/3 \\\\ 5/3 \\end{pmatrix}"},
          {kDifferent, "\\begin{pmatrix} 0 & -1 \\\\ -1 & 0 \\end{pmatrix}",
           "\\begin{pmatrix} -1 & 0 \\\\ 0 & -1 \\end{pmatrix}"},
          {kDifferent, "\\begin{pmatrix} -2 & -14 & -7 \\end{pmatrix}",
           "\\begin{pmatrix} -2 \\\\ -14 \\\\ -7 \\end{pmatrix}"},
      });
}

TEST(SameMath, ComparesWordsLettersAndBases) {
  CheckSame(AnswerKind::kMath, {
                                   {kSame, "Evelyn", "\\text{Evelyn}"},
                                   {kSame, "\\textbf{evelyn}", "\\text{Evelyn}"},
                                   {kDifferent, "Carla", "\\text{Evelyn}"},
                                   {kSame, "east", "\\text{east}"},
                                   {kDifferent, "seat", "\\text{east}"},
                                   {kSame, "no", "\\text{no}"},
                                   {kSame, "C", "\\text{(C)}"},
                                   {kSame, "\\textbf{(C)}", "\\text{(C)}"},
                                   {kDifferent, "B", "\\text{(C)}"},
                                   {kSame, "52_{8}", "52_8"},
                                   {kSame, "52", "52_8"},
                                   {kDifferent, "42", "52_8"},
                                   {kDifferent, "52_9", "52_8"},
                                   {kDifferent, "", "52_8"},
                                   {kDifferent, "\\frac", "52_8"},
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

TEST(SameMath, IsOverwhelmedByNoNesting) {
  for (const std::string& deep :
       {Repeat("(", 900) + "5" + Repeat(")", 900), Repeat("{", 900) + "5" + Repeat("}", 900),
        Repeat("\\sqrt{", 200) + "5" + Repeat("}", 200), Repeat("\\sin", 400) + "5",
        Repeat("-", 1999) + "5", Repeat("2^", 900) + "5", Repeat("\\{", 900) + "5"}) {
    EXPECT_FALSE(SameAnswer(deep, "6", AnswerKind::kMath));
    EXPECT_TRUE(SameAnswer(deep, deep, AnswerKind::kMath));
  }
  EXPECT_TRUE(SameAnswer(Repeat("{", 900) + "5" + Repeat("}", 900), "5", AnswerKind::kMath));
}

}  // namespace
}  // namespace ebb
