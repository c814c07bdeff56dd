// LaTeX, and what people write instead of it, as tokens without anything that only changes looks:
// spaces, \left and \right, $, degrees, currency, thousands separators, variants of \frac, the end
// of an ordinal. "2 million" is a product, 0.\overline{3} is written out.
#ifndef EBB_LAB_ANSWERS_MATH_TOKENS_H_
#define EBB_LAB_ANSWERS_MATH_TOKENS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

enum class MathTokenKind : uint8_t {
  kNumber,    // "1234.5": digits with at most one point, perhaps an exponent "e-3"
  kName,      // a variable or a constant: "x", "pi", "infinity"
  kLetters,   // three or four in a row: a word, or a product of variables
  kWord,      // of a text: "east", lower case
  kFunction,  // "frac", "sqrt", "sin", ...
  kSymbol,    // "+", "{" of a group, "\\{" of a set, "\\\\" between rows, "<=", "pm", "begin", ...
  kOther,     // nothing that has a value
};

struct MathToken {
  MathTokenKind kind = MathTokenKind::kOther;
  std::string text = {};
  bool in_text = false;  // inside \text{} or the like

  [[nodiscard]] bool Is(std::string_view symbol) const {
    return kind == MathTokenKind::kSymbol && text == symbol;
  }
};

using MathTokens = std::span<const MathToken>;

[[nodiscard]] std::vector<MathToken> TokenizeMath(std::string_view text);

// The tokens as one text that is equal where they look equal: x^{2} and x^2.
[[nodiscard]] std::string CanonicalText(MathTokens tokens);

[[nodiscard]] bool IsUnitWord(std::string_view lower_case_word);
// The digits of 1000 for "thousand"; empty: the word is none of its kind.
[[nodiscard]] std::string_view ScaleOfWord(std::string_view lower_case_word);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_MATH_TOKENS_H_
