#include "apps/common/terminal/terminal_text.h"

#include <cstdint>
#include <optional>

#include <fmt/format.h>

namespace ebb::cli {
namespace {

constexpr std::string_view kNoCharacter = "\uFFFD";

struct Decoded {
  size_t num_bytes = 0;               // 0: the bytes end within the character
  std::optional<char32_t> character;  // nothing: the bytes are none
};

// Decodes the character that `bytes` begin with. REQUIRES: `bytes` is not empty.
Decoded Decode(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (byte(0) < 0x80) return {1, byte(0)};
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4) return {1, std::nullopt};
  char32_t character = byte(0) & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {0, std::nullopt};
    if ((byte(i) & 0xC0) != 0x80) return {i, std::nullopt};
    character = character << 6 | (byte(i) & 0x3Fu);
  }
  constexpr char32_t kSmallest[] = {0x80, 0x800, 0x10000};
  const bool is_surrogate = character >= 0xD800 && character < 0xE000;
  if (character < kSmallest[length - 2] || character > 0x10FFFF || is_surrogate) {
    return {length, std::nullopt};
  }
  return {length, character};
}

void Append(char32_t character, std::string_view bytes, std::string* shown) {
  if (!DrivesTerminal(character)) {
    shown->append(bytes);
  } else if (character < 0x80) {
    *shown += '^';
    *shown += static_cast<char>(character ^ 0x40);
  } else {
    *shown += fmt::format("<U+{:04X}>", static_cast<uint32_t>(character));
  }
}

}  // namespace

bool DrivesTerminal(char32_t character) {
  if (character < 0x20) return character != '\n' && character != '\t';
  return (character >= 0x7F && character < 0xA0) || (character >= 0x202A && character <= 0x202E) ||
         (character >= 0x2066 && character <= 0x2069);
}

std::string TerminalText::Show(std::string_view bytes) {
  pending_ += bytes;
  std::string shown;
  std::string_view left = pending_;
  while (!left.empty()) {
    const Decoded next = Decode(left);
    if (next.num_bytes == 0 || left == "\r") break;
    if (!next.character.has_value()) {
      shown += kNoCharacter;
    } else if (!left.starts_with("\r\n")) {
      Append(*next.character, left.substr(0, next.num_bytes), &shown);
    }
    left.remove_prefix(next.num_bytes);
  }
  pending_ = std::string(left);
  return shown;
}

std::string TerminalText::End() {
  std::string shown;
  if (!pending_.empty()) shown = pending_ == "\r" ? "^M" : kNoCharacter;
  pending_.clear();
  return shown;
}

std::string ShownOnTerminal(std::string_view text) {
  TerminalText shown;
  std::string all = shown.Show(text);
  return all + shown.End();
}

}  // namespace ebb::cli
