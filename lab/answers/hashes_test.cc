#include "lab/answers/cases_for_test.h"

namespace ebb {
namespace {

using enum ExtractionRule;

TEST(Hashes, AreHeadingsWhereTextFollowsTheNumber) {
  CheckExtracted(
      {.kind = AnswerKind::kNumber},
      {
          {kBoxed, "7", "#### 1. Setup\nWe set.\n#### 2. Solve\nSo\n### Final Answer\n\\boxed{7}"},
          {kBoxed, "7", "#### (a) First\nWe add.\n\\boxed{7}"},
          {kBoxed, "7", "#### $n=2$: the base\nWe add.\n#### Conclusion\n\\boxed{7}"},
          {kPhrase, "7", "#### 1: First day\nWe add. The answer is 7."},
          {kPhrase, "7", "#### 1 - First day\nWe add. The answer is 7."},
          {kPhrase, "7", "#### 1\\. First\nWe add. The answer is 7."},
          {kPhrase, "25", "#### 2 hours of work:\nWe add. The answer is \\boxed{25}."},
          {kPhrase, "25", "#### 2 hours of work\nWe add. The answer is \\boxed{25}."},
          {kBoxed, "7", "\\boxed{7}\n#### 2:"},
      });
}

TEST(Hashes, GiveTheNumberThatStandsAloneOrLast) {
  CheckExtracted({.kind = AnswerKind::kNumber},
                 {
                     {kHashes, "18", "#### 18\n\nI hope this helps!"},
                     {kHashes, "18", "#### $18$\nI hope this helps!"},
                     {kHashes, "18", "#### **18**\nI hope this helps!"},
                     {kHashes, "18", "#### 18 dollars.\nI hope this helps!"},
                     {kHashes, "18", "#### 18 apples for the day"},
                     {kHashes, "2^10", "#### 2^10"},
                 });
}

TEST(Hashes, GiveTheLetterThatStandsLast) {
  CheckExtracted({.kind = AnswerKind::kOption},
                 {
                     {kHashes, "B", "#### B"},
                     {kHashes, "B", "It floats.\n#### **(B)**.\n"},
                     {kPhrase, "C", "#### A\nIt sinks.\n#### B\nIt sinks. The answer is C."},
                     {kLastLetter, "C", "#### A) Stone\nIt sinks. So C) it is"},
                     {kNone, "", "#### A stone"},
                 });
}

}  // namespace
}  // namespace ebb
