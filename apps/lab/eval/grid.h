// The settings of `ebb-lab eval`: policies x budgets x settings x seeds.
#ifndef EBB_APPS_EVAL_GRID_H_
#define EBB_APPS_EVAL_GRID_H_

#include <vector>

#include <nlohmann/json.hpp>

#include "apps/common/options/options.h"
#include "ebb/lab/eval.h"
#include "ebb/status.h"

namespace ebb::cli {

// From the options, or from the file that --grid names. The policy "full" has no budget and is run
// once. Errors: unknown names and values, as the options' own; budgets beside tiers; a file that
// is no such JSON, with its place.
[[nodiscard]] Result<std::vector<EvalSetting>> MakeGrid(const CliOptions& options);

// All that decides a setting's results, for comparing runs.
[[nodiscard]] nlohmann::ordered_json SettingJson(const EvalSetting& setting);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_GRID_H_
