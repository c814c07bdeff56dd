#include "src/base/key_values.h"

#include <fmt/format.h>

#include <algorithm>

namespace ebb {

Result<std::vector<KeyValue>> ParseKeyValues(std::string_view text) {
  std::vector<KeyValue> parts;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    more = comma != std::string_view::npos;
    const std::string_view part = text.substr(0, comma);
    if (more) text.remove_prefix(comma + 1);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size()) {
      return InvalidArgument(fmt::format("\"{}\" is not key=value", part));
    }
    const std::string_view key = part.substr(0, equals);
    if (std::ranges::find(parts, key, &KeyValue::key) != parts.end()) {
      return InvalidArgument(fmt::format("\"{}\" is given twice", key));
    }
    parts.push_back({.key = key, .value = part.substr(equals + 1)});
  }
  return parts;
}

}  // namespace ebb
