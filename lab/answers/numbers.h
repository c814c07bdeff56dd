// Finds numbers in running text.
#ifndef EBB_LAB_ANSWERS_NUMBERS_H_
#define EBB_LAB_ANSWERS_NUMBERS_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace ebb {

// Returns the number at index `at`, without its sign: digits with thousands separators and
// decimals, an exponent or "\times 10^3", a fraction 3/4 or 1 3/4, "million", a percent sign.
// Empty: no number begins there.
[[nodiscard]] std::string_view UnsignedNumberAt(std::string_view text, size_t at);

// Returns the number at the beginning of the text if it is a number by itself; its sign, a currency
// and $ may precede it. Returns a power, 2^10, or a time, 3:30, as a whole, so that it is not taken
// for another number.
[[nodiscard]] std::string_view LeadingNumber(std::string_view text);

// Returns the numbers in the text in order, with their signs, except those in a name, an index, a
// power or a time (v7, 3D, x_2, 2^10, 3:30).
[[nodiscard]] std::vector<std::string_view> StandaloneNumbers(std::string_view text);

[[nodiscard]] bool IsUnitWord(std::string_view lower_case_word);
// Returns the digits of a scale word, such as "1000" for "thousand"; empty: it is no scale word.
[[nodiscard]] std::string_view ScaleOfWord(std::string_view lower_case_word);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_NUMBERS_H_
