// Reads problems in the public formats.
#ifndef EBB_LAB_TASKS_TASK_FORMATS_H_
#define EBB_LAB_TASKS_TASK_FORMATS_H_

#include <cstdint>
#include <optional>

#include "ebb/lab/eval_task.h"
#include "lab/tasks/task_record.h"

namespace ebb {

// Returns the format to which the record's fields belong. An error's message names the known
// formats.
[[nodiscard]] Result<TaskFormat> RecogniseFormat(const TaskRecord& record);

// Reads a problem; nullopt: the format excludes it (another level). `shuffle` is the seed for the
// order of this problem's options.
[[nodiscard]] Result<std::optional<EvalProblem>> ReadProblem(const TaskRecord& record,
                                                             TaskFormat format, uint64_t shuffle);

}  // namespace ebb

#endif  // EBB_LAB_TASKS_TASK_FORMATS_H_
