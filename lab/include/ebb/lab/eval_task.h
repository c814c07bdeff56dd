// Reads tasks: problems with reference answers, from local files of the public sets, with the
// prompts and token limits of the papers. No file is shipped or downloaded.
//
// A file is JSON lines. The field names of the copies in circulation are known:
//   gsm8k         question, answer ("... #### 18")
//   math          problem, answer (or solution with a \boxed), level, unique_id: MATH, MATH-500
//   math_level_5  those of level 5 ("Level 5" or 5)
//   aime          problem or Problem or question or Question, answer or Answer (0 to 999), id or ID
//   arc           question (a text, or {stem, choices}), choices ([{label, text}] or
//                 {label: [...], text: [...]}), answerKey, id
//   gpqa          Question, Correct Answer, Incorrect Answer 1 to 3, Record ID
// Problems keep the order of the file. Other fields and blank lines are ignored.
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
// Returns the format with this name. An error's message lists the names.
[[nodiscard]] Result<TaskFormat> FindTaskFormat(std::string_view name);

struct EvalProblem {
  // Holds the file's own id, or "line-N". If an id is repeated in the task, "#line-N" is appended.
  std::string id = {};
  std::string question = {};  // without the options' texts
  std::string reference = {};
  AnswerKind kind = AnswerKind::kNumber;
  std::vector<std::string> options = {};  // texts of A, B, ...; only if kOption

  // Returns the question, then the options as "A) text", one per line.
  [[nodiscard]] std::string Text() const;
};

struct EvalTask {
  TaskFormat format = TaskFormat::kGsm8k;
  std::vector<EvalProblem> problems = {};  // at least one
};

struct EvalTaskSource {
  std::string path = {};
  std::optional<TaskFormat> format = {};  // unset: recognised by the fields of the first line
  // Holds the seed for the order of GPQA's options, whose files list the right one first. A
  // problem's order depends only on this seed and its line.
  uint64_t shuffle_seed = 0;
};

// Parses "FILE.jsonl" or "FILE.jsonl:gsm8k".
[[nodiscard]] Result<EvalTaskSource> ParseEvalTaskSource(std::string_view text);

// Reads a task from its file. Errors name the file, the line and the field.
[[nodiscard]] Result<EvalTask> ReadEvalTask(const EvalTaskSource& source);
// Parses a task from a file's content, as ReadEvalTask() does.
[[nodiscard]] Result<EvalTask> ParseEvalTask(std::string_view content,
                                             const EvalTaskSource& source);

// Returns a hash of all contents of the problems, which distinguishes tasks.
[[nodiscard]] uint64_t Fingerprint(std::span<const EvalProblem> problems);

// TaskPrompt is how a paper asked the problems of a format. If the paper does not specify a detail,
// `description` says so.
struct TaskPrompt {
  std::string_view text;  // "{problem}" is replaced by EvalProblem::Text()
  int max_new_tokens = 0;
};
struct PromptPreset {
  std::string_view name;
  std::string_view description;
  AnswerRules rules = AnswerRules::kCascade;
  std::array<TaskPrompt, kNumTaskFormats> prompts;  // [TaskFormat]

  [[nodiscard]] const TaskPrompt& Of(TaskFormat format) const {
    return prompts[static_cast<size_t>(format)];
  }
};
// Returns all presets: "plain", and for each of four papers its own: "hierarchy" ("Not All Thoughts
// Need HBM"), "epikv", "dms" ("Inference-Time Hyper-Scaling"), "lazy_eviction".
[[nodiscard]] std::span<const PromptPreset> PromptPresets();
// Returns the preset with this name, which lives as long as the program. An error's message lists
// the names.
[[nodiscard]] Result<const PromptPreset*> FindPromptPreset(std::string_view name);

// Returns the user's message to the model, without any chat template.
[[nodiscard]] std::string FormatPrompt(const TaskPrompt& prompt, const EvalProblem& problem);

}  // namespace ebb

#endif  // EBB_LAB_EVAL_TASK_H_
