// Computes the values of numbers as they are written in answers.
#ifndef EBB_LAB_ANSWERS_NUMBER_VALUE_H_
#define EBB_LAB_ANSWERS_NUMBER_VALUE_H_

#include <optional>
#include <string>
#include <string_view>

namespace ebb {

struct NumberValue {
  double value = 0;
  bool is_percent = false;
  std::string digits = {};  // if a plain whole number, without leading zeros; else empty
};

// Returns the value of a text that is one number, possibly with units: "1,234 dollars", -3/4, 1
// 1/2, \frac{3}{4}, "2 million", 5 \times 10^3, "x = 9 * 2 = 18", "75\%". Computes the four
// operations, powers and parentheses, and LaTeX's \frac, \times, \cdot, \div and spacing. Returns
// nullopt if the text is anything else or is longer than kMaxAnswerBytes.
[[nodiscard]] std::optional<NumberValue> ValueOf(std::string_view text);

// Returns whether two numbers are equal: whole numbers exactly, others within 1e-5, relatively if
// the reference is below 1. A percentage may be compared as the number before the sign or as a
// hundredth of it.
[[nodiscard]] bool SameValue(const NumberValue& answer, const NumberValue& reference);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_NUMBER_VALUE_H_
