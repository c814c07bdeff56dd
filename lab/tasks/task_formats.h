// The public formats of problems.
#ifndef EBB_LAB_TASKS_TASK_FORMATS_H_
#define EBB_LAB_TASKS_TASK_FORMATS_H_

#include <cstdint>
#include <optional>

#include "ebb/lab/eval_task.h"
#include "lab/tasks/task_record.h"

namespace ebb {

// An error names the known formats.
[[nodiscard]] Result<TaskFormat> RecogniseFormat(const TaskRecord& record);

// Empty: a problem that the format leaves out (another level). shuffle: of this problem's options.
[[nodiscard]] Result<std::optional<EvalProblem>> ReadProblem(const TaskRecord& record,
                                                             TaskFormat format, uint64_t shuffle);

}  // namespace ebb

#endif  // EBB_LAB_TASKS_TASK_FORMATS_H_
