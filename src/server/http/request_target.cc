#include "src/server/http/request_target.h"

#include <algorithm>
#include <charconv>

namespace ebb::server {
namespace {

bool IsUnreserved(char c) {
  const char lower = static_cast<char>(c | 0x20);
  return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

std::string DecodeUnreserved(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    const bool is_encoded = text[i] == '%' && text.size() - i > 2 &&
                            std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    if (is_encoded && IsUnreserved(static_cast<char>(value))) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// Returns the length of the scheme with its "://"; 0 if the text does not begin with http:// or
// https://.
size_t SchemeSize(std::string_view text) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    const bool is_there = std::ranges::equal(
        text.substr(0, scheme.size()), scheme,
        [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a | 0x20 : a) == b; });
    if (is_there) return scheme.size();
  }
  return 0;
}

}  // namespace

std::optional<RequestTarget> ParseTarget(std::string_view target) {
  RequestTarget parsed;
  const size_t scheme = SchemeSize(target);
  if (scheme > 0) {
    target.remove_prefix(scheme);
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    std::string_view authority = target.substr(0, end);
    // Removes a user's name before the host ("user@"), which is not part of the host.
    if (const size_t at = authority.rfind('@'); at != std::string_view::npos) {
      authority.remove_prefix(at + 1);
    }
    if (authority.empty() || authority.starts_with(':')) return std::nullopt;
    parsed.authority = authority;
    target.remove_prefix(end);
  }
  const std::string_view path = target.substr(0, std::min(target.find('?'), target.size()));
  parsed.path = path.empty() ? "/" : DecodeUnreserved(path);
  return parsed;
}

std::string WithoutExtraSlashes(std::string_view path) {
  std::string merged;
  for (const char c : path) {
    if (c != '/' || !merged.ends_with('/')) merged += c;
  }
  if (merged.size() > 1 && merged.ends_with('/')) merged.pop_back();
  return merged;
}

}  // namespace ebb::server
