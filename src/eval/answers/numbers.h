// Numbers in running text.
#ifndef EBB_EVAL_ANSWERS_NUMBERS_H_
#define EBB_EVAL_ANSWERS_NUMBERS_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace ebb {

// The number that begins at `at`, without its sign: digits with thousands separators and decimals,
// an exponent, a fraction 3/4, a percent sign. Empty: none does.
[[nodiscard]] std::string_view UnsignedNumberAt(std::string_view text, size_t at);

// The number that stands alone and begins the text: its sign, a currency and $ may come first.
[[nodiscard]] std::string_view LeadingNumber(std::string_view text);

// Those of no name or index (v7, 3D, x_2, 2^10), in their order, with their signs.
[[nodiscard]] std::vector<std::string_view> StandaloneNumbers(std::string_view text);

}  // namespace ebb

#endif  // EBB_EVAL_ANSWERS_NUMBERS_H_
