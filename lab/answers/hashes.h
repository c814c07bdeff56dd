// Finds answers such as "#### 18", with which answers in GSM8K end, and distinguishes them from
// Markdown headings.
#ifndef EBB_LAB_ANSWERS_HASHES_H_
#define EBB_LAB_ANSWERS_HASHES_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "ebb/lab/answers.h"

namespace ebb {

// HashedAnswer is an answer after "####" and the index in the text at which the "####" begins.
struct HashedAnswer {
  std::string answer;
  size_t at = 0;
};

// Returns the answer in the last "####" line that is not a heading; empty: there is none, or it
// consists of words. A line is an answer if it is just a value with its unit, or if it begins with
// a value and is the last line. For options the line must be just the letter and the last one,
// because letters also name sections.
[[nodiscard]] HashedAnswer FindHashedAnswer(std::string_view text, const AnswerFormat& format);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_HASHES_H_
