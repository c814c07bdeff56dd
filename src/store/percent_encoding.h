// Texts as %XX, as URLs have them; also for names of files.
#ifndef EBB_STORE_PERCENT_ENCODING_H_
#define EBB_STORE_PERCENT_ENCODING_H_

#include <optional>
#include <string>
#include <string_view>

namespace ebb::store {

// Letters, digits, '-' and '_' as they are, other bytes as %XX.
[[nodiscard]] std::string PercentEncoded(std::string_view text);
// Nothing: a '%' without two hexadecimal digits behind it.
[[nodiscard]] std::optional<std::string> PercentDecoded(std::string_view text);

}  // namespace ebb::store

#endif  // EBB_STORE_PERCENT_ENCODING_H_
