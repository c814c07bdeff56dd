// Reads the options that name a task.
#ifndef EBB_APPS_LAB_EVAL_TASK_H_
#define EBB_APPS_LAB_EVAL_TASK_H_

#include <memory>

#include "apps/common/options/options.h"
#include "apps/lab/lab_options.h"
#include "ebb/lab/eval_run.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// Returns which questions --task, --problems, --prompt-preset and --tokens ask for.
[[nodiscard]] EvalTaskRequest TaskRequest(const CliOptions& options);

// Returns --workers; if it is 0, AvailableProcessors().threads (ebb/device.h).
[[nodiscard]] int NumWorkers(const EvalInput& eval);

// Opens the model given by the options. Without -m, opens the built-in model pebble if the problems
// are pebble's.
[[nodiscard]] Result<std::shared_ptr<const Model>> OpenTaskModel(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_EVAL_TASK_H_
