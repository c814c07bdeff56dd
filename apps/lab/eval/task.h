// The task that --task names.
#ifndef EBB_APPS_EVAL_TASK_H_
#define EBB_APPS_EVAL_TASK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "apps/common/options/options.h"
#include "apps/lab/lab_options.h"
#include "ebb/lab/eval.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

struct Task {
  std::vector<EvalQuestion> questions;
  // Hashes, 0 for pebble, whose problems follow from the seed.
  uint64_t fingerprint = 0;          // of the problems taken from the file
  uint64_t prompts_fingerprint = 0;  // of the prompts made of them
};
// The problems, as many as were asked for, with answers as long as was asked for. Errors: an
// unknown task or preset; those of the file.
[[nodiscard]] Result<Task> ReadTask(const EvalInput& eval, uint64_t seed);

// --workers, or where it is 0 as many as there is room for (ebb/device.h).
[[nodiscard]] int NumWorkers(const EvalInput& eval);

// Opens the model that the options name; pebble's problems are for pebble, unless another is named.
[[nodiscard]] Result<std::shared_ptr<const Model>> OpenTaskModel(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_TASK_H_
