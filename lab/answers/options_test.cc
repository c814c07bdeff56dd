#include "lab/answers/cases_for_test.h"

namespace ebb {
namespace {

using enum ExtractionRule;

TEST(Options, AreFoundBehindTheWordsThatChooseThem) {
  CheckExtracted({.kind = AnswerKind::kOption},
                 {
                     {kPhrase, "B", "The best option is B"},
                     {kPhrase, "B", "The correct choice is **B**."},
                     {kPhrase, "B", "Answer: The correct option is B."},
                     {kPhrase, "B", "The answer is B. The incorrect option is A."},
                     {kLastLetter, "B", "So I think it's B."},
                     {kLastLetter, "B", "A sinks, so it must be **B**."},
                     {kNone, "", "It is B vitamins that matter"},
                 });
}

TEST(Options, AreNotThoseThatAreRejected) {
  CheckExtracted({.kind = AnswerKind::kOption}, {
                                                    {kLastLetter, "B", "A) is wrong. B) is right."},
                                                    {kLastLetter, "A", "A) is right. B) is wrong."},
                                                    {kPhrase, "A", "Answer: **A** (not B)"},
                                                    {kPhrase, "B", "The answer is B, A is wrong."},
                                                    {kLastLetter, "A", "I take (A), not (B)"},
                                                });
}

TEST(Options, AreNeitherArticlesNorSeveral) {
  CheckExtracted({.kind = AnswerKind::kOption},
                 {
                     {kNone, "", "The answer is A type of red."},
                     {kPhrase, "A", "The answer is A since stones sink."},
                     {kPhrase, "A", "The answer is (A) type of red."},
                     {kNone, "", "The answer is A and B."},
                     {kNone, "", "The answer is A or B."},
                     {kNone, "", "The answer is **A**, **B** and **C**."},
                 });
}

}  // namespace
}  // namespace ebb
