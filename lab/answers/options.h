// Finds letters of options in running text. All functions return a capital letter, or an empty text
// if there is none.
#ifndef EBB_LAB_ANSWERS_OPTIONS_H_
#define EBB_LAB_ANSWERS_OPTIONS_H_

#include <span>
#include <string>
#include <string_view>

namespace ebb {

// Returns the option that a text names which follows "the answer is" or is in a box: C, (C), $C$,
// \text{C}, "C) the text", or exactly the text of one option.
[[nodiscard]] std::string OptionOf(std::string_view sentence, std::span<const std::string> options);
// Returns the option if the text is one letter, possibly with its marks and the option's text.
[[nodiscard]] std::string LoneOption(std::string_view text, std::span<const std::string> options);
// Returns the last option written as "(C)", "C)" or "option C".
[[nodiscard]] std::string LastMarkedOption(std::string_view text,
                                           std::span<const std::string> options);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_OPTIONS_H_
