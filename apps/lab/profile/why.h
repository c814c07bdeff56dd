// Explains why a token is in its tier, for `ebb-lab profile --why`.
#ifndef EBB_APPS_PROFILE_WHY_H_
#define EBB_APPS_PROFILE_WHY_H_

#include <string>

#include "apps/common/report.h"
#include "apps/lab/profile/run.h"
#include "ebb/types.h"

namespace ebb::cli {

// Returns the decisions about the token, one per line. `groups_per_layer` is 0 if a group spans all
// layers.
[[nodiscard]] std::string WhyText(const ProfiledRun& run, Position token, int groups_per_layer);
// Returns the decisions about the token as JSON objects: the length of the sequence at the
// decision, the tier and the reason; also layer and kv_head if groups are smaller than all layers.
[[nodiscard]] Json WhyRecord(const ProfiledRun& run, int groups_per_layer);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_WHY_H_
