// Reads the task that --task names.
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

// Task holds the questions of an evaluation.
struct Task {
  std::vector<EvalQuestion> questions;
  // fingerprint and prompts_fingerprint are hashes; both are 0 for pebble, whose problems follow
  // from the seed.
  uint64_t fingerprint = 0;          // of the problems taken from the file
  uint64_t prompts_fingerprint = 0;  // of the prompts made of them
};
// Returns --problems questions of the task, with answers of at most --tokens tokens. Errors: an
// unknown task or preset; those of reading the file.
[[nodiscard]] Result<Task> ReadTask(const EvalInput& eval, uint64_t seed);

// Returns --workers, or if that is 0 the number of threads that have a processor
// (AvailableProcessors() in ebb/device.h).
[[nodiscard]] int NumWorkers(const EvalInput& eval);

// Opens the model that the options name. Without -m, uses the built-in model pebble for pebble's
// problems.
[[nodiscard]] Result<std::shared_ptr<const Model>> OpenTaskModel(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_TASK_H_
