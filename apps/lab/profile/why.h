// Explains for `ebb-lab profile --why` why a token lies in its tier.
#ifndef EBB_APPS_PROFILE_WHY_H_
#define EBB_APPS_PROFILE_WHY_H_

#include <string>

#include "apps/common/report.h"
#include "apps/lab/profile/run.h"
#include "ebb/types.h"

namespace ebb::cli {

// Returns the decisions about the token, one per line. groups_per_layer is 0 if a group spans all
// layers.
[[nodiscard]] std::string WhyText(const ProfiledRun& run, Position token, int groups_per_layer);
// Returns the decisions as objects with the length of the sequence at the decision, the tier and
// the reason, and if groups are smaller than all layers also layer and kv_head.
[[nodiscard]] Json WhyRecord(const ProfiledRun& run, int groups_per_layer);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_WHY_H_
