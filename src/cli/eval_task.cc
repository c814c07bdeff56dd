#include "src/cli/eval_task.h"

#include <fmt/format.h>

namespace ebb::cli {

Result<std::vector<EvalProblem>> ReadTask(const EvalInput& eval, uint64_t seed) {
  if (eval.task == "pebble") {
    if (eval.problems == 0) return InvalidArgument("--problems: pebble's list has no end");
    return PebbleProblems(seed, eval.problems);
  }
  return InvalidArgument(
      fmt::format("unknown task \"{}\"; expected pebble or FILE.jsonl[:FORMAT]", eval.task));
}

}  // namespace ebb::cli
