#include "lab/answers/options.h"

#include <algorithm>
#include <array>

#include "lab/answers/text.h"

namespace ebb {
namespace {

// Returns the number of option letters: 4 (A to D) if the options are not known.
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

// Returns whether the text begins with one of the words, as a whole word.
bool BeginsWithWord(std::string_view text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return text.starts_with(word) && (text.size() == word.size() || !IsLetter(text[word.size()]));
  });
}

std::string_view SkipClosers(std::string_view text) {
  while (!text.empty() && (text[0] == ')' || text[0] == ']' || text[0] == '}' || text[0] == '*' ||
                           text[0] == '$' || text[0] == '"')) {
    text.remove_prefix(1);
  }
  return text;
}

// Returns whether "A " is an article, judging by the text after it: "A type of red", not "A
// because".
bool IsArticle(std::string_view behind) {
  constexpr std::array<std::string_view, 40> kAfterLetters = {
      "because", "since", "as",   "for",   "due",   "which", "that",      "with",   "by",  "based",
      "in",      "on",    "at",   "of",    "from",  "to",    "and",       "or",     "but", "so",
      "not",     "if",    "when", "where", "while", "is",    "are",       "was",    "can", "it",
      "this",    "the",   "has",  "given", "hence", "thus",  "therefore", "rather", "we",  "I"};
  return behind.size() > 1 && behind[0] == ' ' && IsLetter(behind[1]) &&
         !BeginsWithWord(behind.substr(1), kAfterLetters);
}

// Returns whether the text after an option rejects it: "A) is wrong".
bool IsRejected(std::string_view behind) {
  constexpr std::array<std::string_view, 6> kRejections = {
      "is wrong", "is incorrect", "is not", "is false", "isn't", "is also wrong"};
  return BeginsWithWord(Trim(SkipClosers(behind).substr(0, 32)), kRejections);
}

// Returns whether the text after an option's letter names another option too: "A and B", "A, B". In
// "A, B is wrong" it does not.
bool NamesAnother(std::string_view behind, std::span<const std::string> options) {
  constexpr std::array<std::string_view, 4> kJoins = {"and", "or", "are", "both"};
  std::string_view rest = Trim(SkipClosers(behind).substr(0, 32));
  bool joined = false;
  for (const std::string_view join : {",", "/", "&", "and ", "or "}) {
    if (!rest.starts_with(join)) continue;
    joined = true;
    rest = Trim(rest.substr(join.size()));
  }
  const size_t letter = std::min(rest.find_first_not_of("*($\"["), rest.size());
  rest = rest.substr(letter);
  if (!joined || rest.empty() || !IsOptionLetter(rest[0], options)) return false;
  rest = SkipClosers(rest.substr(1));
  if (!rest.empty() && IsAlphanumeric(rest[0])) return false;
  rest = Trim(rest);
  return rest.empty() || !IsLetter(rest[0]) || BeginsWithWord(rest, kJoins);
}

// Returns whether the text before an option's letter chooses it: "it's **B", "I choose B".
bool IsChosen(std::string_view before) {
  while (!before.empty() &&
         (before.back() == '*' || before.back() == '$' || before.back() == '(')) {
    before.remove_suffix(1);
  }
  for (const std::string_view verb : {"it's ", "It's ", "it’s ", "It’s ", "it is ", "It is ",
                                      "must be ", "choose ", "pick ", "select ", "go with "}) {
    if (before.ends_with(verb)) return true;
  }
  return false;
}

// Returns whether the text before an option denies it: "not B", "Not (B".
bool IsDenied(std::string_view before) {
  if (before.ends_with('(')) before.remove_suffix(1);
  return before.ends_with("not ") || before.ends_with("Not ");
}

// Returns whether the text begins with an option's letter and its bracket: "B)", "(B)".
bool BeginsWithMarkedOption(std::string_view text, std::span<const std::string> options) {
  if (text.starts_with('(')) text.remove_prefix(1);
  return text.size() > 1 && IsOptionLetter(text[0], options) && text[1] == ')';
}

}  // namespace

std::string OptionOf(std::string_view sentence, std::span<const std::string> options) {
  const std::string by_text = LetterOfText(sentence, options);
  if (!by_text.empty()) return by_text;
  bool is_marked = false;
  for (bool more = true; more;) {
    more = false;
    sentence = SkipMarkup(sentence);
    for (const std::string_view mark : {"$", "(", "[", "{", "\\text", "\\mathrm", "\\boxed", "\\(",
                                        "option", "Option", "choice", "Choice", "\"", "'"}) {
      if (!sentence.starts_with(mark)) continue;
      sentence.remove_prefix(mark.size());
      more = true;
      is_marked = true;
    }
  }
  if (sentence.empty()) return {};
  const char c = sentence[0];
  if (IsOptionLetter(c, options)) {
    const std::string_view behind = sentence.substr(1);
    const bool is_word = !behind.empty() && IsAlphanumeric(behind[0]);
    const bool is_article = c == 'A' && !is_marked && IsArticle(behind);
    const bool is_answer =
        !is_word && !is_article && !IsRejected(behind) && !NamesAnother(behind, options);
    return is_answer ? std::string(1, c) : "";
  }
  // Accepts a small letter only with a mark: (c), but not "a stone".
  const char capital = static_cast<char>(c - 'a' + 'A');
  const bool marked = sentence.size() == 1 || sentence[1] == ')' || sentence[1] == '}';
  return IsLetter(c) && marked && IsOptionLetter(capital, options) ? std::string(1, capital) : "";
}

std::string LoneOption(std::string_view text, std::span<const std::string> options) {
  // An answer is one line; more lines would be reasoning.
  if (text.find('\n') != std::string_view::npos) return {};
  // Rejects a text that discusses several options: "A) is wrong. B) is right."
  for (size_t stop = text.find(". "); stop != std::string_view::npos;
       stop = text.find(". ", stop + 1)) {
    if (BeginsWithMarkedOption(text.substr(stop + 2), options)) return {};
  }
  // In "A cell divides", "A" is an article.
  const bool article = text.size() > 2 && text.starts_with("A ") && IsLetter(text[2]);
  return article ? LetterOfText(text, options) : OptionOf(text, options);
}

std::string LastMarkedOption(std::string_view text, std::span<const std::string> options) {
  for (size_t at = text.size(); at-- > 0;) {
    if (!IsOptionLetter(text[at], options)) continue;
    const std::string_view before = text.substr(0, at);
    const std::string_view after = text.substr(at + 1);
    if (!before.empty() && IsAlphanumeric(before.back())) continue;
    const bool is_word = !after.empty() && IsAlphanumeric(after[0]);
    if (is_word || IsRejected(after) || IsDenied(before)) {
      continue;
    }
    const bool named = before.ends_with("ption ") || before.ends_with("hoice ");
    const std::string_view behind = SkipClosers(after);
    const bool ends = behind.empty() || !IsSpace(behind[0]) || behind[0] == '\n';
    if (after.starts_with(')') || named || (ends && IsChosen(before))) {
      return std::string(1, text[at]);
    }
  }
  return {};
}

}  // namespace ebb
