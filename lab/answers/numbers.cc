#include "lab/answers/numbers.h"

#include <algorithm>
#include <string>

#include "lab/answers/text.h"

namespace ebb {
namespace {

constexpr std::string_view kMinus = "−";

constexpr std::string_view kUnits[] = {
    "acres",      "bushels", "celsius",    "cent",    "centimeter", "centimeters", "cents",
    "cm",         "cubic",   "day",        "days",    "degree",     "degrees",     "dollar",
    "dollars",    "euros",   "fahrenheit", "feet",    "foot",       "ft",          "gallon",
    "gallons",    "gram",    "grams",      "hour",    "hours",      "hr",          "hrs",
    "in",         "inch",    "inches",     "kg",      "kilogram",   "kilograms",   "kilometer",
    "kilometers", "km",      "kmh",        "lb",      "lbs",        "liter",       "liters",
    "litres",     "meter",   "meters",     "metres",  "mg",         "mi",          "mile",
    "miles",      "min",     "minute",     "minutes", "ml",         "mm",          "month",
    "months",     "mph",     "ounce",      "ounces",  "oz",         "pence",       "per",
    "people",     "pound",   "pounds",     "radians", "sec",        "second",      "seconds",
    "square",     "ton",     "tons",       "unit",    "units",      "usd",         "week",
    "weeks",      "yard",    "yards",      "year",    "years",
};

char CharAt(std::string_view text, size_t at) { return at < text.size() ? text[at] : '\0'; }

size_t DigitsEnd(std::string_view text, size_t at) {
  while (IsDigit(CharAt(text, at))) ++at;
  return at;
}

// Returns the end of a number that continues with groups of three digits: 1,234,567 or 10,\!080.
size_t SkipThousands(std::string_view text, size_t begin, size_t end) {
  if (end - begin > 3 || end == begin) return end;
  for (;;) {
    size_t group = end;
    if (CharAt(text, group) != ',') return end;
    ++group;
    if (text.substr(group).starts_with("\\!")) group += 2;
    if (DigitsEnd(text, group) != group + 3) return end;
    end = group + 3;
  }
}

size_t SkipExponent(std::string_view text, size_t end) {
  if (CharAt(text, end) != 'e' && CharAt(text, end) != 'E') return end;
  const char sign = CharAt(text, end + 1);
  const size_t digits = end + (sign == '-' || sign == '+' ? 2 : 1);
  const size_t exponent_end = DigitsEnd(text, digits);
  return exponent_end > digits ? exponent_end : end;
}

size_t SkipSpaces(std::string_view text, size_t at) {
  while (CharAt(text, at) == ' ') ++at;
  return at;
}

// Returns the end of a power at `end`, "^3" or "^{-3}"; `end` if there is none.
size_t SkipPower(std::string_view text, size_t end) {
  if (CharAt(text, end) != '^') return end;
  const bool group = CharAt(text, end + 1) == '{';
  size_t at = end + (group ? 2 : 1);
  if (CharAt(text, at) == '-') ++at;
  const size_t digits_end = DigitsEnd(text, at);
  if (digits_end == at || (group && CharAt(text, digits_end) != '}')) return end;
  return group ? digits_end + 1 : digits_end;
}

// Returns the end of a factor such as " \times 10^3" at `end`; `end` if there is none.
size_t SkipPowerOfTen(std::string_view text, size_t end) {
  const size_t at = SkipSpaces(text, end);
  for (const std::string_view times : {"\\times", "\\cdot", "×", "·", "*"}) {
    if (!text.substr(at).starts_with(times)) continue;
    const size_t ten = SkipSpaces(text, at + times.size());
    if (!text.substr(ten).starts_with("10^")) return end;
    const size_t power = SkipPower(text, ten + 2);
    return power > ten + 2 ? power : end;
  }
  return end;
}

// Returns the end of a fraction that continues the number: "/4" in 3/4, " 3/4" in 1 3/4. A whole
// part before a fraction is short.
size_t SkipFraction(std::string_view text, size_t begin, size_t end) {
  if (CharAt(text, end) == '/' && IsDigit(CharAt(text, end + 1))) return DigitsEnd(text, end + 1);
  const size_t above = end + 1;
  const size_t slash = DigitsEnd(text, above);
  constexpr size_t kMaxDigits = 4;
  if (CharAt(text, end) != ' ' || slash == above || slash > above + kMaxDigits ||
      CharAt(text, slash) != '/' || end - begin > kMaxDigits || DigitsEnd(text, begin) != end) {
    return end;
  }
  const size_t below = DigitsEnd(text, slash + 1);
  return below > slash + 1 ? below : end;
}

// Returns the end of a scale word such as " million" at `end`; `end` if there is none.
size_t SkipScale(std::string_view text, size_t end) {
  const size_t begin = SkipSpaces(text, end);
  size_t word_end = begin;
  constexpr size_t kMaxLetters = 9;
  while (word_end < begin + kMaxLetters && IsLetter(CharAt(text, word_end))) ++word_end;
  const bool scale = begin > end && !IsAlphanumeric(CharAt(text, word_end)) &&
                     !ScaleOfWord(LowerCase(text.substr(begin, word_end - begin))).empty();
  return scale ? word_end : end;
}

bool EndsName(char c) { return IsAlphanumeric(c) || c == '_' || c == '^'; }

// Returns whether a number is a number by itself, and not part of a name, an index or a time. Units
// may follow without a space: 5kg.
bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && (EndsName(text[begin - 1]) || text[begin - 1] == '.')) return false;
  // Rejects times such as 3:30.
  if (CharAt(text, end) == ':' && IsDigit(CharAt(text, end + 1))) return false;
  if (begin > 1 && text[begin - 1] == ':' && IsDigit(text[begin - 2])) return false;
  if (CharAt(text, end) == '_' || CharAt(text, end) == '^' || IsDigit(CharAt(text, end))) {
    return false;
  }
  size_t letters = end;
  // A run of letters longer than any unit is no unit.
  while (letters < end + 16 && IsLetter(CharAt(text, letters))) ++letters;
  if (letters == end) return true;
  const std::string word = LowerCase(text.substr(end, letters - end));
  return IsUnitWord(word) || word == "m" || word == "g" || word == "l" || word == "s" ||
         word == "h";
}

