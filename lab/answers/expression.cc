// A recursive descent over
//   sum     = [sign] product { sign product }
//   product = factor { ("*" | "/") {sign} factor | factor }
//   factor  = primary { "!" } [ "^" {sign} argument ]
#include "lab/answers/expression.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "lab/answers/text.h"
#include "lab/answers/values.h"

namespace ebb {
namespace {

using MaybeValue = std::optional<Value>;

constexpr int kMaxDepth = 64;

bool IsInteger(const MathToken& token) {
  return token.kind == MathTokenKind::kNumber &&
         std::all_of(token.text.begin(), token.text.end(), IsDigit);
}

class Parser {
 public:
  Parser(MathTokens tokens, int point) : tokens_(tokens), point_(point) {}

  MaybeValue Run() {
    const MaybeValue value = Sum();
    if (!value || at_ != tokens_.size()) return {};
    if (!std::isfinite(value->number.real()) || !std::isfinite(value->number.imag())) return {};
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

  // Whether an odd number of minus signs was taken.
  bool TakeSigns() {
    bool negative = false;
    for (;;) {
      if (Take("-")) {
        negative = !negative;
      } else if (!Take("+")) {
        return negative;
      }
    }
  }

  MaybeValue Sum() {
    const Depth depth(&depth_);
    if (depth_ > kMaxDepth) return {};
    bool negative = TakeSigns();
    Value sum = {0.0, 0};
    for (;;) {
      const MaybeValue term = Product();
      if (!term) return {};
      sum = sum + (negative ? -*term : *term);
      if (!Next("+") && !Next("-")) return sum;
      negative = TakeSigns();
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
        const bool negative = TakeSigns();
        factor = Factor();
        if (factor && negative) factor = -*factor;
      } else if (FactorFollows()) {
        factor = Factor();
      } else {
        return product;
      }
      if (!factor || (divides && factor->number == 0.0)) return {};
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
    const bool negative = TakeSigns();
    const MaybeValue exponent = Argument();
    if (!exponent) return {};
    return Power(*value, negative ? -*exponent : *exponent);
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
      if (value) return Value{std::abs(value->number)};
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
    const Value whole = ValueOfNumber(token.text);
    // A number with a base, 52_8, is no number like the others.
    if (Next("_")) return {};
    if (!IsInteger(token)) return whole;
    if (at_ + 2 < tokens_.size() && IsInteger(tokens_[at_]) && tokens_[at_ + 1].Is("/") &&
        IsInteger(tokens_[at_ + 2])) {
      const Value above = ValueOfNumber(tokens_[at_].text);
      const Value below = ValueOfNumber(tokens_[at_ + 2].text);
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

  // Whether it is a fraction of whole numbers alone.
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
      return below->number == 0.0 ? MaybeValue() : *above / *below;
    }
    if (name == "sqrt") return RadicalOf();
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

  MaybeValue RadicalOf() {
    MaybeValue degree = Value{2.0};
    if (Take("[")) degree = Until("]");
    const MaybeValue radicand = degree ? Argument() : MaybeValue();
    if (!radicand || degree->number == 0.0) return {};
    return Root(*degree, *radicand);
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
    if (exponent && exponent->number == -1.0) {
      if (const MaybeValue inverse = ApplyInverse(name, *x)) return inverse;
    }
    MaybeValue value = Apply(name, *x);
    if (base && name == "log") value = Value{std::log(x->number) / std::log(base->number)};
    if (value && exponent) value = Power(*value, *exponent);
    return value;
  }

  MathTokens tokens_;
  int point_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

MaybeValue Evaluate(MathTokens tokens, int point) {
  const auto is_letters = [](const MathToken& t) { return t.kind == MathTokenKind::kLetters; };
  if (std::none_of(tokens.begin(), tokens.end(), is_letters)) return Parser(tokens, point).Run();
  std::vector<MathToken> factors;
  for (const MathToken& token : tokens) {
    if (!is_letters(token)) {
      factors.push_back(token);
      continue;
    }
    for (const char c : token.text) factors.push_back({MathTokenKind::kName, std::string(1, c)});
  }
  return Parser(factors, point).Run();
}

}  // namespace ebb
