// Finds "The answer is ..." in running text.
#ifndef EBB_LAB_ANSWERS_PHRASES_H_
#define EBB_LAB_ANSWERS_PHRASES_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace ebb {

// AnswerPhrase is the text after "answer is", "answer:" or "answer =" up to the end of its
// sentence, without markup around it; "answer is not ..." is none. A phrase ends where the next one
// begins, so that all phrases together are no longer than the text.
struct AnswerPhrase {
  std::string_view sentence;
  std::string_view rest;  // up to the next phrase, because formulas may have several lines
};
[[nodiscard]] std::vector<AnswerPhrase> AnswerPhrases(std::string_view text);
// Returns the answer phrases, and the texts after "the best option is" and "the correct choice is".
[[nodiscard]] std::vector<AnswerPhrase> OptionPhrases(std::string_view text);

// Returns whether the writer declines to answer, from the beginning of the sentence that contains
// index `at` to the end of the text.
[[nodiscard]] bool IsRefusedFrom(std::string_view text, size_t at);
// Returns whether an answer says that there is no answer: "cannot be determined".
[[nodiscard]] bool IsRefusal(std::string_view answer);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_PHRASES_H_
