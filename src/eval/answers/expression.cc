// A recursive descent over
//   sum     = [sign] product { sign product }
//   product = factor { ("*" | "/") {sign} factor | factor }
//   factor  = primary { "!" } [ "^" {sign} argument ]
#include "src/eval/answers/expression.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <string_view>
#include <system_error>

#include "src/eval/answers/text.h"

namespace ebb {
namespace {

using Value = std::complex<double>;
using MaybeValue = std::optional<Value>;

constexpr int kMaxDepth = 64;

// In [0.5, 2.5) or its negative: far from where powers overflow and differences vanish.
Value ValueOfName(std::string_view name, int point) {
  if (name == "pi") return std::numbers::pi;
  if (name == "e") return std::numbers::e;
  if (name == "i") return {0, 1};
  uint64_t hash = 0xcbf29ce484222325u + static_cast<uint64_t>(point);  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  hash ^= hash >> 31;
  const double magnitude = 0.5 + 2 * static_cast<double>(hash >> 11) * 0x1p-53;
  return (hash & 1) != 0 ? -magnitude : magnitude;
}

bool IsInteger(const MathToken& token) {
  return token.kind == MathTokenKind::kNumber &&
         token.text.find_first_not_of("0123456789") == std::string::npos;
}

double ValueOfNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Out of range, which is not finite for our purposes.
  return error == std::errc() ? value : std::numeric_limits<double>::infinity();
}

// Of whole numbers from 0 to 170.
MaybeValue Factorial(Value value) {
  if (value.imag() != 0 || value.real() < 0 || value.real() > 170 ||
      value.real() != std::floor(value.real())) {
    return {};
  }
  return std::round(std::tgamma(value.real() + 1));
}

MaybeValue Binomial(Value n, Value k) {
  if (n.imag() != 0 || k.imag() != 0 || n.real() > 1000 || k.real() < 0 || k.real() > n.real() ||
      k.real() != std::floor(k.real()) || n.real() != std::floor(n.real())) {
    return {};
  }
  double product = 1;
  for (double i = 1; i <= k.real(); ++i) product *= (n.real() - k.real() + i) / i;
  return product;
}

Value Power(Value base, Value exponent) {
  // Repeated multiplication keeps whole powers of real numbers exact.
  if (exponent.imag() == 0 && std::abs(exponent.real()) <= 64 &&
      exponent.real() == std::floor(exponent.real())) {
    Value power = 1;
    for (double i = 0; i < std::abs(exponent.real()); ++i) power *= base;
    return exponent.real() < 0 ? 1.0 / power : power;
  }
  if (base.imag() == 0 && exponent.imag() == 0 && base.real() >= 0) {
    return std::pow(base.real(), exponent.real());
  }
  return std::pow(base, exponent);
}

MaybeValue Apply(std::string_view function, Value x) {
  if (function == "sin") return std::sin(x);
  if (function == "cos") return std::cos(x);
  if (function == "tan") return std::tan(x);
  if (function == "cot") return 1.0 / std::tan(x);
  if (function == "sec") return 1.0 / std::cos(x);
  if (function == "csc") return 1.0 / std::sin(x);
  if (function == "arcsin") return std::asin(x);
  if (function == "arccos") return std::acos(x);
  if (function == "arctan") return std::atan(x);
  if (function == "ln") return std::log(x);
  if (function == "log") return std::log10(x);
  if (function == "exp") return std::exp(x);
  return {};
}

class Parser {
 public:
  Parser(MathTokens tokens, int point) : tokens_(tokens), point_(point) {}

  MaybeValue Run() {
    const MaybeValue value = Sum();
    if (!value || at_ != tokens_.size()) return {};
    if (!std::isfinite(value->real()) || !std::isfinite(value->imag())) return {};
    return value;
  }

 private:
  class Depth {
   public:
    explicit Depth(int* depth) : depth_(depth) { ++*depth_; }
    ~Depth() { --*depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    int* depth_;
  };

  [[nodiscard]] bool Next(std::string_view symbol) const {
    return at_ < tokens_.size() && tokens_[at_].Is(symbol);
  }
  bool Take(std::string_view symbol) {
    if (!Next(symbol)) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] bool NextIs(MathTokenKind kind) const {
    return at_ < tokens_.size() && tokens_[at_].kind == kind;
  }

  // -1 for an odd number of minus signs.
  double Signs() {
    double sign = 1;
    for (;;) {
      if (Take("-")) {
        sign = -sign;
      } else if (!Take("+")) {
        return sign;
      }
    }
  }

  MaybeValue Sum() {
    const Depth depth(&depth_);
    if (depth_ > kMaxDepth) return {};
    double sign = Signs();
    Value sum = 0;
    for (;;) {
      const MaybeValue term = Product();
      if (!term) return {};
      sum += sign * *term;
      if (!Next("+") && !Next("-")) return sum;
      sign = Signs();
    }
  }

  // Whether what follows multiplies what came before without a sign between them.
  [[nodiscard]] bool FactorFollows() const {
    if (at_ >= tokens_.size()) return false;
    if (NextIs(MathTokenKind::kNumber)) {
      return at_ > 0 && tokens_[at_ - 1].kind != MathTokenKind::kNumber;
    }
    return NextIs(MathTokenKind::kName) || NextIs(MathTokenKind::kFunction) || Next("(") ||
           Next("{");
  }

  MaybeValue Product() {
    MaybeValue product = Factor();
    while (product) {
      const bool divides = Next("/");
      MaybeValue factor;
      if (Take("*") || Take("/")) {
        const double sign = Signs();
        factor = Factor();
        if (factor) *factor *= sign;
      } else if (FactorFollows()) {
        factor = Factor();
      } else {
        return product;
      }
      if (!factor || (divides && *factor == 0.0)) return {};
      product = divides ? *product / *factor : *product * *factor;
    }
    return {};
  }

