#include "lab/answers/math_parts.h"

#include <algorithm>

namespace ebb {
namespace {

// 1: opens, -1: closes, 0: neither.
int DepthChange(const MathToken& token) {
  if (token.kind != MathTokenKind::kSymbol) return 0;
  for (const std::string_view open : {"(", "[", "{", "\\{", "begin"}) {
    if (token.text == open) return 1;
  }
  for (const std::string_view close : {")", "]", "}", "\\}", "end"}) {
    if (token.text == close) return -1;
  }
  return 0;
}

bool IsWordToken(const MathToken& token) {
  return token.kind == MathTokenKind::kWord ||
         (token.in_text && token.kind == MathTokenKind::kName);
}

bool IsHalfOfDay(const MathToken& token) {
  return token.kind == MathTokenKind::kWord && (token.text == "am" || token.text == "pm");
}

bool IsUnit(const MathToken& token) {
  if (token.in_text) return IsWordToken(token);
  return token.kind == MathTokenKind::kWord && (IsUnitWord(token.text) || IsHalfOfDay(token));
}

// The tokens of "^2" or "^{2}" at the end, 0 for none.
size_t TrailingPower(MathTokens tokens) {
  const size_t n = tokens.size();
  if (n > 2 && tokens[n - 1].kind == MathTokenKind::kNumber && tokens[n - 2].Is("^")) return 2;
  if (n > 4 && tokens[n - 1].Is("}") && tokens[n - 3].Is("{") && tokens[n - 4].Is("^")) return 4;
  return 0;
}

}  // namespace

std::vector<MathTokens> SplitAt(MathTokens tokens,
                                std::initializer_list<std::string_view> symbols) {
  std::vector<MathTokens> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    depth += DepthChange(tokens[i]);
    if (depth != 0 || tokens[i].kind != MathTokenKind::kSymbol) continue;
    if (std::find(symbols.begin(), symbols.end(), tokens[i].text) == symbols.end()) continue;
    parts.push_back(tokens.subspan(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(tokens.subspan(begin));
  return parts;
}

bool IsList(MathTokens tokens) { return SplitAt(tokens, {",", ";"}).size() > 1; }

bool IsEnclosed(MathTokens tokens) {
  if (tokens.size() < 2 || DepthChange(tokens.front()) != 1) return false;
  int depth = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    depth += DepthChange(tokens[i]);
    if (depth == 0) return i + 1 == tokens.size();
  }
  return false;
}

MathTokens WithoutGroups(MathTokens tokens) {
  // How many groups surround everything: counted from inside, so that the work is linear.
  size_t groups = 0;
  while (2 * groups + 1 < tokens.size() && tokens[groups].Is("{") &&
         tokens[tokens.size() - 1 - groups].Is("}")) {
    ++groups;
  }
  size_t around = groups;
  int depth = 0;
  for (size_t i = groups; i + groups < tokens.size(); ++i) {
    depth += DepthChange(tokens[i]);
    if (depth < 0) around = std::min(around, groups - std::min<size_t>(groups, -depth));
  }
  return tokens.subspan(around, tokens.size() - 2 * around);
}

bool NameOtherHalves(MathTokens a, MathTokens b) {
  return !a.empty() && !b.empty() && IsHalfOfDay(a.back()) && IsHalfOfDay(b.back()) &&
         a.back().text != b.back().text;
}

MathTokens WithoutUnit(MathTokens tokens) {
  const size_t power = TrailingPower(tokens);
  MathTokens rest = tokens.first(tokens.size() - power);
  const size_t before = rest.size();
  while (!rest.empty() && (IsUnit(rest.back()) || (rest.size() < before && rest.back().Is("/")))) {
    rest = rest.first(rest.size() - 1);
  }
  if (rest.size() == before || rest.empty()) return tokens;
  // Words alone are an answer, not a unit.
  if (std::all_of(rest.begin(), rest.end(), IsWordToken)) return tokens;
  return rest;
}

std::vector<std::vector<MathToken>> ReadingsOfSigns(MathTokens tokens) {
  const auto is_choice = [](const MathToken& token) { return token.Is("pm") || token.Is("mp"); };
  std::vector<std::vector<MathToken>> readings(1, {tokens.begin(), tokens.end()});
  if (std::none_of(tokens.begin(), tokens.end(), is_choice)) return readings;
  readings.push_back(readings.front());
  for (size_t reading = 0; reading < readings.size(); ++reading) {
    for (MathToken& token : readings[reading]) {
      if (is_choice(token)) token.text = token.Is("pm") == (reading == 0) ? "+" : "-";
    }
  }
  return readings;
}

}  // namespace ebb
