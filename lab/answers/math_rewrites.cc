#include "lab/answers/math_rewrites.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "lab/answers/text.h"

namespace ebb {
namespace {

bool IsWhole(const MathToken& token) {
  return token.kind == MathTokenKind::kNumber &&
         std::all_of(token.text.begin(), token.text.end(), IsDigit);
}

std::string_view OrdinalEnd(std::string_view digits) {
  if (digits.size() > 1 && digits[digits.size() - 2] == '1') return "th";
  if (digits.back() == '1') return "st";
  if (digits.back() == '2') return "nd";
  return digits.back() == '3' ? "rd" : "th";
}

// How many tokens at the beginning are the end of an ordinal: "th", "^{th}", 0 for none.
size_t OrdinalTokens(MathTokens rest, std::string_view end) {
  const auto is_at = [&](size_t at, std::string_view symbol) {
    return at < rest.size() && rest[at].Is(symbol);
  };
  size_t at = is_at(0, "^") ? 1 : 0;
  const bool group = is_at(at, "{");
  if (group) ++at;
  std::string letters;
  while (at < rest.size() && letters.size() < end.size() &&
         (rest[at].kind == MathTokenKind::kWord || rest[at].kind == MathTokenKind::kName)) {
    letters += rest[at++].text;
  }
  if (letters != end || (group && !is_at(at, "}"))) return 0;
  return group ? at + 1 : at;
}

}  // namespace

void DropDegrees(std::vector<MathToken>* tokens) {
  std::vector<MathToken> kept;
  kept.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    if (!(*tokens)[i].Is("degree")) {
      kept.push_back(std::move((*tokens)[i]));
      continue;
    }
    if (!kept.empty() && kept.back().Is("{") && i + 1 < tokens->size() &&
        (*tokens)[i + 1].Is("}")) {
      kept.pop_back();
      ++i;
    }
    if (!kept.empty() && kept.back().Is("^")) kept.pop_back();
  }
  *tokens = std::move(kept);
}

void DropOrdinalEnds(std::vector<MathToken>* tokens) {
  std::vector<MathToken> kept;
  kept.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    kept.push_back((*tokens)[i]);
    if (!IsWhole(kept.back())) continue;
    i += OrdinalTokens(MathTokens(*tokens).subspan(i + 1), OrdinalEnd(kept.back().text));
  }
  *tokens = std::move(kept);
}

void SplitFractionDigits(std::vector<MathToken>* tokens) {
  for (size_t i = 0; i + 1 < tokens->size(); ++i) {
    const MathToken number = (*tokens)[i + 1];
    if ((*tokens)[i].kind != MathTokenKind::kFunction || (*tokens)[i].text != "frac" ||
        !IsWhole(number) || number.text.size() < 2) {
      continue;
    }
    (*tokens)[i + 1].text = number.text.substr(0, 1);
    const auto place = tokens->begin() + static_cast<ptrdiff_t>(i) + 2;
    MathToken second = {MathTokenKind::kNumber, number.text.substr(1, 1), number.in_text};
    if (number.text.size() == 2) {
      tokens->insert(place, std::move(second));
    } else {
      MathToken rest = {MathTokenKind::kNumber, number.text.substr(2), number.in_text};
      tokens->insert(place, {std::move(second), std::move(rest)});
    }
  }
}

void NameEmptySets(std::vector<MathToken>* tokens) {
  for (size_t i = 0; i + 1 < tokens->size(); ++i) {
    if (!(*tokens)[i].Is("\\{") || !(*tokens)[i + 1].Is("\\}")) continue;
    (*tokens)[i] = {MathTokenKind::kName, "emptyset", (*tokens)[i].in_text};
    tokens->erase(tokens->begin() + static_cast<ptrdiff_t>(i) + 1);
  }
}

}  // namespace ebb
