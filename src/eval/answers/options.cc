#include "src/eval/answers/options.h"

#include <algorithm>
#include <array>

#include "src/eval/answers/text.h"

namespace ebb {
namespace {

// How many letters there are: A to D where the options are not known.
size_t NumLetters(std::span<const std::string> options) {
  return options.empty() ? 4 : std::min<size_t>(options.size(), 26);
}

bool IsOptionLetter(char c, std::span<const std::string> options) {
  return c >= 'A' && static_cast<size_t>(c - 'A') < NumLetters(options);
}

std::string SimpleText(std::string_view text) {
  text = SkipMarkup(text);
  while (!text.empty() && (text.back() == '.' || text.back() == '$')) text.remove_suffix(1);
  while (text.starts_with('$')) text.remove_prefix(1);
  return LowerCase(Trim(text));
}

std::string LetterOfText(std::string_view text, std::span<const std::string> options) {
  const std::string wanted = SimpleText(text);
  std::string letter;
  for (size_t i = 0; i < NumLetters(options) && i < options.size(); ++i) {
    if (wanted.empty() || SimpleText(options[i]) != wanted) continue;
    if (!letter.empty()) return {};
    letter = static_cast<char>('A' + i);
  }
  return letter;
}

}  // namespace

std::string OptionOf(std::string_view sentence, std::span<const std::string> options) {
  const std::string by_text = LetterOfText(sentence, options);
  if (!by_text.empty()) return by_text;
  for (bool more = true; more;) {
    more = false;
    sentence = SkipMarkup(sentence);
    for (const std::string_view mark : {"$", "(", "[", "{", "\\text", "\\mathrm", "\\boxed", "\\(",
                                        "option", "Option", "choice", "Choice", "\"", "'"}) {
      if (!sentence.starts_with(mark)) continue;
      sentence.remove_prefix(mark.size());
      more = true;
    }
  }
  if (sentence.empty()) return {};
  const char c = sentence[0];
  if (IsOptionLetter(c, options)) {
    return sentence.size() > 1 && IsAlphanumeric(sentence[1]) ? "" : std::string(1, c);
  }
  // (c), but not "a stone".
  const char capital = static_cast<char>(c - 'a' + 'A');
  const bool marked = sentence.size() == 1 || sentence[1] == ')' || sentence[1] == '}';
  return IsLetter(c) && marked && IsOptionLetter(capital, options) ? std::string(1, capital) : "";
}

std::string LoneOption(std::string_view text, std::span<const std::string> options) {
  // One line: more would be reasoning.
  if (text.find('\n') != std::string_view::npos) return {};
  // "A cell divides": an article.
  const bool article = text.size() > 2 && text.starts_with("A ") && IsLetter(text[2]);
  return article ? LetterOfText(text, options) : OptionOf(text, options);
}

std::string LastMarkedOption(std::string_view text, std::span<const std::string> options) {
  for (size_t at = text.size(); at-- > 0;) {
    if (!IsOptionLetter(text[at], options)) continue;
    const std::string_view before = text.substr(0, at);
    const std::string_view after = text.substr(at + 1);
    if (!before.empty() && IsAlphanumeric(before.back())) continue;
    const bool named = before.ends_with("ption ") || before.ends_with("hoice ");
    if (after.starts_with(')') || (named && (after.empty() || !IsAlphanumeric(after[0])))) {
      return std::string(1, text[at]);
    }
  }
  return {};
}

}  // namespace ebb
