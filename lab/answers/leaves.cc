#include "lab/answers/leaves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <optional>
#include <string>

#include "lab/answers/expression.h"
#include "lab/answers/math_parts.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

constexpr double kTolerance = 1e-5;

bool Near(std::complex<double> answer, std::complex<double> reference) {
  // A few roundings of a double.
  constexpr double kRounding = 4e-15;
  const double size = std::abs(reference);
  const double allowed = std::max(kTolerance * std::min(1.0, size), kRounding * size);
  return std::abs(answer - reference) <= std::max(allowed, 1e-14);
}

// Whole numbers are the same exactly; empty: one of them is none.
std::optional<bool> SameWhole(const Value& answer, const Value& reference) {
  if (!answer.residue || !reference.residue) return {};
  // The residues tell neighbours apart, the doubles distant numbers.
  constexpr double kFar = 1e-9;
  const double difference = std::abs(answer.number - reference.number);
  return answer.residue == reference.residue &&
         difference <= kFar * std::max(1.0, std::abs(reference.number));
}

bool SameValue(MathTokens answer, bool answer_percent, MathTokens reference,
               bool reference_percent) {
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
  if (scales.size() == 1) {
    if (const auto same = SameWhole(*a[0], *r[0])) return *same;
  }
  return std::any_of(scales.begin(), scales.end(), [&](double scale) {
    for (int point = 0; point < kNumPoints; ++point) {
      if (!Near(scale * a[point]->number, r[point]->number)) return false;
    }
    return true;
  });
}

bool IsWrittenToken(const MathToken& token) {
  return token.kind == MathTokenKind::kName || token.kind == MathTokenKind::kLetters ||
         token.kind == MathTokenKind::kWord;
}

// Returns whether the letters are probably one word, and no product of variables.
bool IsOneWord(MathTokens tokens) {
  return tokens.size() == 1 &&
         (tokens[0].kind == MathTokenKind::kLetters || tokens[0].kind == MathTokenKind::kWord);
}

// "Yes", but not "AB".
bool IsWrittenAsWord(std::string_view letters) {
  return std::none_of(letters.begin() + 1, letters.end(), [](char c) { return LowerCase(c) != c; });
}

// Parentheses around a word or a letter mean nothing: (C).
std::string PlainText(MathTokens tokens) {
  if (tokens.size() > 2 && tokens.front().Is("(") && IsEnclosed(tokens)) {
    tokens = tokens.subspan(1, tokens.size() - 2);
  }
  std::string text = CanonicalText(tokens);
  // Whether letters are a word is a guess: "no".
  if (std::all_of(tokens.begin(), tokens.end(), IsWrittenToken)) std::erase(text, ' ');
  return text;
}

bool SameText(MathTokens answer, MathTokens reference) {
  const std::string a = PlainText(answer);
  const std::string r = PlainText(reference);
  if (a == r) return true;
  const auto in_text = [](const MathToken& token) { return token.in_text; };
  // Capitals tell variables apart, not words; single letters are never taken for words.
  return a.size() > 1 && std::all_of(a.begin(), a.end(), IsLetter) &&
         LowerCase(a) == LowerCase(r) &&
         (std::any_of(answer.begin(), answer.end(), in_text) ||
          std::any_of(reference.begin(), reference.end(), in_text) ||
          (IsWrittenAsWord(a) && IsWrittenAsWord(r)));
}

// 52_8 is answered by 52 too: the question asks for that base.
bool SameWithoutBase(MathTokens answer, MathTokens reference) {
  return answer.size() == 1 && reference.size() > 2 && reference[1].Is("_") &&
         answer[0].kind == MathTokenKind::kNumber && reference[0].kind == MathTokenKind::kNumber &&
         answer[0].text == reference[0].text;
}

// "5 m" and "10 m/s^2" against numbers, where no m is in question.
MathTokens WithoutLetterUnit(MathTokens answer, MathTokens reference) {
  constexpr std::string_view kUnits = "mgshL";
  const auto is_letter = [](const MathToken& t) {
    return t.kind == MathTokenKind::kName && t.text.size() == 1;
  };
  const auto is_unit = [&](const MathToken& t) {
    return (is_letter(t) && kUnits.find(t.text) != std::string_view::npos) ||
           (t.kind == MathTokenKind::kWord && IsUnitWord(t.text));
  };
  if (answer.size() < 2 || answer[0].kind != MathTokenKind::kNumber || !is_unit(answer[1]) ||
      std::any_of(reference.begin(), reference.end(), is_letter)) {
    return answer;
  }
  // Units by turns with "/", and their powers: two tokens at a time.
  for (size_t i = 2; i < answer.size(); i += 2) {
    const bool divides = answer[i].Is("/") && i + 1 < answer.size() && is_unit(answer[i + 1]);
    const bool power =
        answer[i].Is("^") && i + 1 < answer.size() && answer[i + 1].kind == MathTokenKind::kNumber;
    if (!divides && !power) return answer;
  }
  return answer.first(1);
}

}  // namespace

bool SameEquation(const std::vector<MathTokens>& answer, const std::vector<MathTokens>& reference) {
  std::optional<std::complex<double>> ratio;
  for (int point = 0; point < kNumPoints; ++point) {
    std::array<std::optional<Value>, 4> v = {Evaluate(answer[0], point), Evaluate(answer[1], point),
                                             Evaluate(reference[0], point),
                                             Evaluate(reference[1], point)};
    if (!v[0] || !v[1] || !v[2] || !v[3]) return false;
    const std::complex<double> a = v[0]->number - v[1]->number;
    const std::complex<double> r = v[2]->number - v[3]->number;
    // A point that solves either says nothing of proportion; random points never should.
    if (std::abs(a) < 1e-9 || std::abs(r) < 1e-9) return false;
    if (ratio && std::abs(*ratio - a / r) > 1e-6 * std::abs(*ratio)) return false;
    ratio = a / r;
  }
  return true;
}

bool SameLeaves(MathTokens answer, MathTokens reference) {
  const auto take_percent = [](MathTokens* tokens) {
    const bool percent = tokens->size() > 1 && tokens->back().Is("%");
    if (percent) *tokens = tokens->first(tokens->size() - 1);
    return percent;
  };
  const bool answer_percent = take_percent(&answer);
  const bool reference_percent = take_percent(&reference);
  if (SameText(answer, reference)) return true;
  if (IsOneWord(answer) && IsOneWord(reference)) return false;
  if (SameWithoutBase(answer, reference)) return true;
  return SameValue(WithoutLetterUnit(answer, reference), answer_percent, reference,
                   reference_percent);
}

}  // namespace ebb
