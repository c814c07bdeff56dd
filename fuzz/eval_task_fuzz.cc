// A task's file of any bytes gives problems that hold together, or an error that says where.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "ebb/lab/eval_task.h"

namespace {

constexpr size_t kMaxInputBytes = size_t{1} << 20;

void Expect(bool holds) {
  if (!holds) std::abort();
}

void Parse(std::string_view content, std::optional<ebb::TaskFormat> format) {
  const auto task = ebb::ParseEvalTask(content, {.path = "file", .format = format});
  if (!task.ok()) {
    Expect(task.status().message().starts_with("file"));
    return;
  }
  Expect(!task->problems.empty());
  for (const ebb::EvalProblem& problem : task->problems) {
    Expect(!problem.id.empty() && !problem.reference.empty());
    Expect(problem.kind == ebb::AnswerKindOf(task->format));
    const bool is_option = problem.kind == ebb::AnswerKind::kOption;
    Expect(problem.options.empty() != is_option);
    if (is_option) {
      Expect(static_cast<size_t>(problem.reference[0] - 'A') < problem.options.size());
    }
    (void)problem.Text();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMaxInputBytes) return 0;
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  Parse(content, {});
  for (int i = 0; i < ebb::kNumTaskFormats; ++i) Parse(content, static_cast<ebb::TaskFormat>(i));
  return 0;
}
