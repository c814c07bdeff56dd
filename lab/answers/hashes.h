// Finds answers such as "#### 18", as GSM8K ends its answers, and tells them from Markdown
// headings, which begin alike.
#ifndef EBB_LAB_ANSWERS_HASHES_H_
#define EBB_LAB_ANSWERS_HASHES_H_

#include <string>
#include <string_view>

#include "ebb/lab/answers.h"

namespace ebb {

// Returns the answer of the last "####" line that is no heading; empty: there is none, or it
// consists of words. A line is an answer if it is only a value with its unit, or if it begins with
// a value and no text follows the line. For options the line must be the letter alone, at the end
// of the text, because letters also name sections.
[[nodiscard]] std::string HashedAnswer(std::string_view text, const AnswerFormat& format);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_HASHES_H_
