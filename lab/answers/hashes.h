// "#### 18", as GSM8K ends its answers; Markdown begins headings alike.
#ifndef EBB_LAB_ANSWERS_HASHES_H_
#define EBB_LAB_ANSWERS_HASHES_H_

#include <string>
#include <string_view>

#include "ebb/lab/answers.h"

namespace ebb {

// Returns the answer of the last line that is no heading: nothing but a value stands on it, with
// its unit, or it begins with one and nothing is written after it. Options: the letter alone, and
// nothing after it, since sections are named by letters too. Empty: there is none, or of words.
[[nodiscard]] std::string HashedAnswer(std::string_view text, const AnswerFormat& format);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_HASHES_H_
