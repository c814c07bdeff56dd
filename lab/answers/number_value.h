// The values of numbers as answers write them.
#ifndef EBB_LAB_ANSWERS_NUMBER_VALUE_H_
#define EBB_LAB_ANSWERS_NUMBER_VALUE_H_

#include <optional>
#include <string>
#include <string_view>

namespace ebb {

struct NumberValue {
  double value = 0;
  bool is_percent = false;
  std::string digits = {};  // of a whole number, without leading zeros; empty: it was computed
};

// Returns the value of a text that is one number, which units may follow: "1,234 dollars", -3/4,
// 1 1/2, \frac{3}{4}, "2 million", 5 \times 10^3, "x = 9 * 2 = 18", "75\%". Reads the four
// operations, powers and parentheses, and of LaTeX \frac, \times, \cdot, \div and spacing. Empty:
// the text says something else, or is longer than kMaxAnswerBytes.
[[nodiscard]] std::optional<NumberValue> ValueOf(std::string_view text);

// Whole numbers are the same exactly, others within 1e-5, relatively where the reference is below
// 1. A percent is the number before the sign, or a hundredth of it.
[[nodiscard]] bool SameValue(const NumberValue& answer, const NumberValue& reference);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_NUMBER_VALUE_H_
