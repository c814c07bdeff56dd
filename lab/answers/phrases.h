// "The answer is ..." in running text.
#ifndef EBB_LAB_ANSWERS_PHRASES_H_
#define EBB_LAB_ANSWERS_PHRASES_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace ebb {

// The text after each "answer is", "answer:" and "answer =", to the end of its sentence, without
// markup around it; in their order. A phrase does not reach into the next one, so that all of them
// together are no longer than the text. "answer is not ..." is left out.
struct AnswerPhrase {
  std::string_view sentence;
  std::string_view rest;  // to the next phrase: a formula may be longer than a line
};
[[nodiscard]] std::vector<AnswerPhrase> AnswerPhrases(std::string_view text);
// Also what follows "the best option is" and "the correct choice is".
[[nodiscard]] std::vector<AnswerPhrase> OptionPhrases(std::string_view text);

// Whether the end of the text, from the beginning of the sentence around `at`, declines to answer.
[[nodiscard]] bool IsRefusedFrom(std::string_view text, size_t at);
// Whether an answer says that there is none to give: "cannot be determined".
[[nodiscard]] bool IsRefusal(std::string_view answer);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_PHRASES_H_
