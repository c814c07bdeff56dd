#include "apps/lab/eval/task.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "apps/common/models/built_in_models.h"
#include "apps/common/setup.h"
#include "apps/lab/lab_options.h"
#include "ebb/device.h"
#include "ebb/lab/eval_task.h"

namespace ebb::cli {
namespace {

EvalQuestion AsQuestion(const EvalProblem& problem, const TaskPrompt& prompt, AnswerRules rules) {
  return {.id = problem.id,
          .question = FormatPrompt(prompt, problem),
          .max_tokens = prompt.max_new_tokens,
          .judge = [problem, rules](std::string_view text, std::string_view answer) {
            const AnswerFormat format = {
                .kind = problem.kind, .rules = rules, .options = problem.options};
            // If the thought did not end, or the model writes none, the whole text is judged.
            return JudgeAnswer(answer.empty() ? text : answer, problem.reference, format);
          }};
}

Result<Task> ReadPebble(const EvalInput& eval, uint64_t seed) {
  if (eval.problems == 0) return InvalidArgument("--problems 0: pebble's list has no end");
  if (eval.prompt != EvalInput().prompt) {
    return InvalidArgument("--prompt-preset: pebble's problems are put in one way only");
  }
  return Task{.questions = PebbleProblems(seed, eval.problems)};
}

Result<Task> ReadFileTask(const EvalInput& eval, uint64_t seed) {
  EBB_ASSIGN_OR_RETURN(EvalTaskSource source, ParseEvalTaskSource(eval.task));
  source.shuffle_seed = seed;
  EBB_ASSIGN_OR_RETURN(const EvalTask file, ReadEvalTask(source));
  EBB_ASSIGN_OR_RETURN(const PromptPreset* preset, FindPromptPreset(eval.prompt));
  std::span<const EvalProblem> problems = file.problems;
  if (eval.problems > 0) {
    problems = problems.first(std::min(problems.size(), static_cast<size_t>(eval.problems)));
  }
  Task task = {.fingerprint = Fingerprint(problems)};
  std::vector<EvalProblem> put(problems.begin(), problems.end());
  for (EvalProblem& problem : put) {
    task.questions.push_back(AsQuestion(problem, preset->Of(file.format), preset->rules));
    problem.question = task.questions.back().question;
  }
  task.prompts_fingerprint = Fingerprint(put);
  return task;
}

}  // namespace

Result<Task> ReadTask(const EvalInput& eval, uint64_t seed) {
  EBB_ASSIGN_OR_RETURN(Task task,
                       eval.task == "pebble" ? ReadPebble(eval, seed) : ReadFileTask(eval, seed));
  if (eval.max_tokens > 0) {
    for (EvalQuestion& question : task.questions) question.max_tokens = eval.max_tokens;
  }
  return task;
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
