#include "lab/answers/equality.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "ebb/lab/answers.h"
#include "lab/answers/formula.h"
#include "lab/answers/leaves.h"
#include "lab/answers/math_parts.h"
#include "lab/answers/math_tokens.h"
#include "lab/answers/numbers.h"
#include "lab/answers/relations.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

constexpr int kMaxNesting = 16;
// Unordered lists are matched one by one, each with each.
constexpr size_t kMaxUnordered = 64;

bool Same(MathTokens answer, MathTokens reference, int nesting);

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

// Splits a set, or a list without braces, into its elements. Empty: it is no list.
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

// Compares an equation or a named value with the value that it states, and two that name the same
// thing. Empty: they must be compared as they stand.
std::optional<bool> SameEquations(MathTokens answer, MathTokens reference, int nesting) {
  const std::vector<MathTokens> a = SidesOf(answer);
  const std::vector<MathTokens> r = SidesOf(reference);
  const MathTokens expected = WithoutName(reference);
  if (a.size() > 1 && r.size() > 1) {
    if (a.size() == 2 && r.size() == 2 && SameEquation(a, r)) return true;
    const bool same_name = CanonicalText(a.front()) == CanonicalText(r.front());
    if (same_name && Same(a.back(), r.back(), nesting)) return true;
    return {};
  }
  if (a.size() > 1) {
    const std::vector<MathTokens> values = ValuesSaid(answer);
    return std::any_of(values.begin(), values.end(),
                       [&](MathTokens value) { return Same(value, expected, nesting); });
  }
  const MathTokens value = WithoutName(answer);
  if (value.size() == answer.size() && expected.size() == reference.size()) return {};
  return Same(value, expected, nesting);
}

// Compares two sets of which one is written as a union.
std::optional<bool> SameUnions(MathTokens answer, MathTokens reference, int nesting) {
  const auto is_union = [](MathTokens tokens) {
    return !IsList(tokens) && SplitAt(tokens, {"cup"}).size() > 1;
  };
  if (!is_union(answer) && !is_union(reference)) return {};
  return SameUnordered(UnionParts(answer), UnionParts(reference), nesting);
}

bool Same(MathTokens answer, MathTokens reference, int nesting) {
  if (++nesting > kMaxNesting) return false;
  answer = WithoutGroups(answer);
  reference = WithoutGroups(reference);
  if (NameOtherHalves(answer, reference)) return false;
  answer = WithoutUnit(answer);
  reference = WithoutUnit(reference);
  if (answer.empty() || reference.empty()) return false;
  if (CanonicalText(answer) == CanonicalText(reference)) return true;
  if (const auto same = SameEquations(answer, reference, nesting)) return *same;
  if (const auto same = SameUnions(answer, reference, nesting)) return *same;
  if (const auto same = SameLists(answer, reference, nesting)) return *same;
  if (const std::vector<MathToken> a = AsInterval(answer), r = AsInterval(reference);
      !a.empty() || !r.empty()) {
    return Same(a.empty() ? answer : MathTokens(a), r.empty() ? reference : MathTokens(r), nesting);
  }
  if (const auto same = SameMatrices(answer, reference, nesting)) return *same;
  if (const auto same = SameTuples(answer, reference, nesting)) return *same;
  return SameLeaves(answer, reference);
}

// "w" of "\frac{w}{2}", "x" of "5 x", not "a" of "18 a day" nor what stands in \text{}.
bool HasVariable(std::string_view text) {
  while (!text.empty()) {
    const std::string_view word = FirstWord(text);
    if (word.size() == 1 && IsLetter(word[0]) && word != "a" && word != "A") return true;
    text = Behind(text, word);
    const bool is_text =
        word == "\\text" || word == "\\textbf" || word == "\\mathrm" || word == "\\mbox";
    if (is_text) text.remove_prefix(std::min(text.find('}'), text.size()));
  }
  return false;
}

// "8" of "L - 8", "n + 8" and "8 * n", but not of "Cost - 8 dollars".
bool IsOperand(std::string_view number, std::string_view text) {
  const std::string_view before = Trim(text.substr(0, number.data() - text.data()));
  const std::string_view behind = Trim(Behind(text, number));
  for (const std::string_view sign : {"+", "*", "/", "^", "×", "÷", "\\times", "\\cdot", "\\div"}) {
    if (before.ends_with(sign) || (sign != "/" && behind.starts_with(sign))) return true;
  }
  for (const std::string_view minus : {"-", "−"}) {
    if (!before.ends_with(minus)) continue;
    const std::string_view from = Trim(before.substr(0, before.size() - minus.size()));
    if (from.empty()) return false;
    const bool is_word =
        from.size() > 1 && IsLetter(from.back()) && IsLetter(from[from.size() - 2]);
    return !is_word;
  }
  return false;
}

}  // namespace

bool SameMath(std::string_view answer, std::string_view reference) {
  answer = Trim(answer);
  reference = Trim(reference);
  if (answer.empty() || reference.empty()) return false;
  if (answer == reference) return true;
  if (std::max(answer.size(), reference.size()) > kMaxAnswerBytes) return false;
  const std::vector<MathToken> expected = TokenizeMath(reference);
  if (Same(TokenizeMath(answer), expected, 0)) return true;
  // "12 ways", where a number is asked for.
  if (LeadingNumber(reference) != reference) return false;
  const std::string_view number = NumberBeforeWords(answer);
  return !number.empty() && Same(TokenizeMath(number), expected, 0);
}

bool SameNumber(std::string_view answer, std::string_view reference) {
  if (SameMath(answer, reference)) return true;
  if (answer.size() > kMaxAnswerBytes) return false;
  const std::vector<std::string_view> numbers = StandaloneNumbers(answer);
  return numbers.size() == 1 && !IsOperand(numbers[0], answer) && !HasVariable(answer) &&
         SameMath(numbers[0], reference);
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
