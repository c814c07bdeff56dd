// Finds "The answer is ..." in running text.
#ifndef EBB_LAB_ANSWERS_PHRASES_H_
#define EBB_LAB_ANSWERS_PHRASES_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace ebb {

// AnswerPhrase is the text after "answer is", "answer:" or "answer =" to the end of its sentence,
// without markup around it. "answer is not ..." is left out. A phrase ends before the next one
// begins, so that all phrases together are no longer than the text.
struct AnswerPhrase {
  std::string_view sentence;
  std::string_view rest;  // to the next phrase: a formula may be longer than a line
};
[[nodiscard]] std::vector<AnswerPhrase> AnswerPhrases(std::string_view text);
// Returns the answer phrases and what follows "the best option is" and "the correct choice is".
[[nodiscard]] std::vector<AnswerPhrase> OptionPhrases(std::string_view text);

// Returns whether the text from the beginning of the sentence around `at` to its end declines to
// answer.
[[nodiscard]] bool IsRefusedFrom(std::string_view text, size_t at);
// Returns whether an answer says that there is no answer: "cannot be determined".
[[nodiscard]] bool IsRefusal(std::string_view answer);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_PHRASES_H_
