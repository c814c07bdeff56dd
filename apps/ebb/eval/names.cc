#include "apps/ebb/eval/names.h"

#include <algorithm>

namespace ebb::cli {

using Json = nlohmann::ordered_json;

bool NeedsOptions(const Json& record, const Json& summary) {
  return std::ranges::any_of(summary, [&](const Json& other) {
    const auto same = [&](const char* key) {
      return record.value(key, "") == other.value(key, "");
    };
    return same("policy") && same("budget") && same("tiers") && !same("options");
  });
}

}  // namespace ebb::cli
