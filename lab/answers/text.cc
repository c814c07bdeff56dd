#include "lab/answers/text.h"

namespace ebb {

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = LowerCase(c);
  return lower;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view SkipMarkup(std::string_view text) {
  const auto is_markup = [](char c) { return c == '*' || c == '_' || c == '`' || IsSpace(c); };
  while (!text.empty() && is_markup(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_markup(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace ebb
