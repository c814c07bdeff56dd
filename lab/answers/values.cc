#include "lab/answers/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <system_error>

#include "lab/answers/text.h"

namespace ebb {
namespace {

// Residues multiply within 64 bits.
constexpr uint64_t kPrime = 4294967291;

bool IsWhole(Value x) {
  return x.number.imag() == 0 && x.number.real() == std::floor(x.number.real());
}

uint64_t PowerOfResidue(uint64_t base, uint64_t exponent) {
  uint64_t power = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) power = power * base % kPrime;
    base = base * base % kPrime;
  }
  return power;
}

std::complex<double> PowerOfNumber(std::complex<double> base, std::complex<double> exponent) {
  // Repeated multiplication keeps whole powers of real numbers exact.
  if (exponent.imag() == 0 && std::abs(exponent.real()) <= 64 &&
      exponent.real() == std::floor(exponent.real())) {
    std::complex<double> power = 1;
    const auto times = static_cast<int>(std::abs(exponent.real()));
    for (int i = 0; i < times; ++i) power *= base;
    return exponent.real() < 0 ? 1.0 / power : power;
  }
  if (base.imag() == 0 && exponent.imag() == 0 && base.real() >= 0) {
    return std::pow(base.real(), exponent.real());
  }
  return std::pow(base, exponent);
}

}  // namespace

Value operator-(Value x) {
  if (x.residue) x.residue = (kPrime - *x.residue) % kPrime;
  return {-x.number, x.residue};
}

Value operator+(Value a, Value b) {
  Value sum = {a.number + b.number};
  if (a.residue && b.residue) sum.residue = (*a.residue + *b.residue) % kPrime;
  return sum;
}

Value operator*(Value a, Value b) {
  Value product = {a.number * b.number};
  if (a.residue && b.residue) product.residue = *a.residue * *b.residue % kPrime;
  return product;
}

Value operator/(Value a, Value b) { return {a.number / b.number}; }

Value ValueOfNumber(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // Out of range, which is not finite for our purposes.
  if (error != std::errc()) number = std::numeric_limits<double>::infinity();
  Value value = {number};
  if (!std::all_of(text.begin(), text.end(), IsDigit)) return value;
  value.residue = 0;
  for (const char c : text) {
    value.residue = (*value.residue * 10 + static_cast<uint64_t>(c - '0')) % kPrime;
  }
  return value;
}

// In [0.5, 2.5) or its negative: far from where powers overflow and differences vanish.
Value ValueOfName(std::string_view name, int point) {
  if (name == "pi") return {std::numbers::pi};
  if (name == "e") return {std::numbers::e};
  if (name == "i") return {{0, 1}};
  uint64_t hash = 0xcbf29ce484222325u + static_cast<uint64_t>(point);  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  hash ^= hash >> 31;
  const double magnitude = 0.5 + 2 * static_cast<double>(hash >> 11) * 0x1p-53;
  return {(hash & 1) != 0 ? -magnitude : magnitude};
}

Value Power(Value base, Value exponent) {
  Value power = {PowerOfNumber(base.number, exponent.number)};
  // Larger exponents leave no finite number but for bases that hardly matter.
  constexpr double kMaxExponent = 1e6;
  if (base.residue && exponent.residue && exponent.number.real() >= 0 &&
      exponent.number.real() <= kMaxExponent) {
    power.residue = PowerOfResidue(*base.residue, static_cast<uint64_t>(exponent.number.real()));
  }
  return power;
}

Value Root(Value degree, Value radicand) {
  if (degree.number == 2.0) return {std::sqrt(radicand.number)};
  const double n = degree.number.real();
  if (radicand.number.imag() == 0 && radicand.number.real() < 0 && std::fmod(n, 2) == 1) {
    return {-std::pow(-radicand.number.real(), 1 / n)};
  }
  return {PowerOfNumber(radicand.number, 1.0 / degree.number)};
}

std::optional<Value> Factorial(Value x) {
  const double n = x.number.real();
  if (!IsWhole(x) || n < 0 || n > 170) return {};
  Value product = {std::round(std::tgamma(n + 1)), 1};
  for (uint64_t i = 2; i <= static_cast<uint64_t>(n); ++i) {
    product.residue = *product.residue * i % kPrime;
  }
  return product;
}

std::optional<Value> Binomial(Value n, Value k) {
  const double of = n.number.real();
  const double chosen = k.number.real();
  if (!IsWhole(n) || !IsWhole(k) || of > 1000 || chosen < 0 || chosen > of) return {};
  double product = 1;
  for (int i = 1; i <= static_cast<int>(chosen); ++i) product *= (of - chosen + i) / i;
  return Value{product};
}

std::optional<Value> Apply(std::string_view function, Value x) {
  const std::complex<double> z = x.number;
  if (function == "sin") return Value{std::sin(z)};
  if (function == "cos") return Value{std::cos(z)};
  if (function == "tan") return Value{std::tan(z)};
  if (function == "cot") return Value{1.0 / std::tan(z)};
  if (function == "sec") return Value{1.0 / std::cos(z)};
  if (function == "csc") return Value{1.0 / std::sin(z)};
  if (function == "arcsin") return Value{std::asin(z)};
  if (function == "arccos") return Value{std::acos(z)};
  if (function == "arctan") return Value{std::atan(z)};
  if (function == "ln") return Value{std::log(z)};
  if (function == "log") return Value{std::log10(z)};
  if (function == "exp") return Value{std::exp(z)};
  return {};
}

std::optional<Value> ApplyInverse(std::string_view function, Value x) {
  if (function == "sin" || function == "cos" || function == "tan") {
    return Apply("arc" + std::string(function), x);
  }
  return {};
}

}  // namespace ebb
