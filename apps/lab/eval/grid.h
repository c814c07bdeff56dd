// Builds the settings of `ebb-lab eval`: policies x budgets x settings x seeds.
#ifndef EBB_APPS_EVAL_GRID_H_
#define EBB_APPS_EVAL_GRID_H_

#include <vector>

#include "apps/common/options/options.h"
#include "ebb/lab/eval.h"
#include "ebb/status.h"

namespace ebb::cli {

// Returns the settings to evaluate, by the options or by the file of --grid: each combination of
// policy, budget, tiers and seed, without the labels that the run gives them. The run leaves out
// settings that compute the same as another, such as "full" at several budgets, since "full" takes
// no budget. Errors: unknown names and values, as for the same command-line options; budgets
// together with tiers; a grid file that is not such JSON, naming the place.
[[nodiscard]] Result<std::vector<EvalSetting>> MakeGrid(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_GRID_H_
