#include "src/cli/eval_task.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "ebb/eval_task.h"
#include "src/cli/pebble_model.h"
#include "src/cli/setup.h"

namespace ebb::cli {
namespace {

EvalQuestion AsQuestion(const EvalProblem& problem, const TaskPrompt& prompt, AnswerRules rules) {
  return {.id = problem.id,
          .question = FormatPrompt(prompt, problem),
          .max_tokens = prompt.max_new_tokens,
          .judge = [problem, rules](std::string_view text, std::string_view answer) {
            const AnswerFormat format = {
                .kind = problem.kind, .rules = rules, .options = problem.options};
            // A thought that did not end, or a model without thoughts, is judged as a whole.
            return JudgeAnswer(answer.empty() ? text : answer, problem.reference, format);
          }};
}

Result<std::vector<EvalQuestion>> ReadProblems(const EvalInput& eval, uint64_t seed) {
  if (eval.task == "pebble") {
    if (eval.problems == 0) return InvalidArgument("--problems 0: pebble's list has no end");
    return PebbleProblems(seed, eval.problems);
  }
  EBB_ASSIGN_OR_RETURN(EvalTaskSource source, ParseEvalTaskSource(eval.task));
  source.shuffle_seed = seed;
  EBB_ASSIGN_OR_RETURN(const EvalTask task, ReadEvalTask(source));
  EBB_ASSIGN_OR_RETURN(const PromptPreset* preset, FindPromptPreset(eval.prompt));
  size_t count = task.problems.size();
  if (eval.problems > 0) count = std::min(count, static_cast<size_t>(eval.problems));
  std::vector<EvalQuestion> questions;
  for (size_t i = 0; i < count; ++i)
    questions.push_back(AsQuestion(task.problems[i], preset->Of(task.format), preset->rules));
  return questions;
}

}  // namespace

Result<std::vector<EvalQuestion>> ReadTask(const EvalInput& eval, uint64_t seed) {
  EBB_ASSIGN_OR_RETURN(std::vector<EvalQuestion> problems, ReadProblems(eval, seed));
  if (eval.max_tokens > 0) {
    for (EvalQuestion& problem : problems) problem.max_tokens = eval.max_tokens;
  }
  return problems;
}

int NumWorkers(const EvalInput& eval) {
  if (eval.workers > 0) return eval.workers;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

Result<std::shared_ptr<const Model>> OpenTaskModel(const CliOptions& options) {
  if (!options.model.path.empty() || options.eval.task != "pebble") return OpenModel(options);
  CliOptions with_pebble = options;
  with_pebble.model.path = std::string(kPebbleName);
  return OpenModel(with_pebble);
}

}  // namespace ebb::cli
