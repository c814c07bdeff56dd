// Formats how much evicted rows change the output of attention, for people and for programs.
#ifndef EBB_APPS_FIDELITY_FORGETTING_REPORT_H_
#define EBB_APPS_FIDELITY_FORGETTING_REPORT_H_

#include <string>

#include "apps/common/report.h"
#include "ebb/lab/forgetting.h"

namespace ebb::cli {

// Returns the errors that evicted rows cause in attention's output, by layer and head, for the JSON
// record.
[[nodiscard]] Json ToJson(const ForgettingReport& report);
// Returns the errors that evicted rows cause in attention's output, by layer, as a table that
// begins with a newline.
[[nodiscard]] std::string ToText(const ForgettingReport& report);

}  // namespace ebb::cli

#endif  // EBB_APPS_FIDELITY_FORGETTING_REPORT_H_
