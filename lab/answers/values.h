// Numbers as expressions compute them, and the functions that are known.
#ifndef EBB_LAB_ANSWERS_VALUES_H_
#define EBB_LAB_ANSWERS_VALUES_H_

#include <complex>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ebb {

struct Value {
  std::complex<double> number;
  // The value modulo a prime below 2^32, if it is whole without rounding: tells 2^64 from 2^64 + 1,
  // which are one double.
  std::optional<uint64_t> residue = {};
};

[[nodiscard]] Value operator-(Value x);
[[nodiscard]] Value operator+(Value a, Value b);
[[nodiscard]] Value operator*(Value a, Value b);
[[nodiscard]] Value operator/(Value a, Value b);

// The value of digits, perhaps with a point and an exponent.
[[nodiscard]] Value ValueOfNumber(std::string_view text);
// The value of a variable at a point, or of a constant.
[[nodiscard]] Value ValueOfName(std::string_view name, int point);

[[nodiscard]] Value Power(Value base, Value exponent);
// The real root of odd degree, where there is one. REQUIRES: the degree is not 0.
[[nodiscard]] Value Root(Value degree, Value radicand);

// Empty: it has none, or the function is unknown.
[[nodiscard]] std::optional<Value> Factorial(Value x);  // of whole numbers from 0 to 170
[[nodiscard]] std::optional<Value> Binomial(Value n, Value k);
[[nodiscard]] std::optional<Value> Apply(std::string_view function, Value x);
[[nodiscard]] std::optional<Value> ApplyInverse(std::string_view function, Value x);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_VALUES_H_
