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

TierNames SplitTiers(const std::string& tiers) {
  const size_t begin = tiers.find("evict=");
  if (begin == std::string::npos) return {.series = tiers};
  const size_t end = std::min(tiers.find(' ', begin), tiers.size());
  // The blank before it goes with it.
  return {.series = tiers.substr(0, begin - (begin > 0 ? 1 : 0)) +
                    tiers.substr(begin > 0 ? end : std::min(end + 1, tiers.size())),
          .evicted = tiers.substr(begin, end - begin)};
}

}  // namespace ebb::cli
