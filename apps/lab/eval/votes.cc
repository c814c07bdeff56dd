#include "apps/lab/eval/votes.h"

#include <algorithm>

#include "ebb/lab/answers.h"

namespace ebb::cli {

void Votes::Add(bool correct, const std::string& extracted) {
  if (correct) {
    if (!has_right_) right_ = extracted;
    has_right_ = true;
    ++counts_[right_];
  } else if (!extracted.empty()) {
    ++CountOfWrong(extracted);
  }
}

bool Votes::MajorityIsRight() const {
  if (!has_right_) return false;
  return std::ranges::max_element(counts_, {}, [](const auto& of) { return of.second; })->first ==
         right_;
}

// Wrong ones are the same where they are the same mathematically: 1/2 and 0.5.
int& Votes::CountOfWrong(const std::string& extracted) {
  for (auto& [answer, count] : counts_) {
    if (has_right_ && right_ == answer) continue;
    if (SameAnswer(extracted, answer, AnswerKind::kMath) &&
        SameAnswer(answer, extracted, AnswerKind::kMath)) {
      return count;
    }
  }
  return counts_[extracted];
}

}  // namespace ebb::cli
