// How many answers were right, for who waits at the terminal: ebb.report computes intervals, tests
// and costs from the folder.
#ifndef EBB_APPS_LAB_EVAL_COUNTS_H_
#define EBB_APPS_LAB_EVAL_COUNTS_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// Writes a record for each setting of the results, seeds put together, in the order of the answers:
// its names, the numbers of answers and of right ones, and how others failed. A table; JSON with
// --json.
[[nodiscard]] Status WriteCounts(const std::vector<nlohmann::ordered_json>& results,
                                 const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_EVAL_COUNTS_H_
