// Why a token lies where it lies, for `ebb-lab profile --why`.
#ifndef EBB_APPS_PROFILE_WHY_H_
#define EBB_APPS_PROFILE_WHY_H_

#include <string>

#include "apps/common/report.h"
#include "apps/lab/profile/run.h"
#include "ebb/types.h"

namespace ebb::cli {

// Returns the decisions about the token as lines. groups_per_layer: 0 if a group is all layers.
[[nodiscard]] std::string WhyText(const ProfiledRun& run, Position token, int groups_per_layer);
// Returns them as objects: tokens of the sequence at the decision, layer and kv_head where a group
// is one, tier, why.
[[nodiscard]] Json WhyRecord(const ProfiledRun& run, int groups_per_layer);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_WHY_H_
