// The cost of forgetting, for people and for programs.
#ifndef EBB_APPS_FIDELITY_FORGETTING_REPORT_H_
#define EBB_APPS_FIDELITY_FORGETTING_REPORT_H_

#include <string>

#include "apps/common/report.h"
#include "ebb/lab/forgetting.h"

namespace ebb::cli {

[[nodiscard]] Json ToJson(const ForgettingReport& report);
// A table of layers, begun by a newline.
[[nodiscard]] std::string ToText(const ForgettingReport& report);

}  // namespace ebb::cli

#endif  // EBB_APPS_FIDELITY_FORGETTING_REPORT_H_
