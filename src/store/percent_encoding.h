// Encodes texts with %XX, as in URLs, so that they can be names of files too.
#ifndef EBB_STORE_PERCENT_ENCODING_H_
#define EBB_STORE_PERCENT_ENCODING_H_

#include <optional>
#include <string>
#include <string_view>

namespace ebb::store {

// Returns the text with letters, digits, '-' and '_' unchanged and other bytes as %XX.
[[nodiscard]] std::string PercentEncoded(std::string_view text);
// Decodes %XX. Returns nullopt if two hexadecimal digits do not follow a '%'.
[[nodiscard]] std::optional<std::string> PercentDecoded(std::string_view text);

}  // namespace ebb::store

#endif  // EBB_STORE_PERCENT_ENCODING_H_
