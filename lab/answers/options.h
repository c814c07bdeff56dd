// Letters of options in running text. All give a capital letter, or nothing.
#ifndef EBB_LAB_ANSWERS_OPTIONS_H_
#define EBB_LAB_ANSWERS_OPTIONS_H_

#include <span>
#include <string>
#include <string_view>

namespace ebb {

// Returns the option that follows "the answer is" or stands in a box: C, (C), $C$, \text{C}, "C)
// the text", or exactly the text of one option.
[[nodiscard]] std::string OptionOf(std::string_view sentence, std::span<const std::string> options);
// The text is one letter, perhaps with its marks and the option's text.
[[nodiscard]] std::string LoneOption(std::string_view text, std::span<const std::string> options);
// The last "(C)", "C)" or "option C".
[[nodiscard]] std::string LastMarkedOption(std::string_view text,
                                           std::span<const std::string> options);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_OPTIONS_H_
