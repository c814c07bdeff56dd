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

// Returns --workers, or if that is 0 the number of threads that have a processor
// (AvailableProcessors() in ebb/device.h).
[[nodiscard]] int NumWorkers(const EvalInput& eval);

// Opens the model that the options name. Without -m, uses the built-in model pebble for pebble's
// problems.
[[nodiscard]] Result<std::shared_ptr<const Model>> OpenTaskModel(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_EVAL_TASK_H_
