// Declares `ebb fit --list`.
#ifndef EBB_APPS_FIT_LIST_H_
#define EBB_APPS_FIT_LIST_H_

#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// Prints for each model that `ebb pull --list` names whether it fits, and with which tiers. Sizes
// are those of the file if it is on this machine, else those that Reasoners() lists. Sends no
// request.
[[nodiscard]] Status RunFitList(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_FIT_LIST_H_
