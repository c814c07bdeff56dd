// Numbers in running text.
#ifndef EBB_LAB_ANSWERS_NUMBERS_H_
#define EBB_LAB_ANSWERS_NUMBERS_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace ebb {

// The number that begins at `at`, without its sign: digits with thousands separators and decimals,
// an exponent or "\times 10^3", a fraction 3/4 or 1 3/4, "million", a percent sign. Empty: none
// does.
[[nodiscard]] std::string_view UnsignedNumberAt(std::string_view text, size_t at);

// The number that stands alone and begins the text: its sign, a currency and $ may come first. Also
// a power, 2^10, and a time, 3:30, which is not the number 3.
[[nodiscard]] std::string_view LeadingNumber(std::string_view text);

// Numbers of no name, index or time (v7, 3D, x_2, 2^10, 3:30), in their order, with their signs.
[[nodiscard]] std::vector<std::string_view> StandaloneNumbers(std::string_view text);

[[nodiscard]] bool IsUnitWord(std::string_view lower_case_word);
// The digits of 1000 for "thousand"; empty: the word is none of its kind.
[[nodiscard]] std::string_view ScaleOfWord(std::string_view lower_case_word);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_NUMBERS_H_
