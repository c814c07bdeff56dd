// What `ebb eval --task` names.
#ifndef EBB_CLI_EVAL_TASK_H_
#define EBB_CLI_EVAL_TASK_H_

#include <cstdint>
#include <vector>

#include "ebb/eval.h"
#include "ebb/status.h"
#include "src/cli/eval_options.h"

namespace ebb::cli {

// The problems, as many as were asked for. Errors: an unknown task; those of the file.
[[nodiscard]] Result<std::vector<EvalQuestion>> ReadTask(const EvalInput& eval, uint64_t seed);

}  // namespace ebb::cli

#endif  // EBB_CLI_EVAL_TASK_H_
