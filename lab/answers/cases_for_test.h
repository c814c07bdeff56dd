// Checks tables of cases, for the tests in this folder.
#ifndef EBB_LAB_ANSWERS_CASES_FOR_TEST_H_
#define EBB_LAB_ANSWERS_CASES_FOR_TEST_H_

#include <string_view>
#include <vector>

#include "ebb/lab/answers.h"
#include "gtest/gtest.h"

namespace ebb {

enum class Expect { kSame, kDifferent };

struct SameCase {
  Expect expect;
  std::string_view answer;
  std::string_view reference;
};

inline void CheckSame(AnswerKind kind, const std::vector<SameCase>& cases) {
  for (const SameCase& c : cases) {
    EXPECT_EQ(SameAnswer(c.answer, c.reference, kind), c.expect == Expect::kSame)
        << c.answer << " against " << c.reference;
  }
}

struct ExtractionCase {
  ExtractionRule rule;
  std::string_view answer;
  std::string_view text;
};

inline void CheckExtracted(const AnswerFormat& format, const std::vector<ExtractionCase>& cases) {
  for (const ExtractionCase& c : cases) {
    const Extraction found = ExtractAnswer(c.text, format);
    EXPECT_EQ(found.answer, c.answer) << c.text;
    EXPECT_EQ(ExtractionRuleName(found.rule), ExtractionRuleName(c.rule)) << c.text;
  }
}

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_CASES_FOR_TEST_H_