  MaybeValue Factor() {
    const Depth depth(&depth_);
    if (depth_ > kMaxDepth) return {};
    MaybeValue value = Primary();
    while (value && Take("!")) value = Factorial(*value);
    if (!value || !Take("^")) return value;
    const double sign = Signs();
    const MaybeValue exponent = Argument();
    if (!exponent) return {};
    return Power(*value, sign * *exponent);
  }

  MaybeValue Primary() {
    if (at_ >= tokens_.size()) return {};
    if (NextIs(MathTokenKind::kNumber)) return Number();
    if (NextIs(MathTokenKind::kName)) return Name();
    if (NextIs(MathTokenKind::kFunction)) return Function();
    if (Take("(")) return Until(")");
    if (Take("{")) return Until("}");
    if (Take("[")) return Until("]");
    if (Take("|")) {
      const MaybeValue value = Until("|");
      if (value) return std::abs(*value);
    }
    return {};
  }

  MaybeValue Until(std::string_view close) {
    const MaybeValue value = Sum();
    return value && Take(close) ? value : MaybeValue();
  }

  // 3, and the mixed numbers 1\frac{4}{5} and 1 4/5.
  MaybeValue Number() {
    const MathToken& token = tokens_[at_++];
    const double whole = ValueOfNumber(token.text);
    // A number with a base, 52_8, is no number like the others.
    if (Next("_")) return {};
    if (!IsInteger(token)) return whole;
    if (at_ + 2 < tokens_.size() && IsInteger(tokens_[at_]) && tokens_[at_ + 1].Is("/") &&
        IsInteger(tokens_[at_ + 2])) {
      const double above = ValueOfNumber(tokens_[at_].text);
      const double below = ValueOfNumber(tokens_[at_ + 2].text);
      at_ += 3;
      return whole + above / below;
    }
    if (!NextIs(MathTokenKind::kFunction) || tokens_[at_].text != "frac") return whole;
    const size_t begin = at_;
    const MaybeValue fraction = Function();
    if (!fraction) return {};
    if (IsPlainFraction(tokens_.subspan(begin, at_ - begin))) return whole + *fraction;
    return whole * *fraction;
  }

  // Of whole numbers alone.
  static bool IsPlainFraction(MathTokens tokens) {
    for (const MathToken& token : tokens.subspan(1)) {
      if (!IsInteger(token) && !token.Is("{") && !token.Is("}")) return false;
    }
    return true;
  }

  MaybeValue Name() {
    std::string name = tokens_[at_++].text;
    if (Next("_")) {
      name += SubscriptText();
      if (name.empty()) return {};
    }
    return ValueOfName(name, point_);
  }

  // "_1" or "_{10}"; empty: there is none.
  std::string SubscriptText() {
    std::string text = "_";
    ++at_;
    if (!Take("{")) {
      if (at_ >= tokens_.size()) return {};
      return text + tokens_[at_++].text;
    }
    while (at_ < tokens_.size() && !Next("}")) text += tokens_[at_++].text;
    return Take("}") ? text : std::string();
  }

  MaybeValue Function() {
    const std::string_view name = tokens_[at_++].text;
    if (name == "frac" || name == "binom") {
      const MaybeValue above = Argument();
      const MaybeValue below = above ? Argument() : MaybeValue();
      if (!below) return {};
      if (name == "binom") return Binomial(*above, *below);
      return *below == 0.0 ? MaybeValue() : *above / *below;
    }
    if (name == "sqrt") return Root();
    return Named(name);
  }

  // One token, or a group.
  MaybeValue Argument() {
    const Depth depth(&depth_);
    if (depth_ > kMaxDepth) return {};
    // No mixed number: x^2\frac{1}{2} is a product.
    if (NextIs(MathTokenKind::kNumber)) return ValueOfNumber(tokens_[at_++].text);
    return Primary();
  }

  MaybeValue Root() {
    MaybeValue degree = 2.0;
    if (Take("[")) degree = Until("]");
    const MaybeValue radicand = degree ? Argument() : MaybeValue();
    if (!radicand || *degree == 0.0) return {};
    if (*degree == 2.0) return std::sqrt(*radicand);
    // The real root, where there is one.
    const double n = degree->real();
    if (radicand->imag() == 0 && radicand->real() < 0 && std::fmod(n, 2) == 1) {
      return -std::pow(-radicand->real(), 1 / n);
    }
    return Power(*radicand, 1.0 / *degree);
  }

  // sin x, \sin^2 x, \log_2 8, f(x): the argument is a group, or a product of plain factors.
  MaybeValue Named(std::string_view name) {
    MaybeValue base;
    MaybeValue exponent;
    if (Take("_") && !(base = Argument())) return {};
    if (Take("^") && !(exponent = Argument())) return {};
    MaybeValue x = Next("(") || Next("{") ? Argument() : Factor();
    while (x &&
           (NextIs(MathTokenKind::kName) || (NextIs(MathTokenKind::kNumber) && FactorFollows()))) {
      // The argument of "sin 2x" is 2x; that of "sin(2)x" is 2.
      if (tokens_[at_ - 1].Is(")") || tokens_[at_ - 1].Is("}")) break;
      const MaybeValue more = Factor();
      x = more ? *x * *more : MaybeValue();
    }
    if (!x) return {};
    MaybeValue value = base && name == "log" ? std::log(*x) / std::log(*base) : Apply(name, *x);
    if (value && exponent) value = Power(*value, *exponent);
    return value;
  }

  MathTokens tokens_;
  int point_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

MaybeValue Evaluate(MathTokens tokens, int point) { return Parser(tokens, point).Run(); }

}  // namespace ebb
