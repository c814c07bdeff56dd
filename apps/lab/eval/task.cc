#include "apps/lab/eval/task.h"

#include "apps/common/models/built_in_models.h"
#include "apps/common/setup.h"
#include "ebb/device.h"

namespace ebb::cli {

EvalTaskRequest TaskRequest(const CliOptions& options) {
  const EvalInput& eval = options.Of<EvalInput>();
  return {.task = eval.task,
          .problems = eval.problems,
          .seed = options.seed,
          .prompt_preset = eval.prompt,
          .answer_rules = eval.answer_rules,
          .max_tokens = eval.max_tokens};
}

int NumWorkers(const EvalInput& eval) {
  return eval.workers > 0 ? eval.workers : AvailableProcessors().threads;
}

Result<std::shared_ptr<const Model>> OpenTaskModel(const CliOptions& options) {
  if (!options.model.path.empty() || options.Of<EvalInput>().task != "pebble")
    return OpenModel(options);
  CliOptions with_pebble = options;
  with_pebble.model.path = std::string(kPebbleName);
  return OpenModel(with_pebble);
}

}  // namespace ebb::cli
