// Counts right answers for a user who waits at the terminal. The Python module ebb.report computes
// intervals, tests and costs from the folder of results.
#ifndef EBB_APPS_LAB_EVAL_COUNTS_H_
#define EBB_APPS_LAB_EVAL_COUNTS_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// Writes one record for each setting of `results`, in the order in which settings first occur, with
// all its seeds added up: the setting's names, the numbers of answers, of right answers, and of
// answers that failed in each other way. Writes a table, or JSON with --json.
[[nodiscard]] Status WriteCounts(const std::vector<nlohmann::ordered_json>& results,
                                 const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_EVAL_COUNTS_H_
