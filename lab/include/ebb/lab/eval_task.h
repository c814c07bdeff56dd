// Tasks: problems with reference answers, from local files of the public sets, and the prompts and
// caps with which the papers asked them. No file is shipped; none is fetched.
//
// A file is JSON lines. Of each format the field names of the copies that go around are known:
//   gsm8k         question, answer ("... #### 18")
//   math          problem, answer (or solution with a \boxed), level, unique_id: MATH, MATH-500
//   math_level_5  those of level 5 ("Level 5" or 5)
//   aime          problem or Problem or question or Question, answer or Answer (0 to 999), id or ID
//   arc           question (a text, or {stem, choices}), choices ([{label, text}] or
//                 {label: [...], text: [...]}), answerKey, id
//   gpqa          Question, Correct Answer, Incorrect Answer 1 to 3, Record ID
// Problems keep the order of the file. Other fields are ignored, blank lines too.
//
// Thread safety: free functions without state.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_EVAL_TASK_H_
#define EBB_LAB_EVAL_TASK_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/lab/answers.h"
#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

enum class TaskFormat : uint8_t { kGsm8k, kMath, kMathLevel5, kAime, kArc, kGpqa };
inline constexpr int kNumTaskFormats = 6;
[[nodiscard]] std::string_view TaskFormatName(TaskFormat format);
[[nodiscard]] AnswerKind AnswerKindOf(TaskFormat format);
// An error lists the names.
[[nodiscard]] Result<TaskFormat> FindTaskFormat(std::string_view name);

struct EvalProblem {
  // The file's own, or "line-N"; unique in a task: a repeated one ends in "#line-N".
  std::string id = {};
  std::string question = {};  // without the options
  std::string reference = {};
  AnswerKind kind = AnswerKind::kNumber;
  std::vector<std::string> options = {};  // texts of A, B, ...; kOption alone

  // The question, and the options as "A) text", a line each.
  [[nodiscard]] std::string Text() const;
};

struct EvalTask {
  TaskFormat format = TaskFormat::kGsm8k;
  std::vector<EvalProblem> problems = {};  // at least one
};

struct EvalTaskSource {
  std::string path = {};
  std::optional<TaskFormat> format = {};  // empty: recognised from the fields of the first line
  // For the order of GPQA's options, whose files name the right one first. Each problem's order
  // follows from this and its line alone.
  uint64_t shuffle_seed = 0;
};

// "FILE.jsonl" or "FILE.jsonl:gsm8k".
[[nodiscard]] Result<EvalTaskSource> ParseEvalTaskSource(std::string_view text);

// Errors name the file, the line and the field.
[[nodiscard]] Result<EvalTask> ReadEvalTask(const EvalTaskSource& source);
// As ReadEvalTask(), from a file's content.
[[nodiscard]] Result<EvalTask> ParseEvalTask(std::string_view content,
                                             const EvalTaskSource& source);

// A hash over everything in the problems, to tell tasks apart.
[[nodiscard]] uint64_t Fingerprint(std::span<const EvalProblem> problems);

// How a paper asked. What it leaves open is ours, and said so in `description`.
struct TaskPrompt {
  std::string_view text;  // "{problem}" stands for EvalProblem::Text()
  int max_new_tokens = 0;
};
struct PromptPreset {
  std::string_view name;
  std::string_view description;
  AnswerRules rules = AnswerRules::kCascade;
  std::array<TaskPrompt, kNumTaskFormats> prompts;  // by TaskFormat

  [[nodiscard]] const TaskPrompt& Of(TaskFormat format) const {
    return prompts[static_cast<size_t>(format)];
  }
};
// "plain", "hierarchy" (000), "epikv" (002), "dms" (003), "lazy_eviction" (004).
[[nodiscard]] std::span<const PromptPreset> PromptPresets();
// An error lists the names. The preset lives as long as the program.
[[nodiscard]] Result<const PromptPreset*> FindPromptPreset(std::string_view name);

// What the user says to the model, before any chat template.
[[nodiscard]] std::string FormatPrompt(const TaskPrompt& prompt, const EvalProblem& problem);

}  // namespace ebb

#endif  // EBB_LAB_EVAL_TASK_H_
