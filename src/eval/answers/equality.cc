#include "src/eval/answers/equality.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <optional>
#include <string>
#include <vector>

#include "ebb/answers.h"
#include "src/eval/answers/expression.h"
#include "src/eval/answers/math_parts.h"
#include "src/eval/answers/math_tokens.h"
#include "src/eval/answers/numbers.h"
#include "src/eval/answers/text.h"

namespace ebb {
namespace {

constexpr double kTolerance = 1e-5;
constexpr int kMaxNesting = 16;
// Unordered lists are matched one by one, each with each.
constexpr size_t kMaxUnordered = 64;

using Value = std::complex<double>;

bool Near(Value answer, Value reference) {
  const double size = std::abs(reference);
  const double allowed = std::max(kTolerance * std::min(1.0, size), 1e-12 * size);
  return std::abs(answer - reference) <= std::max(allowed, 1e-14);
}

bool Same(MathTokens answer, MathTokens reference, int nesting);

// Without zeros that say nothing; empty: no whole number.
std::string WholeNumber(MathTokens tokens) {
  const bool negative = !tokens.empty() && tokens[0].Is("-");
  if (negative) tokens = tokens.subspan(1);
  if (tokens.size() != 1 || tokens[0].kind != MathTokenKind::kNumber ||
      !std::all_of(tokens[0].text.begin(), tokens[0].text.end(), IsDigit)) {
    return {};
  }
  const size_t begin = std::min(tokens[0].text.find_first_not_of('0'), tokens[0].text.size() - 1);
  const std::string digits = tokens[0].text.substr(begin);
  return negative && digits != "0" ? "-" + digits : digits;
}

// Also where the answer or the reference is in percent.
bool SameValue(MathTokens answer, bool answer_percent, MathTokens reference,
               bool reference_percent) {
  const std::string whole = WholeNumber(answer);
  if (!whole.empty() && answer_percent == reference_percent) {
    const std::string other = WholeNumber(reference);
    if (!other.empty()) return whole == other;
  }
  // Scales under which the answer may agree, at all points.
  std::vector<double> scales = {1};
  if (answer_percent != reference_percent) scales.push_back(answer_percent ? 0.01 : 100);
  std::array<std::optional<Value>, kNumPoints> a;
  std::array<std::optional<Value>, kNumPoints> r;
  for (int point = 0; point < kNumPoints; ++point) {
    a[point] = Evaluate(answer, point);
    r[point] = a[point] ? Evaluate(reference, point) : std::nullopt;
    if (!r[point]) return false;
  }
  return std::any_of(scales.begin(), scales.end(), [&](double scale) {
    for (int point = 0; point < kNumPoints; ++point) {
      if (!Near(scale * *a[point], *r[point])) return false;
    }
    return true;
  });
}

// Equations are the same when their differences of sides are proportional.
bool SameEquation(const std::vector<MathTokens>& answer, const std::vector<MathTokens>& reference) {
  std::optional<Value> ratio;
  for (int point = 0; point < kNumPoints; ++point) {
    std::array<std::optional<Value>, 4> v = {Evaluate(answer[0], point), Evaluate(answer[1], point),
                                             Evaluate(reference[0], point),
                                             Evaluate(reference[1], point)};
    if (!v[0] || !v[1] || !v[2] || !v[3]) return false;
    const Value a = *v[0] - *v[1];
    const Value r = *v[2] - *v[3];
    // A point that solves either says nothing of proportion; random points never should.
    if (std::abs(a) < 1e-9 || std::abs(r) < 1e-9) return false;
    if (ratio && std::abs(*ratio - a / r) > 1e-6 * std::abs(*ratio)) return false;
    ratio = a / r;
  }
  return true;
}

std::vector<std::vector<MathToken>> WithReadings(const std::vector<MathTokens>& parts) {
  std::vector<std::vector<MathToken>> all;
  for (const MathTokens part : parts) {
    for (std::vector<MathToken>& reading : ReadingsOfSigns(part)) all.push_back(std::move(reading));
  }
  return all;
}

bool SameUnordered(const std::vector<std::vector<MathToken>>& answer,
                   const std::vector<std::vector<MathToken>>& reference, int nesting) {
  if (answer.size() != reference.size() || answer.size() > kMaxUnordered) return false;
  std::vector<bool> used(reference.size());
  for (const std::vector<MathToken>& part : answer) {
    size_t match = 0;
    while (match < reference.size() && (used[match] || !Same(part, reference[match], nesting))) {
      ++match;
    }
    if (match == reference.size()) return false;
    used[match] = true;
  }
  return true;
}

bool SameOrdered(const std::vector<MathTokens>& answer, const std::vector<MathTokens>& reference,
                 int nesting) {
  return answer.size() == reference.size() &&
         std::equal(answer.begin(), answer.end(), reference.begin(),
                    [&](MathTokens a, MathTokens r) { return Same(a, r, nesting); });
}

// Sets, and what is listed without braces. Empty: it is no list.
std::vector<std::vector<MathToken>> Elements(MathTokens tokens) {
  const bool is_set = tokens.size() > 2 && tokens.front().Is("\\{") && IsEnclosed(tokens);
  if (is_set) tokens = tokens.subspan(1, tokens.size() - 2);
  const std::vector<MathTokens> parts = SplitAt(tokens, {",", ";"});
  const bool plus_minus = std::any_of(tokens.begin(), tokens.end(), [](const MathToken& token) {
    return token.Is("pm") || token.Is("mp");
  });
  if (!is_set && parts.size() < 2 && (!plus_minus || IsEnclosed(tokens))) return {};
  return WithReadings(parts);
}

std::optional<bool> SameLists(MathTokens answer, MathTokens reference, int nesting) {
  std::vector<std::vector<MathToken>> a = Elements(answer);
  std::vector<std::vector<MathToken>> r = Elements(reference);
  if (a.empty() && r.empty()) return {};
  if (a.empty()) a.assign(1, {answer.begin(), answer.end()});
  if (r.empty()) r.assign(1, {reference.begin(), reference.end()});
  return SameUnordered(a, r, nesting);
}

std::optional<bool> SameMatrices(MathTokens answer, MathTokens reference, int nesting) {
  const auto is_matrix = [](MathTokens t) { return IsEnclosed(t) && t.front().Is("begin"); };
  if (!is_matrix(answer) && !is_matrix(reference)) return {};
  if (!is_matrix(answer) || !is_matrix(reference)) return false;
  const auto rows_of = [](MathTokens tokens) {
    std::vector<MathTokens> rows = SplitAt(tokens.subspan(1, tokens.size() - 2), {"\\\\"});
    if (rows.back().empty()) rows.pop_back();
    return rows;
  };
  const std::vector<MathTokens> a = rows_of(answer);
  const std::vector<MathTokens> r = rows_of(reference);
  if (a.size() != r.size()) return false;
  for (size_t row = 0; row < a.size(); ++row) {
    if (!SameOrdered(SplitAt(a[row], {"&"}), SplitAt(r[row], {"&"}), nesting)) return false;
  }
  return true;
}

// Tuples and intervals: their brackets count.
std::optional<bool> SameTuples(MathTokens answer, MathTokens reference, int nesting) {
  const auto parts_of = [](MathTokens tokens) {
    if (!IsEnclosed(tokens)) return std::vector<MathTokens>();
    std::vector<MathTokens> parts = SplitAt(tokens.subspan(1, tokens.size() - 2), {",", ";"});
    if (parts.size() < 2) parts.clear();
    return parts;
  };
  const std::vector<MathTokens> a = parts_of(answer);
  const std::vector<MathTokens> r = parts_of(reference);
  if (a.empty() && r.empty()) return {};
  return !a.empty() && !r.empty() && answer.front().text == reference.front().text &&
         answer.back().text == reference.back().text && SameOrdered(a, r, nesting);
}

// Parentheses around a word or a letter mean nothing: (C).
std::string PlainText(MathTokens tokens) {
  if (tokens.size() > 2 && tokens.front().Is("(") && IsEnclosed(tokens)) {
    tokens = tokens.subspan(1, tokens.size() - 2);
  }
  std::string text = CanonicalText(tokens);
  const bool words = std::all_of(tokens.begin(), tokens.end(), [](const MathToken& token) {
    return token.kind == MathTokenKind::kName || token.kind == MathTokenKind::kWord;
  });
  // Letters are told from words by guessing: "no".
  if (words) std::erase(text, ' ');
  return text;
}

// 52_8 is answered by 52 too: the question asks for that base.
bool SameWithoutBase(MathTokens answer, MathTokens reference) {
  return answer.size() == 1 && reference.size() > 2 && reference[1].Is("_") &&
         answer[0].kind == MathTokenKind::kNumber && reference[0].kind == MathTokenKind::kNumber &&
         answer[0].text == reference[0].text;
}

// "5 m" against 5, where no m is in question.
MathTokens WithoutLetterUnit(MathTokens answer, MathTokens reference) {
  constexpr std::string_view kUnits = "mgshL";
  const bool is_plain = std::none_of(reference.begin(), reference.end(), [](const MathToken& t) {
    return t.kind == MathTokenKind::kName && t.text.size() == 1;
  });
  if (!is_plain || answer.size() != 2 || answer[0].kind != MathTokenKind::kNumber ||
      answer[1].kind != MathTokenKind::kName || answer[1].text.size() != 1 ||
      kUnits.find(answer[1].text) == std::string_view::npos) {
    return answer;
  }
  return answer.first(1);
}

bool SameLeaves(MathTokens answer, MathTokens reference) {
  const auto take_percent = [](MathTokens* tokens) {
    const bool percent = tokens->size() > 1 && tokens->back().Is("%");
    if (percent) *tokens = tokens->first(tokens->size() - 1);
    return percent;
  };
  const bool answer_percent = take_percent(&answer);
  const bool reference_percent = take_percent(&reference);
  if (PlainText(answer) == PlainText(reference)) return true;
  if (SameWithoutBase(answer, reference)) return true;
  return SameValue(WithoutLetterUnit(answer, reference), answer_percent, reference,
                   reference_percent);
}

bool Same(MathTokens answer, MathTokens reference, int nesting) {
  if (++nesting > kMaxNesting) return false;
  answer = WithoutUnit(WithoutGroups(answer));
  reference = WithoutUnit(WithoutGroups(reference));
  if (answer.empty() || reference.empty()) return false;
  if (CanonicalText(answer) == CanonicalText(reference)) return true;
  if (const auto same = SameLists(answer, reference, nesting)) return *same;

  const std::vector<MathTokens> answer_sides = SplitAt(answer, {"="});
  const std::vector<MathTokens> reference_sides = SplitAt(reference, {"="});
  if (answer_sides.size() == 2 && reference_sides.size() == 2 &&
      SameEquation(answer_sides, reference_sides)) {
    return true;
  }
  if (const MathTokens value = WithoutName(answer), expected = WithoutName(reference);
      (value.size() < answer.size() && reference_sides.size() < 2) ||
      (expected.size() < reference.size() && answer_sides.size() < 2)) {
    return Same(value, expected, nesting);
  }
  if (const std::vector<MathToken> a = AsInterval(answer), r = AsInterval(reference);
      !a.empty() || !r.empty()) {
    return Same(a.empty() ? answer : MathTokens(a), r.empty() ? reference : MathTokens(r), nesting);
  }
  if (const auto same = SameMatrices(answer, reference, nesting)) return *same;
  const std::vector<MathTokens> answer_parts = SplitAt(answer, {"cup"});
  const std::vector<MathTokens> reference_parts = SplitAt(reference, {"cup"});
  if (answer_parts.size() > 1 || reference_parts.size() > 1) {
    return SameUnordered(WithReadings(answer_parts), WithReadings(reference_parts), nesting);
  }
  if (const auto same = SameTuples(answer, reference, nesting)) return *same;
  return SameLeaves(answer, reference);
}

}  // namespace

bool SameMath(std::string_view answer, std::string_view reference) {
  answer = Trim(answer);
  reference = Trim(reference);
  if (answer.empty() || reference.empty()) return false;
  if (answer == reference) return true;
  if (std::max(answer.size(), reference.size()) > kMaxAnswerBytes) return false;
  return Same(TokenizeMath(answer), TokenizeMath(reference), 0);
}

bool SameNumber(std::string_view answer, std::string_view reference) {
  if (SameMath(answer, reference)) return true;
  if (answer.size() > kMaxAnswerBytes) return false;
  const std::vector<std::string_view> numbers = StandaloneNumbers(answer);
  return numbers.size() == 1 && SameMath(numbers[0], reference);
}

bool SameWord(std::string_view answer, std::string_view reference) {
  constexpr std::array<std::string_view, 11> kNumbers = {
      "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"};
  const auto word_of = [&](std::string_view text) {
    text = SkipMarkup(text);
    while (!text.empty() && !IsAlphanumeric(text.back()) &&
           static_cast<unsigned char>(text.back()) < 0x80)
      text.remove_suffix(1);
    for (size_t i = 0; i < kNumbers.size(); ++i) {
      if (text == std::to_string(i)) return std::string(kNumbers[i]);
    }
    return LowerCase(text);
  };
  const std::string word = word_of(answer);
  return !word.empty() && word == word_of(reference);
}

}  // namespace ebb
