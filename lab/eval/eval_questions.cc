#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ebb/lab/eval_run.h"
#include "ebb/lab/pebble.h"

namespace ebb {
namespace {

// Makes a question of a problem by the caller's own prompt and judge, where it has them.
Status Customize(const EvalTaskRequest& request, const EvalProblem& problem,
                 EvalQuestion* question) {
  if (request.prompt) {
    EBB_ASSIGN_OR_RETURN(question->question, request.prompt(problem));
  }
  if (request.judge) {
    question->judge = [problem, judge = request.judge](std::string_view text,
                                                       std::string_view answer) {
      return judge(problem, text, answer);
    };
  }
  return OkStatus();
}

Result<EvalQuestions> ReadPebble(const EvalTaskRequest& request) {
  if (request.problems <= 0) {
    return InvalidArgument("problems", "pebble's list has no end: expected a number from 1");
  }
  if (request.prompt_preset != EvalTaskRequest().prompt_preset) {
    return InvalidArgument("prompt-preset", "pebble's problems are put in one way only");
  }
  if (request.answer_rules.has_value()) {
    return InvalidArgument("answer-rules", "pebble's answers are found in one way only");
  }
  EvalQuestions task = {.questions = PebbleProblems(request.seed, request.problems)};
  if (!request.prompt && !request.judge) return task;
  std::vector<EvalProblem> asked;
  for (size_t i = 0; i < task.questions.size(); ++i) {
    EvalQuestion& question = task.questions[i];
    const PebbleProblem pebble = MakePebbleProblem(request.seed, i);
    EvalProblem problem = {.id = question.id,
                           .question = question.question,
                           .reference = pebble.answer,
                           .kind = AnswerKind::kWord};
    EBB_RETURN_IF_ERROR(Customize(request, problem, &question));
    problem.question = question.question;
    asked.push_back(std::move(problem));
  }
  task.prompts_fingerprint = Fingerprint(asked);
  return task;
}

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

Result<EvalQuestions> ReadFileTask(const EvalTaskRequest& request) {
  EBB_ASSIGN_OR_RETURN(EvalTaskSource source, ParseEvalTaskSource(request.task));
  source.shuffle_seed = request.seed;
  EBB_ASSIGN_OR_RETURN(const EvalTask file, ReadEvalTask(source));
  EBB_ASSIGN_OR_RETURN(const PromptPreset* preset, FindPromptPreset(request.prompt_preset));
  if (request.problems < 0) {
    return InvalidArgument("problems", "expected a number from 0, which means all");
  }
  std::span<const EvalProblem> problems = file.problems;
  if (request.problems > 0) {
    problems = problems.first(std::min(problems.size(), static_cast<size_t>(request.problems)));
  }
  EvalQuestions task = {.fingerprint = Fingerprint(problems)};
  std::vector<EvalProblem> asked(problems.begin(), problems.end());
  for (EvalProblem& problem : asked) {
    EvalQuestion question =
        AsQuestion(problem, preset->Of(file.format), request.answer_rules.value_or(preset->rules));
    EBB_RETURN_IF_ERROR(Customize(request, problem, &question));
    problem.question = question.question;
    task.questions.push_back(std::move(question));
  }
  task.prompts_fingerprint = Fingerprint(asked);
  return task;
}

}  // namespace

Result<EvalQuestions> ReadEvalQuestions(const EvalTaskRequest& request) {
  EBB_ASSIGN_OR_RETURN(EvalQuestions task,
                       request.task == "pebble" ? ReadPebble(request) : ReadFileTask(request));
  if (request.max_tokens < 0) {
    return InvalidArgument("max_tokens", "expected a number from 0, the task's own limit");
  }
  if (request.max_tokens > 0) {
    for (EvalQuestion& question : task.questions) question.max_tokens = request.max_tokens;
  }
  return task;
}

}  // namespace ebb
