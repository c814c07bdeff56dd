// Checks names that files, headers and paths contain without encoding.
#ifndef EBB_STORE_PLAIN_NAME_H_
#define EBB_STORE_PLAIN_NAME_H_

#include <cstddef>
#include <string_view>

namespace ebb::store {

// Returns whether a text has 1 to `most` characters, all of them letters, digits or characters of
// `others`.
[[nodiscard]] inline bool IsPlainName(std::string_view text, size_t most, std::string_view others) {
  constexpr std::string_view kLettersAndDigits =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  for (const char c : text) {
    if (kLettersAndDigits.find(c) == std::string_view::npos &&
        others.find(c) == std::string_view::npos) {
      return false;
    }
  }
  return !text.empty() && text.size() <= most;
}

}  // namespace ebb::store

#endif  // EBB_STORE_PLAIN_NAME_H_
