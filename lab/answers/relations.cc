#include "lab/answers/relations.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "lab/answers/math_parts.h"

namespace ebb {
namespace {

bool IsNameToken(const MathToken& token) {
  return token.kind == MathTokenKind::kName || token.kind == MathTokenKind::kLetters ||
         token.kind == MathTokenKind::kWord;
}

// x, f(x), P(-3), a_{10}, (x,y): numbers stand in an index or as an argument alone.
bool IsName(MathTokens tokens) {
  constexpr size_t kMaxTokens = 12;
  if (tokens.empty() || tokens.size() > kMaxTokens) return false;
  if (std::none_of(tokens.begin(), tokens.end(), IsNameToken)) return false;
  const bool is_tuple = tokens.front().Is("(");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (IsNameToken(tokens[i])) continue;
    const auto follows = [&](std::string_view symbol) { return i > 0 && tokens[i - 1].Is(symbol); };
    if (tokens[i].Is("-") && follows("(") && !is_tuple) continue;
    if (tokens[i].kind == MathTokenKind::kNumber) {
      const bool in_place =
          follows("_") || follows("{") || follows("(") || follows(",") || follows("-");
      if (!in_place || (is_tuple && !follows("_") && !follows("{"))) return false;
      continue;
    }
    constexpr std::string_view kSymbols = "()_{},'";
    if (tokens[i].kind != MathTokenKind::kSymbol || tokens[i].text.size() != 1 ||
        kSymbols.find(tokens[i].text[0]) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<MathTokens> SidesOf(MathTokens tokens) {
  if (IsList(tokens)) return {tokens};
  return SplitAt(tokens, {"=", "approx"});
}

MathTokens WithoutName(MathTokens tokens) {
  if (IsList(tokens)) return tokens;
  const std::vector<MathTokens> sides = SplitAt(tokens, {"=", "approx", "in"});
  if (sides.size() < 2 || sides.back().empty() || !IsName(sides.front())) return tokens;
  return sides.back();
}

std::vector<MathTokens> ValuesSaid(MathTokens tokens) {
  const std::vector<MathTokens> sides = SidesOf(tokens);
  if (sides.size() < 2 || sides.back().empty()) return {};
  std::vector<MathTokens> values = {sides.back()};
  if (tokens[tokens.size() - sides.back().size() - 1].Is("approx")) {
    values.push_back(sides[sides.size() - 2]);
  }
  return values;
}

std::vector<MathToken> AsInterval(MathTokens tokens) {
  const std::vector<MathTokens> parts = SplitAt(tokens, {"<", ">", "<=", ">="});
  if (parts.size() < 2 || parts.size() > 3) return {};
  const auto is_name = [](MathTokens part) {
    return part.size() == 1 && part[0].kind == MathTokenKind::kName;
  };
  const size_t name = is_name(parts[0]) ? 0 : 1;
  if (!is_name(parts[name]) || (name == 0 && parts.size() == 3)) return {};
  std::vector<MathToken> low = {{MathTokenKind::kSymbol, "("},
                                {MathTokenKind::kSymbol, "-"},
                                {MathTokenKind::kName, "infinity"}};
  std::vector<MathToken> high = {{MathTokenKind::kName, "infinity"}, {MathTokenKind::kSymbol, ")"}};
  const std::string& first = tokens[parts[0].size()].text;
  const std::string& last = tokens[tokens.size() - parts.back().size() - 1].text;
  // 5 < x > 3 bounds one end twice.
  if (first[0] != last[0]) return {};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i == name) continue;
    const std::string& relation = i < name ? first : last;
    const bool below = (i < name) == relation.starts_with('<');
    const bool closed = relation.ends_with('=');
    std::vector<MathToken>& end = below ? low : high;
    end.assign(parts[i].begin(), parts[i].end());
    const std::string_view bracket = below ? (closed ? "[" : "(") : (closed ? "]" : ")");
    end.insert(below ? end.begin() : end.end(), {MathTokenKind::kSymbol, std::string(bracket)});
  }
  low.push_back({MathTokenKind::kSymbol, ","});
  low.insert(low.end(), high.begin(), high.end());
  return low;
}

std::vector<std::vector<MathToken>> UnionParts(MathTokens tokens) {
  std::vector<std::vector<MathToken>> parts;
  if (!IsList(tokens)) {
    for (const MathTokens part : SplitAt(tokens, {"cup"})) {
      for (std::vector<MathToken>& reading : ReadingsOfSigns(part)) {
        parts.push_back(std::move(reading));
      }
    }
    return parts;
  }
  for (const MathTokens part : SplitAt(tokens, {",", ";"})) {
    parts.push_back(AsInterval(part));
    if (parts.back().empty()) return {{tokens.begin(), tokens.end()}};
  }
  return parts;
}

}  // namespace ebb
