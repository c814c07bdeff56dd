// Finds the boundaries of UTF-8 characters.
#ifndef EBB_BASE_TEXT_UTF8_H_
#define EBB_BASE_TEXT_UTF8_H_

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace ebb {

// Returns whether the byte continues a character, that is, does not begin one.
inline bool ContinuesUtf8(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Returns the length in bytes of the character that begins with `first`; 0: it begins none.
inline size_t Utf8Length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  if (byte < 0xC2 || byte > 0xF4) return 0;
  return byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Returns how many bytes at the end of `text` are an incomplete character.
inline size_t IncompleteUtf8Suffix(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(text.size(), 3); ++size) {
    const char byte = text[text.size() - size];
    if (!ContinuesUtf8(byte)) return Utf8Length(byte) > size ? size : 0;
  }
  return 0;
}

// Returns the longest beginning of `text` that has at most `most` bytes and whole characters only.
inline std::string_view Utf8Prefix(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && ContinuesUtf8(text[most])) --most;
  return text.substr(0, most);
}

}  // namespace ebb

#endif  // EBB_BASE_TEXT_UTF8_H_
