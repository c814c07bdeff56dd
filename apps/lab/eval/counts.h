// Counts right answers, for a user who waits at the terminal. The Python module ebb.report computes
// intervals, tests and costs from the folder of results.
#ifndef EBB_APPS_LAB_EVAL_COUNTS_H_
#define EBB_APPS_LAB_EVAL_COUNTS_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// Writes one record for each setting in `results`, in the order in which settings first occur,
// summed over seeds: the setting's names, and how many answers there are, are right, and have
// failed in each way. Writes a table or, with --json, JSON.
[[nodiscard]] Status WriteCounts(const std::vector<nlohmann::ordered_json>& results,
                                 const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_EVAL_COUNTS_H_
