// Classifies ASCII characters in answers, independently of the locale.
#ifndef EBB_LAB_ANSWERS_TEXT_H_
#define EBB_LAB_ANSWERS_TEXT_H_

#include <string>
#include <string_view>

namespace ebb {

[[nodiscard]] constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }
[[nodiscard]] constexpr bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
[[nodiscard]] constexpr bool IsAlphanumeric(char c) { return IsDigit(c) || IsLetter(c); }
[[nodiscard]] constexpr bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
[[nodiscard]] constexpr char LowerCase(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

[[nodiscard]] std::string LowerCase(std::string_view text);
[[nodiscard]] std::string_view Trim(std::string_view text);
// Returns the text after `part`. REQUIRES: `part` lies within `text`.
[[nodiscard]] constexpr std::string_view Behind(std::string_view text, std::string_view part) {
  return text.substr(static_cast<size_t>(part.data() + part.size() - text.data()));
}
// Removes, at the beginning and the end, white space and Markdown's and LaTeX's marks: * _ `.
[[nodiscard]] std::string_view SkipMarkup(std::string_view text);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_TEXT_H_
