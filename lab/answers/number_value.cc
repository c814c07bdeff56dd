#include "lab/answers/number_value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>
#include <utility>

#include "ebb/lab/answers.h"
#include "lab/answers/numbers.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

// kFractions and the constants below list the spellings of operators, and the marks of LaTeX,
// Markdown and currencies around numbers. A spelling comes before any other with which it begins.
using Texts = std::span<const std::string_view>;
constexpr std::string_view kFractions[] = {"\\dfrac", "\\tfrac", "\\cfrac"};
constexpr std::string_view kTimes[] = {"\\times", "\\cdot", "×", "·"};
constexpr std::string_view kDivisions[] = {"\\div", "÷"};
constexpr std::string_view kMinuses[] = {"−", "–"};
constexpr std::string_view kPercents[] = {"\\%"};
constexpr std::string_view kCommas[] = {"{,}"};
constexpr std::string_view kSpaces[] = {"{\\,}", "\\,",    "\\;",    "\\ ",
                                        "~",     "\u202f", "\u00a0", "\u2009"};
constexpr std::string_view kMarks[] = {"\\left",   "\\right", "\\textbf", "\\text", "\\mathrm",
                                       "\\mathbf", "\\mbox",  "\\$",      "\\(",    "\\)",
                                       "\\[",      "\\]",     "\\!",      "**",     "`",
                                       "$",        "£",       "€",        "¥"};
constexpr std::pair<Texts, std::string_view> kSpellings[] = {
    {kFractions, "\\frac"}, {kTimes, "*"},  {kDivisions, "/"}, {kMinuses, "-"},
    {kPercents, "%"},       {kCommas, ","}, {kSpaces, " "},    {kMarks, ""}};

std::string WithPlainOperators(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    std::string_view from = text.substr(0, 1), to = from;
    for (const auto& [spellings, operation] : kSpellings) {
      const auto found = std::ranges::find_if(
          spellings, [&](std::string_view spelling) { return text.starts_with(spelling); });
      if (found == spellings.end()) continue;
      from = *found;
      to = operation;
      break;
    }
    plain += to;
    text.remove_prefix(from.size());
  }
  return plain;
}

// Reader reads an expression from left to right. Every read either advances past the text that it
// has read, or fails.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<double> Sum(int nesting = 0) {
    constexpr int kMaxNesting = 16;
    if (nesting > kMaxNesting) return {};
    std::optional<double> sum = Product(nesting);
    while (sum.has_value() && (Peek() == '+' || Peek() == '-')) {
      const double sign = Next() == '-' ? -1 : 1;
      const std::optional<double> other = Product(nesting);
      sum = other.has_value() ? std::optional(*sum + sign * *other) : std::nullopt;
      digits_.clear();
    }
    return sum;
  }
  // Returns the digits of the last value if it was a single whole number; else an empty text.
  [[nodiscard]] const std::string& digits() const { return digits_; }
  std::string_view rest() {
    Peek();
    return text_;
  }

 private:
  // Returns the next character that is not a space; 0: the text has ended.
  char Peek() {
    while (text_.starts_with(' ') || text_.starts_with('\n')) text_.remove_prefix(1);
    return text_.empty() ? '\0' : text_.front();
  }
  char Next() {
    const char c = Peek();
    text_.remove_prefix(1);
    return c;
  }
  bool Take(std::string_view word) {
    Peek();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  std::optional<double> Product(int nesting) {
    const bool is_negative = Take("-");
    if (!is_negative) Take("+");
    std::optional<double> product = Power(nesting);
    while (product.has_value() && (Peek() == '*' || Peek() == '/')) {
      // "8 dollars/day" does not divide by a number.
      if (text_.size() > 1 && IsLetter(text_[1])) break;
      const char sign = Next();
      const std::optional<double> other = Power(nesting);
      if (!other.has_value() || (sign == '/' && *other == 0)) return {};
      product = sign == '*' ? *product * *other : *product / *other;
      digits_.clear();
    }
    if (is_negative && product.has_value()) product = -*product;
    if (is_negative && !digits_.empty()) digits_.insert(0, "-");
    return product;
  }

  std::optional<double> Power(int nesting) {
    std::optional<double> base = Primary(nesting);
    if (!base.has_value() || !Take("^")) return base;
    const bool is_negative = Take("-");
    const std::optional<double> exponent = Primary(nesting);
    digits_.clear();
    if (!exponent.has_value()) return {};
    const double power = std::pow(*base, is_negative ? -*exponent : *exponent);
    return std::isfinite(power) ? std::optional(power) : std::nullopt;
  }

  std::optional<double> Primary(int nesting) {
    if (Take("\\frac")) return Fraction(nesting);
    for (const auto& [open, close] : {std::pair("(", ")"), std::pair("{", "}")}) {
      if (!Take(open)) continue;
      const std::optional<double> inside = Sum(nesting + 1);
      return inside.has_value() && Take(close) ? inside : std::nullopt;
    }
    std::optional<double> number = Number();
    if (!number.has_value()) return {};
    // Reads a mixed number: 1 1/2 or 1\frac{1}{2}.
    const std::string_view behind = text_;
    const bool is_whole = !digits_.empty();
    std::optional<double> part;
    if (Take("\\frac")) {
      part = Fraction(nesting);
    } else if (is_whole && behind.starts_with(' ') && IsDigit(Peek())) {
      const std::string whole = digits_;
      const std::optional<double> above = Number();
      if (Take("/")) part = Number();
      part = part.value_or(0) > 0 ? std::optional(*above / *part) : std::nullopt;
      if (!part.has_value()) digits_ = whole;
    } else {
      return number;
    }
    if (!part.has_value()) {
      text_ = behind;
      return number;
    }
    digits_.clear();
    return *number + *part;
  }

  // Reads the arguments of a fraction: {3}{4} or 34 (three quarters).
  std::optional<double> Fraction(int nesting) {
    std::array<std::optional<double>, 2> parts;
    for (std::optional<double>& part : parts) {
      if (Take("{")) {
        part = Sum(nesting + 1);
        if (!Take("}")) return {};
      } else if (IsDigit(Peek())) {
        part = Next() - '0';
      }
      if (!part.has_value()) return {};
    }
    digits_.clear();
    return *parts[1] == 0 ? std::nullopt : std::optional(*parts[0] / *parts[1]);
  }

  // Reads digits with thousands separators, decimals and an exponent.
  std::optional<double> Number() {
    Peek();
    std::string number;
    size_t at = 0;
    const auto take_digits = [&] {
      const size_t begin = at;
      while (at < text_.size() && IsDigit(text_[at])) number += text_[at++];
      return at - begin;
    };
    const auto digits_at = [&](size_t from) {
      size_t end = from;
      while (end < text_.size() && IsDigit(text_[end])) ++end;
      return end - from;
    };
    constexpr size_t kGroup = 3;
    if (take_digits() <= kGroup) {
      while (at > 0 && at < text_.size() && (text_[at] == ',' || text_[at] == ' ')) {
        size_t group = at + 1;
        if (text_[at] == ',' && group < text_.size() && text_[group] == ' ') ++group;
        const bool is_power_or_fraction =
            group + kGroup < text_.size() && text_[group + kGroup] == '/';
        if (digits_at(group) != kGroup || is_power_or_fraction) break;
        at = group;
        take_digits();
      }
    }
    bool is_whole = true;
    if (at + 1 < text_.size() && text_[at] == '.' && IsDigit(text_[at + 1])) {
      is_whole = false;
      number += text_[at++];
      take_digits();
    }
    if (number.empty()) return {};
    if (at + 1 < text_.size() && (text_[at] == 'e' || text_[at] == 'E')) {
      const size_t sign = text_[at + 1] == '-' || text_[at + 1] == '+' ? 1 : 0;
      if (digits_at(at + 1 + sign) > 0) {
        is_whole = false;
        number.append(text_.substr(at, 1 + sign));
        at += 1 + sign;
        take_digits();
      }
    }
    text_.remove_prefix(at);
    digits_.clear();
    if (is_whole)
      digits_ = number.substr(std::min(number.find_first_not_of('0'), number.size() - 1));
    return std::strtod(number.c_str(), nullptr);
  }

  std::string_view text_;
  std::string digits_;
};

