#include "src/store/percent_encoding.h"

#include <charconv>

#include <fmt/format.h>

#include "src/store/plain_name.h"

namespace ebb::store {

std::string PercentEncoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (IsPlainName({&c, 1}, 1, "-_")) {
      encoded.push_back(c);
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    if (text.front() != '%') {
      plain.push_back(text.front());
      text.remove_prefix(1);
      continue;
    }
    unsigned char value = 0;
    const std::string_view digits = text.substr(1, 2);
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.end()) return std::nullopt;
    plain.push_back(static_cast<char>(value));
    text.remove_prefix(3);
  }
  return plain;
}

}  // namespace ebb::store
