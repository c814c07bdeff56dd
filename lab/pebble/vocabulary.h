// Lists the words and names of problems. Each is one token.
#ifndef EBB_LAB_PEBBLE_VOCABULARY_H_
#define EBB_LAB_PEBBLE_VOCABULARY_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace ebb::pebble {

[[nodiscard]] std::span<const std::string_view> Numbers();  // "zero" to "nine"
[[nodiscard]] std::span<const std::string_view> Names();
[[nodiscard]] std::span<const std::string_view> Rooms();
[[nodiscard]] std::span<const std::string_view> Ordinals();  // "First" to "Twentieth"
[[nodiscard]] std::span<const std::string_view> Objects();

// Returns the token of a word (without the space before it) or of a punctuation mark. REQUIRES: it
// is in the vocabulary.
[[nodiscard]] uint16_t TokenOf(std::string_view word);

}  // namespace ebb::pebble

#endif  // EBB_LAB_PEBBLE_VOCABULARY_H_