// Returns whether the text is nothing but units: "dollars", "m/s", "per day".
bool IsUnits(std::string_view text) {
  constexpr std::string_view kLetters = "mgslhL";
  for (text = Trim(text); !text.empty(); text = Trim(text)) {
    size_t end = 0;
    while (end < text.size() && IsLetter(text[end])) ++end;
    const bool is_letter = end == 1 && kLetters.find(text[0]) != std::string_view::npos;
    if (text[0] == '/' || text[0] == '{' || text[0] == '}') {
      end = 1;
    } else if (end == 0 || (!is_letter && !IsUnitWord(LowerCase(text.substr(0, end))))) {
      return false;
    }
    text.remove_prefix(end);
  }
  return true;
}

}  // namespace

std::optional<NumberValue> ValueOf(std::string_view text) {
  text = SkipMarkup(text);
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > kMaxAnswerBytes) return {};
  const std::string plain = WithPlainOperators(text);
  std::string_view said = plain;
  if (const size_t equals = said.rfind('='); equals != std::string_view::npos) {
    said.remove_prefix(equals + 1);
  }
  Reader reader(said);
  const std::optional<double> value = reader.Sum();
  if (!value.has_value() || !std::isfinite(*value)) return {};
  NumberValue number = {.value = *value, .digits = reader.digits()};
  std::string_view rest = reader.rest();
  size_t end = 0;
  while (end < rest.size() && IsLetter(rest[end])) ++end;
  if (const std::string_view scale = ScaleOfWord(LowerCase(rest.substr(0, end))); !scale.empty()) {
    number.value *= std::strtod(std::string(scale).c_str(), nullptr);
    number.digits.clear();
    rest.remove_prefix(end);
  }
  number.is_percent = rest.starts_with('%');
  if (number.is_percent) rest.remove_prefix(1);
  return IsUnits(rest) ? std::optional(number) : std::nullopt;
}

bool SameValue(const NumberValue& answer, const NumberValue& reference) {
  const bool scales = answer.is_percent != reference.is_percent;
  if (!scales && !answer.digits.empty() && !reference.digits.empty()) {
    return answer.digits == reference.digits;
  }
  const auto is_near = [&](double value) {
    constexpr double kTolerance = 1e-5;
    constexpr double kRounding = 4e-15;  // relative error of a few roundings of a double
    const double size = std::abs(reference.value);
    const double allowed = std::max(kTolerance * std::min(1.0, size), kRounding * size);
    return std::abs(value - reference.value) <= std::max(allowed, 1e-14);
  };
  return is_near(answer.value) ||
         (scales && is_near(answer.value * (answer.is_percent ? 0.01 : 100)));
}

}  // namespace ebb
