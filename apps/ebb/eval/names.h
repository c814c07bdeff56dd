// How settings are named in what people read.
#ifndef EBB_APPS_EVAL_NAMES_H_
#define EBB_APPS_EVAL_NAMES_H_

#include <string>

#include <nlohmann/json.hpp>

namespace ebb::cli {

// Whether another record of the summary differs from this one in its options alone: only then are
// they part of a name.
[[nodiscard]] bool NeedsOptions(const nlohmann::ordered_json& record,
                                const nlohmann::ordered_json& summary);

// "t0=50% evict=5% of alive" as "t0=50% of alive" and "evict=5%": settings that differ in the
// evicted share alone are one series.
struct TierNames {
  std::string series;
  std::string evicted;  // empty: no tiers
};
[[nodiscard]] TierNames SplitTiers(const std::string& tiers);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_NAMES_H_
