#include "src/eval/answers/numbers.h"

#include <string>

#include "src/eval/answers/math_tokens.h"
#include "src/eval/answers/text.h"

namespace ebb {
namespace {

constexpr std::string_view kMinus = "−";

char CharAt(std::string_view text, size_t at) { return at < text.size() ? text[at] : '\0'; }

size_t DigitsEnd(std::string_view text, size_t at) {
  while (IsDigit(CharAt(text, at))) ++at;
  return at;
}

// Past groups of three digits: 1,234,567 and 10,\!080.
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

bool EndsName(char c) { return IsAlphanumeric(c) || c == '_' || c == '^'; }

// Units may follow without a space: 5kg.
bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && (EndsName(text[begin - 1]) || text[begin - 1] == '.')) return false;
  if (CharAt(text, end) == '_' || CharAt(text, end) == '^' || IsDigit(CharAt(text, end))) {
    return false;
  }
  size_t letters = end;
  // Longer than any unit is no unit.
  while (letters < end + 16 && IsLetter(CharAt(text, letters))) ++letters;
  if (letters == end) return true;
  const std::string word = LowerCase(text.substr(end, letters - end));
  return IsUnitWord(word) || word == "m" || word == "g" || word == "l" || word == "s" ||
         word == "h";
}

// Where the number with its sign begins: a sign after a letter, a digit or a bracket subtracts.
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

std::string_view UnsignedNumberAt(std::string_view text, size_t at) {
  size_t end = DigitsEnd(text, at);
  end = SkipThousands(text, at, end);
  if (CharAt(text, end) == '.' && IsDigit(CharAt(text, end + 1))) end = DigitsEnd(text, end + 1);
  if (end == at) return {};
  end = SkipExponent(text, end);
  if (CharAt(text, end) == '/' && IsDigit(CharAt(text, end + 1))) end = DigitsEnd(text, end + 1);
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
  const std::string_view number = UnsignedNumberAt(text, digits);
  if (number.empty() || !StandsAlone(text, digits, digits + number.size())) {
    return {};
  }
  return text.substr(at, digits + number.size() - at);
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
