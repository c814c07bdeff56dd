#include "src/model/schema/number_range.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

namespace ebb {
namespace {

constexpr size_t kMostDigits = 16;
constexpr size_t kMostFraction = 15;

// Tail describes digits that follow those already written, in the order of a fraction; they may
// stop at any digit.
struct Tail {
  std::optional<RegexNode> some;  // at least one digit; nothing: there are none that fit
  bool may_stop = false;
};

RegexNode Digit(char first, char last) {
  return SetNode({{static_cast<unsigned char>(first), static_cast<unsigned char>(last)}});
}
RegexNode Digits(size_t least, size_t most) { return Repeated(Digit('0', '9'), least, most); }
RegexNode Zeros(size_t least, size_t most) { return Repeated(Digit('0', '0'), least, most); }

RegexNode Text(std::string_view text) {
  std::vector<RegexNode> parts;
  for (const char c : text) parts.push_back(Digit(c, c));
  return Sequence(std::move(parts));
}

std::optional<RegexNode> AnyOf(std::vector<RegexNode> choices) {
  if (choices.empty()) return std::nullopt;
  return Choice(std::move(choices));
}

void AddDigitAndTail(char digit, const Tail& tail, std::vector<RegexNode>* choices) {
  if (tail.some.has_value()) choices->push_back(Sequence({Digit(digit, digit), *tail.some}));
  if (tail.may_stop) choices->push_back(Digit(digit, digit));
}

void AddDigits(char first, char last, std::vector<RegexNode>* choices) {
  if (first > last) return;
  choices->push_back(Sequence({Digit(first, last), Digits(0, kMostFraction - 1)}));
}

Tail FractionAtLeast(std::string_view least, bool is_open) {
  if (least.empty() && !is_open) return {Digits(1, kMostFraction), true};
  if (least.empty()) {
    return {Sequence({Zeros(0, kMostFraction - 1), Digit('1', '9'), Digits(0, kMostFraction - 1)}),
            false};
  }
  std::vector<RegexNode> choices;
  AddDigitAndTail(least[0], FractionAtLeast(least.substr(1), is_open), &choices);
  AddDigits(static_cast<char>(least[0] + 1), '9', &choices);
  return {AnyOf(std::move(choices)), false};
}

Tail FractionAtMost(std::string_view most, bool is_open) {
  if (most.empty() && is_open) return {};
  if (most.empty()) return {Zeros(1, kMostFraction), true};
  std::vector<RegexNode> choices;
  AddDigits('0', static_cast<char>(most[0] - 1), &choices);
  AddDigitAndTail(most[0], FractionAtMost(most.substr(1), is_open), &choices);
  return {AnyOf(std::move(choices)), true};
}

Tail FractionBetween(std::string_view least, bool least_open, std::string_view most,
                     bool most_open) {
  if (least.empty() && !least_open) return FractionAtMost(most, most_open);
  if (most.empty()) {
    const bool is_one = least.empty() && !least_open && !most_open;
    return is_one ? FractionAtMost(most, false) : Tail();
  }
  const char low = least.empty() ? '0' : least[0];
  const std::string_view behind = least.substr(std::min<size_t>(1, least.size()));
  std::vector<RegexNode> choices;
  if (low == most[0]) {
    AddDigitAndTail(low, FractionBetween(behind, least_open, most.substr(1), most_open), &choices);
  } else if (low < most[0]) {
    AddDigitAndTail(low, FractionAtLeast(behind, least_open), &choices);
    AddDigits(static_cast<char>(low + 1), static_cast<char>(most[0] - 1), &choices);
    AddDigitAndTail(most[0], FractionAtMost(most.substr(1), most_open), &choices);
  }
  return {AnyOf(std::move(choices)), false};
}

// Returns an expression of the numbers with as many digits as `digits` that are not below it;
// WholeAtMost() returns one of those that are not above it.
RegexNode WholeAtLeast(std::string_view digits) {
  if (digits.find_first_not_of('0') == std::string_view::npos) {
    return Digits(digits.size(), digits.size());
  }
  std::vector<RegexNode> choices = {
      Sequence({Digit(digits[0], digits[0]), WholeAtLeast(digits.substr(1))})};
  if (digits[0] < '9') {
    choices.push_back(Sequence({Digit(static_cast<char>(digits[0] + 1), '9'),
                                Digits(digits.size() - 1, digits.size() - 1)}));
  }
  return Choice(std::move(choices));
}

RegexNode WholeAtMost(std::string_view digits) {
  if (digits.find_first_not_of('9') == std::string_view::npos) {
    return Digits(digits.size(), digits.size());
  }
  std::vector<RegexNode> choices = {
      Sequence({Digit(digits[0], digits[0]), WholeAtMost(digits.substr(1))})};
  if (digits[0] > '0') {
    choices.push_back(Sequence({Digit('0', static_cast<char>(digits[0] - 1)),
                                Digits(digits.size() - 1, digits.size() - 1)}));
  }
  return Choice(std::move(choices));
}

RegexNode WholeBetween(std::string_view least, std::string_view most) {
  size_t same = 0;
  while (same < least.size() && least[same] == most[same]) ++same;
  if (same == least.size()) return Text(least);
  const size_t rest = least.size() - same - 1;
  std::vector<RegexNode> choices = {
      Sequence({Digit(least[same], least[same]), WholeAtLeast(least.substr(same + 1))}),
      Sequence({Digit(most[same], most[same]), WholeAtMost(most.substr(same + 1))})};
  if (least[same] + 1 < most[same]) {
    choices.push_back(
        Sequence({Digit(static_cast<char>(least[same] + 1), static_cast<char>(most[same] - 1)),
                  Digits(rest, rest)}));
  }
  return Sequence({Text(least.substr(0, same)), Choice(std::move(choices))});
}

bool IsBelow(std::string_view a, std::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

// Returns the number plus one. Previous() returns it minus one. REQUIRES of Previous(): it is above
// 0.
std::string Next(std::string digits) {
  size_t i = digits.size();
  while (i > 0 && digits[i - 1] == '9') digits[--i] = '0';
  if (i == 0) return "1" + digits;
  ++digits[i - 1];
  return digits;
}

std::string Previous(std::string digits) {
  size_t i = digits.size();
  while (digits[i - 1] == '0') digits[--i] = '9';
  --digits[i - 1];
  return digits.size() > 1 && digits[0] == '0' ? digits.substr(1) : digits;
}

void AddWhole(const RegexNode& whole, const Tail& tail, std::vector<RegexNode>* choices) {
  const RegexNode point = Digit('.', '.');
  if (tail.may_stop && tail.some.has_value()) {
    choices->push_back(Sequence({whole, Repeated(Sequence({point, *tail.some}), 0, 1)}));
  } else if (tail.may_stop) {
    choices->push_back(whole);
  } else if (tail.some.has_value()) {
    choices->push_back(Sequence({whole, point, *tail.some}));
  }
}

// Adds the numbers between two bounds. REQUIRES: neither bound is negative.
void AddPositive(const NumberBound& least, const NumberBound& most,
                 std::vector<RegexNode>* choices) {
  if (IsBelow(most.whole, least.whole)) return;
  if (least.whole == most.whole) {
    AddWhole(Text(least.whole),
             FractionBetween(least.fraction, least.is_open, most.fraction, most.is_open), choices);
    return;
  }
  AddWhole(Text(least.whole), FractionAtLeast(least.fraction, least.is_open), choices);
  const std::string first = Next(least.whole), last = Previous(most.whole);
  if (!IsBelow(last, first)) {
    std::vector<RegexNode> wholes;
    for (size_t size = first.size(); size <= last.size(); ++size) {
      const std::string from = size == first.size() ? first : "1" + std::string(size - 1, '0');
      const std::string to = size == last.size() ? last : std::string(size, '9');
      wholes.push_back(WholeBetween(from, to));
    }
    AddWhole(Choice(std::move(wholes)), FractionAtLeast("", false), choices);
  }
  AddWhole(Text(most.whole), FractionAtMost(most.fraction, most.is_open), choices);
}

}  // namespace

std::optional<NumberBound> NumberBound::Parse(const std::string& text) {
  NumberBound bound;
  std::string_view rest = text;
  bound.is_negative = rest.starts_with('-');
  if (bound.is_negative) rest.remove_prefix(1);
  int exponent = 0;
  if (const size_t e = rest.find_first_of("eE"); e != std::string_view::npos) {
    const char* const begin = rest.data() + e + (rest[e + 1] == '+' ? 2 : 1);
    if (std::from_chars(begin, rest.data() + rest.size(), exponent).ec != std::errc()) {
      return std::nullopt;
    }
    rest = rest.substr(0, e);
  }
  if (std::abs(exponent) > 40) return std::nullopt;
  const size_t point = std::min(rest.find('.'), rest.size());
  std::string digits(rest.substr(0, point));
  if (point < rest.size()) digits += rest.substr(point + 1);
  // `at` is the place of the point, counted from the first digit.
  const int at = static_cast<int>(point) + exponent;
  if (at < 0) digits.insert(0, static_cast<size_t>(-at), '0');
  const auto num_whole = static_cast<size_t>(std::max(at, 0));
  if (digits.size() < num_whole) digits.append(num_whole - digits.size(), '0');
  std::string whole = digits.substr(0, num_whole);
  bound.fraction = digits.substr(num_whole);
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  bound.whole = whole.empty() ? "0" : whole;
  bound.fraction.erase(bound.fraction.find_last_not_of('0') + 1);
  if (bound.whole.size() > kMostDigits || bound.fraction.size() > kMostFraction) {
    return std::nullopt;
  }
  return bound;
}

std::optional<RegexNode> NumbersBetween(const std::optional<NumberBound>& least,
                                        const std::optional<NumberBound>& most) {
  const NumberBound zero;
  const NumberBound largest = {.whole = std::string(kMostDigits, '9')};
  NumberBound low = least.value_or(NumberBound{.is_negative = true, .whole = largest.whole});
  NumberBound high = most.value_or(largest);
  const auto is_zero = [](const NumberBound& b) { return b.whole == "0" && b.fraction.empty(); };
  if (is_zero(low)) low.is_negative = false;
  // Treats -0 as 0.
  if (is_zero(high)) high.is_negative = false;
  std::vector<RegexNode> choices;
  if (low.is_negative) {
    NumberBound to = low;
    to.is_negative = false;
    NumberBound from = high.is_negative || is_zero(high) ? high : zero;
    from.is_negative = false;
    std::vector<RegexNode> negative;
    AddPositive(from, to, &negative);
    if (!negative.empty()) {
      choices.push_back(Sequence({Digit('-', '-'), Choice(std::move(negative))}));
    }
  }
  if (!high.is_negative) AddPositive(low.is_negative ? zero : low, high, &choices);
  return AnyOf(std::move(choices));
}

}  // namespace ebb
