#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "lab/answers/cases_for_test.h"
#include "tests/support/slowdown.h"

namespace ebb {
namespace {

using enum ExtractionRule;

TEST(ExtractNumber, FollowsTheCascade) {
  CheckExtracted(
      {.kind = AnswerKind::kNumber},
      {
          {kHashes, "18", "She makes 9 * 2 = $<<9*2=18>>18 every day.\n#### 18"},
          {kHashes, "2,125", "#### 2,125\n"},
          {kHashes, "-10", "The answer is 3.\n#### -10"},
          {kHashes, "18", "#### $18 dollars"},
          {kHashes, "7", "#### 5\nNo, wait.\n#### 7"},
          {kPhrase, "18", "#### 1. First\nWe add. The answer is 18."},
          {kPhrase, "18", "The answer is 18."},
          {kPhrase, "18", "the final answer is: **18**"},
          {kPhrase, "18", "**Answer:** 18"},
          {kPhrase, "18", "**Answer**: $18$"},
          {kPhrase, "18", "Answer = 18"},
          {kPhrase, "18", "The answer is therefore 18 eggs for 3 days."},
          {kPhrase, "18", "The answer is that in 3 days she has 18."},
          {kPhrase, "7", "So the answer is 3 + 4 = 7 apples. There are 12 months."},
          {kPhrase, "18", "The answer is 18 = 9 * 2."},
          {kPhrase, "1,234.50", "The answer is $1,234.50."},
          {kPhrase, "-5", "The answer is -5 degrees."},
          {kPhrase, "18", "The answer is 5. No: the answer is 18. That answer is correct."},
          {kPhrase, "18", "The answer is \\boxed{18}."},
          {kPhrase, "18", "The final answer is:\n\n$\\boxed{18}$"},
          {kPhrase, "18", "Final answer:  \\boxed{18}"},
          {kPhrase, "\\frac{3}{4}", "The answer is $\\frac{3}{4}$."},
          {kPhrase, "50%", "The answer is 50% of them."},
          {kPhrase, "5", "THE ANSWER IS 5"},
          {kBoxed, "18", "We get \\boxed{18} after 3 steps."},
          // "The answer:" announces a list here, not an answer.
          {kBoxed, "18",
           "Let's find the answer:\n\n1. Janet sells 16-3-4 = 9 eggs.\n2. 9*2\n\n\\boxed{18}"},
          {kPhrase, "18", "The answer is:\n\n18."},
          {kPhrase, "18", "The answer is:\n\n18\nLet me check: 9 * 2 = 18"},
          // Names in a program, and its output, are no answers.
          {kBoxed, "9", "final_answer = 16 - 3\nSo \\boxed{9}"},
          {kBoxed, "9", "```python\nanswer = 16 - 3\nprint(\"The answer is: 5\")\n```\n\\boxed{9}"},
          {kPhrase, "7", "```python\nx = 1\n```\nThe answer is 7."},
          {kBoxed, "18", "The answer is in the box. \\boxed{18}"},
          {kBoxed, "18", "First \\boxed{5}, then \\boxed{18}"},
          {kBoxed, "\\frac{1}{2}", "\\boxed{\\frac{1}{2}}"},
          {kBoxed, "5", "put it within \\boxed{5}, not within \\boxed{}."},
          {kBoxed, "5", "\\boxed 5"},
          {kLastNumber, "18", "3 apples and 15 pears make 18 pieces of fruit."},
          {kLastNumber, "18", "It is 18."},
          {kLastNumber, "1,450,000", "In total $1,450,000."},
          {kLastNumber, "-3", "The temperature fell to -3 at night"},
          {kLastNumber, "−3", "The temperature fell to −3"},
          {kLastNumber, "-3", "x = -3"},
          {kLastNumber, "5", "from 12-5 people"},
          {kLastNumber, "3/4", "so 3/4 remain"},
          {kLastNumber, "5", "they weigh 5kg"},
          {kLastNumber, "20%", "which is 20% of it"},
          {kLastNumber, "4", "4 of v7, x_2, 3D and 2^10"},
          {kLastNumber, "5", "An open box \\boxed{5"},
          {kNone, "", "I cannot answer this question."},
          {kNone, "", "I'm sorry, but I can't help with problem 5."},
          {kNone, "", "There are 3 people. I don’t know more."},
          {kNone, "", "There are 5 apples, so it cannot be determined."},
          {kLastNumber, "7", "I don't know 3 + 4 by heart. Let me count: 7"},
          {kNone, "", "no number at all"},
          {kNone, "", ""},
      });
}

TEST(ExtractNumber, ReadsNumbersOfSeveralParts) {
  CheckExtracted({.kind = AnswerKind::kNumber},
                 {
                     {kPhrase, "1 1/2", "The answer is 1 1/2 cups."},
                     {kPhrase, "5 \\times 10^3", "The answer is 5 \\times 10^3."},
                     {kLastNumber, "5 \\times 10^{3}", "That makes 5 \\times 10^{3} of them."},
                     {kPhrase, "2 million", "The answer is 2 million."},
                     {kPhrase, "2.5 million", "The answer is $2.5 million dollars."},
                     {kPhrase, "2^10", "The answer is 2^10."},
                     {kPhrase, "3:30", "The answer is 3:30."},
                     {kLastNumber, "18", "He ran 18 miles until 3:30."},
                     {kPhrase, "18", "Answer: The total is 18 dollars for 3 days."},
                     {kPhrase, "75", "Answer: The price is $5 and he buys 15, so he spends 75"},
                     {kPhrase, "5", "The answer is 5. Wait, that is wrong: \\boxed{6}"},
                 });
}

TEST(ExtractNumber, LooksBehindTheThoughtFirst) {
  CheckExtracted({.kind = AnswerKind::kNumber},
                 {
                     {kBoxed, "7", "<think>the answer is 5? No.</think>\nSo \\boxed{7}"},
                     {kLastNumber, "5", "<think>We get 5</think>\n\n"},
                     {kLastNumber, "5", "<think>We get 5, but wait"},
                     {kNone, "", "<think>We get 5</think>I cannot answer."},
                     {kNone, "", "<think>\n\n</think>\n\n"},
                 });
}

TEST(ExtractMath, TakesTheLastBox) {
  CheckExtracted({.kind = AnswerKind::kMath},
                 {
                     {kBoxed, "\\left( 3, \\frac{\\pi}{2} \\right)",
                      "These are $\\boxed{\\left( 3, \\frac{\\pi}{2} \\right)}.$"},
                     {kBoxed, "\\{1,2\\}", "\\boxed{\\{1,2\\}}"},
                     {kBoxed, "\\left\\{x\\right.", "\\boxed{\\left\\{x\\right.}"},
                     {kBoxed, "5", "{ { unbalanced \\boxed{5} }"},
                     {kBoxed, "x^{2^{3}}", "\\fbox{x^{2^{3}}}"},
                     {kBoxed, "6", "\\boxed{5}, no: \\boxed{6}"},
                     {kBoxed, "4", "<think>\\boxed{5}</think>\\boxed{4}\n#### 6"},
                     {kNone, "", "The answer is 5.\n#### 6"},
                     {kNone, "", "\\boxed{5"},
                     {kNone, "", "\\boxed{ }"},
                     {kNone, "", "I do not know."},
                 });
}

TEST(ExtractNumber, TakesTheLastMarkWhereAsked) {
  const AnswerFormat last = {.kind = AnswerKind::kNumber, .rules = AnswerRules::kLastMark};
  constexpr std::string_view kGuess = "Let's guess that the answer is 12. No: we get \\boxed{15}.";
  CheckExtracted(last, {
                           {kBoxed, "15", kGuess},
                           {kPhrase, "12", "\\boxed{15} is wrong; the answer is 12."},
                           {kHashes, "6", "\\boxed{4}\nThe answer is 5.\n#### 6"},
                           {kBoxed, "4", "#### 6\nThe answer is 5.\nSo \\boxed{4}"},
                           {kPhrase, "5", "\\boxed{4}\nThe answer is 5.\n#### Check:\n6 = 6"},
                           {kBoxed, "7", "The answer is \\boxed{7}."},
                           {kLastNumber, "9", "We get 8, then 9"},
                           {kNone, "", "I do not know."},
                       });
  CheckExtracted({.kind = AnswerKind::kNumber}, {{kPhrase, "12", kGuess}});
}

TEST(ExtractNumber, TakesOnlyBoxesWhereAsked) {
  CheckExtracted({.kind = AnswerKind::kNumber, .rules = AnswerRules::kBoxedOnly},
                 {
                     {kBoxed, "4", "\\boxed{4}\nThe answer is 5.\n#### 6"},
                     {kNone, "", "The answer is 5.\n#### 6"},
                     {kNone, "", "\\boxed{5"},
                     {kNone, "", "\\boxed{ }"},
                     {kBoxed, "4", "<think>\\boxed{4}</think>\n"},
                 });
}

TEST(ExtractOption, FindsLetters) {
  const std::vector<std::string> options = {"a stone", "a leaf", "the Sun", "10^-4 eV"};
  CheckExtracted({.kind = AnswerKind::kOption, .options = options},
                 {
                     {kPhrase, "C", "Answer: C"},
                     {kPhrase, "C", "Answer: $C$"},
                     {kPhrase, "C", "**Answer:** (C) the Sun"},
                     {kPhrase, "C", "The correct answer is option C, because B is not."},
                     {kPhrase, "C", "The answer is the Sun."},
                     {kPhrase, "A", "The answer is A because stones sink."},
                     {kPhrase, "A", "The answer is a stone."},
                     {kPhrase, "C", "The answer is (c)."},
                     {kPhrase, "D", "The answer is 10^-4 eV."},
                     {kPhrase, "B", "The answer is A. Wait, the answer is B."},
                     {kPhrase, "D", "The answer is \\boxed{D}."},
                     {kBoxed, "D", "\\boxed{\\text{(D)}}"},
                     {kBoxed, "D", "$\\boxed{D) 10^-4 eV}$"},
                     {kWholeText, "B", "B"},
                     {kWholeText, "B", "(B)"},
                     {kWholeText, "B", "B) a leaf"},
                     {kLastLetter, "B", "Not A) since stones sink.\nSo it must be (B) here"},
                     {kLastLetter, "B", "Stones sink.\nI choose option B here"},
                     {kNone, "", "A leaf floats.\nA stone sinks."},
                     {kNone, "", "A leaf floats, a stone sinks."},
                     {kWholeText, "A", "A stone"},
                     {kNone, "", "Answer: E"},
                     {kNone, "", "Answer: Cats"},
                     {kNone, "", "I cannot say."},
                 });
}

TEST(ExtractWord, FindsTheAnswerOfPebble) {
  CheckExtracted({.kind = AnswerKind::kWord},
                 {
                     {kPhrase, "seven", "<think>Ada three.</think> The answer is seven."},
                     {kPhrase, "seven", " The answer is seven . <|end|>"},
                     {kPhrase, "seven", "The answer is the seven"},
                     {kPhrase, "seven hundred", "The answer is seven hundred"},
                     {kBoxed, "seven", "\\boxed{seven}"},
                     {kWholeText, "Seven", "Seven."},
                     {kNone, "", "Ada has seven and Ben has two."},
                     {kNone, "", "The answer is"},
                     {kNone, "", "The answer is ."},
                 });
}

TEST(Judge, TellsEmptyUnansweredWrongAndRightApart) {
  struct Case {
    Verdict verdict;
    AnswerKind kind;
    std::string_view text;
    std::string_view reference;
  };
  using enum Verdict;
  for (const Case& c : std::vector<Case>{
           {kEmpty, AnswerKind::kNumber, "", "18"},
           {kEmpty, AnswerKind::kNumber, " \n\t", "18"},
           {kEmpty, AnswerKind::kNumber, "<think>\n\n</think>\n\n", "18"},
           {kNoAnswer, AnswerKind::kNumber, "I cannot answer this.", "18"},
           {kNoAnswer, AnswerKind::kNumber, "The answer is unknown.", "18"},
           {kNoAnswer, AnswerKind::kMath, "\\boxed{\\text{I don’t know}}", "18"},
           {kNoAnswer, AnswerKind::kMath, "It may be 5. \\boxed{\\text{I don't know}}", "18"},
           {kNoAnswer, AnswerKind::kMath, "\\boxed{\\text{cannot be determined}}", "18"},
           {kRight, AnswerKind::kMath, "\\boxed{\\text{cannot be determined}}",
            "\\text{cannot be determined}"},
           {kWrong, AnswerKind::kNumber, "The answer is 17.", "18"},
           {kRight, AnswerKind::kNumber, "The answer is $18.00.", "18"},
           {kRight, AnswerKind::kNumber, "\\boxed{18 eggs}", "18"},
           {kRight, AnswerKind::kMath, "\\boxed{\\dfrac{1}{2}}", "\\dfrac{1}{2}"},
           {kWrong, AnswerKind::kMath, "\\boxed{\\dfrac{1}{2}}", "0.5"},
           {kRight, AnswerKind::kOption, "Answer: C", "C"},
           {kWrong, AnswerKind::kOption, "Answer: B", "C"},
           {kRight, AnswerKind::kWord, "The answer is seven.", "seven"},
           {kWrong, AnswerKind::kWord, "The answer is six.", "seven"},
       }) {
    const Judgement judgement = JudgeAnswer(c.text, c.reference, {.kind = c.kind});
    EXPECT_EQ(VerdictName(judgement.verdict), VerdictName(c.verdict)) << c.text;
    EXPECT_EQ(judgement.extraction.answer.empty(), c.verdict < kWrong) << c.text;
  }
}

std::string Repeat(std::string_view text) {
  std::string repeated;
  while (repeated.size() < 1000000) repeated += text;
  return repeated;
}

// Each text takes milliseconds; with a rule of quadratic cost, one would take minutes.
TEST(Extract, TakesTimeInProportionToHostileText) {
  const std::clock_t begin = std::clock();
  for (const std::string_view part :
       {"{",       "}",        "\\boxed{",   "\\boxed", "\\boxed ",  "(",
        "#",       "####",     "answer is ", "answer:", "answer: $", "answer is the ",
        "<think>", "</think>", "1",          "1,",      ",111",      "1e",
        "-",       "*",        "1/",         "A)",      "\\frac",    "I don't know 5",
        "−",       "\xff"}) {
    const std::string text = Repeat(part);
    for (const std::string& hostile : {text, "\\boxed{" + text + "}", "answer is " + text}) {
      for (const AnswerKind kind :
           {AnswerKind::kNumber, AnswerKind::kMath, AnswerKind::kOption, AnswerKind::kWord}) {
        (void)JudgeAnswer(hostile, "5", {.kind = kind});
      }
    }
  }
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 60 * kSlowdown);
}

}  // namespace
}  // namespace ebb