// Returns where the number with its sign begins. A sign after a letter, a digit or a bracket means
// subtraction, and is not part of the number.
size_t SignedBegin(std::string_view text, size_t begin) {
  size_t sign = begin;
  if (sign > 0 && text[sign - 1] == '$') --sign;
  if (sign > 0 && text[sign - 1] == '\\') --sign;
  const std::string_view before = text.substr(0, sign);
  if (before.ends_with('-')) {
    sign -= 1;
  } else if (before.ends_with(kMinus)) {
    sign -= kMinus.size();
  } else {
    return begin;
  }
  const char previous = sign > 0 ? text[sign - 1] : ' ';
  const bool subtracts = EndsName(previous) || previous == ')' || previous == '-' ||
                         previous == '}' || previous == ']';
  return subtracts ? begin : sign;
}

}  // namespace

std::string_view ScaleOfWord(std::string_view lower_case_word) {
  if (lower_case_word == "hundred") return "100";
  if (lower_case_word == "thousand") return "1000";
  if (lower_case_word == "million") return "1000000";
  if (lower_case_word == "billion") return "1000000000";
  return lower_case_word == "trillion" ? "1000000000000" : "";
}

bool IsUnitWord(std::string_view lower_case_word) {
  return std::find(std::begin(kUnits), std::end(kUnits), lower_case_word) != std::end(kUnits);
}

std::string_view UnsignedNumberAt(std::string_view text, size_t at) {
  size_t end = DigitsEnd(text, at);
  end = SkipThousands(text, at, end);
  if (CharAt(text, end) == '.' && IsDigit(CharAt(text, end + 1))) end = DigitsEnd(text, end + 1);
  if (end == at) return {};
  end = SkipExponent(text, end);
  end = SkipPowerOfTen(text, end);
  end = SkipFraction(text, at, end);
  end = SkipScale(text, end);
  const std::string_view rest = text.substr(end);
  if (rest.starts_with('%')) {
    end += 1;
  } else if (rest.starts_with("\\%")) {
    end += 2;
  }
  return text.substr(at, end - at);
}

std::string_view LeadingNumber(std::string_view text) {
  size_t at = 0;
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view skipped : {" ", "\\", "$", "*", "`", "(", "£", "€", "¥", "+"}) {
      while (text.substr(at).starts_with(skipped)) {
        at += skipped.size();
        more = true;
      }
    }
  }
  size_t digits = at;
  if (text.substr(at).starts_with('-')) digits += 1;
  if (text.substr(at).starts_with(kMinus)) digits += kMinus.size();
  while (digits > at && (CharAt(text, digits) == '$' || CharAt(text, digits) == '\\' ||
                         CharAt(text, digits) == ' ')) {
    ++digits;
  }
  const size_t plain_end = digits + UnsignedNumberAt(text, digits).size();
  if (plain_end == digits) return {};
  size_t end = SkipPower(text, plain_end);
  if (CharAt(text, end) == ':' && IsDigit(CharAt(text, end + 1))) end = DigitsEnd(text, end + 1);
  if (!StandsAlone(text, digits, end)) return {};
  return text.substr(at, end - at);
}

std::vector<std::string_view> StandaloneNumbers(std::string_view text) {
  std::vector<std::string_view> numbers;
  for (size_t at = 0; at < text.size();) {
    const bool begins = IsDigit(text[at]) || (text[at] == '.' && IsDigit(CharAt(text, at + 1)));
    if (!begins) {
      ++at;
      continue;
    }
    const size_t end = at + UnsignedNumberAt(text, at).size();
    if (StandsAlone(text, at, end)) {
      const size_t begin = SignedBegin(text, at);
      numbers.push_back(text.substr(begin, end - begin));
    }
    at = end;
  }
  return numbers;
}

}  // namespace ebb
