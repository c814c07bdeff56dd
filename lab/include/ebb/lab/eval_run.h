// Runs evaluations whose answers are written to a folder as they come: `ebb-lab eval`, and
// ebb.eval() of the Python package.
//
// The folder holds grid.json, which describes everything that determines the answers and the
// machines that computed them; results.jsonl, a line for each answer in the order of the grid; and
// times.jsonl. A run that was stopped or killed continues after its last whole line, and then
// writes the same bytes to results.jsonl as one that was never stopped.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_EVAL_RUN_H_
#define EBB_LAB_EVAL_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/engine.h"
#include "ebb/lab/eval.h"
#include "ebb/lab/eval_task.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

// EvalTaskRequest selects the problems to ask, and their prompt.
struct EvalTaskRequest {
  std::string task = "pebble";  // or "FILE.jsonl[:FORMAT]"
  int problems = 200;           // from the first; 0: all of a file
  uint64_t seed = 0;            // seed of pebble's list, and of the order of a file's options
  std::string prompt_preset = "plain";
  std::optional<AnswerRules> answer_rules = {};  // unset: the preset's; not for pebble
  int max_tokens = 0;  // most tokens of an answer; 0: the task's own limit
  // Replaces the preset's prompt; empty: the preset. Called once for each problem.
  std::function<Result<std::string>(const EvalProblem&)> prompt;
  // Replaces the task's judge; empty: the task's. `answer` is as in EvalQuestion::judge. Called
  // from several threads.
  std::function<Judgement(const EvalProblem&, std::string_view text, std::string_view answer)>
      judge;
  std::string judge_name;  // identifies `judge` in grid.json
};

// EvalQuestions holds the questions of a task. Both fingerprints are 0 for pebble with its usual
// prompt and judge, since the seed determines its problems.
struct EvalQuestions {
  std::vector<EvalQuestion> questions;
  uint64_t fingerprint = 0;          // hash of the problems
  uint64_t prompts_fingerprint = 0;  // hash of the prompts made of the problems
};
// Errors: an unknown task or preset; those of reading the file; those of `prompt`.
[[nodiscard]] Result<EvalQuestions> ReadEvalQuestions(const EvalTaskRequest& request);

// ResultOfRun is an answer as the folder holds it.
struct ResultOfRun {
  std::string_view line;   // the line of results.jsonl, without its line end
  double seconds = 0;      // the time in times.jsonl
  size_t done = 0;         // answers so far, this one included
  size_t total = 0;        // answers that the run will have
  bool was_there = false;  // an earlier process wrote it
};

// EvalRunOptions configure a run.
struct EvalRunOptions {
  EvalTaskRequest task;
  ModelOptions model;      // that the model was loaded with
  EngineOptions engine;    // defaults of the settings
  SessionOptions session;  // defaults of the settings
  // The run sets first_unit and on_answer itself.
  EvaluationOptions evaluation;
  std::string out;      // a folder; empty: nothing is written
  bool resume = false;  // continue with the run that the folder holds
  // Lets a run continue that another version of ebb began. Answers may then differ from those that
  // one version alone would have given; grid.json names both.
  bool any_version = false;
  // Called before an answer is written; an error ends the run without it. Empty: every answer is
  // written.
  std::function<Status()> check;
  // Receives sentences for the user, such as that another kind of processor began the run.
  std::function<void(const std::string&)> on_note;
  // Receives the answers that the folder holds, then each new one when its line is written. An
  // error ends the run.
  std::function<Status(const ResultOfRun&)> on_result;
};

// Parses "I/N" into `shard` and `num_shards`. Errors: InvalidArgument.
[[nodiscard]] Status ParseShard(std::string_view text, EvaluationOptions* options);

// Runs every setting over every problem. Of a setting the caller fills in policy, budget, seed,
// engine, session and code; the run makes the labels. Settings that compute the same run once.
// Errors: those of RunEvaluation(); InvalidArgument if the folder holds another run, a run and
// `resume` is missing, or another process writes to it; Corrupt (files that are not such a run's).
// An error that ends the run leaves the written answers in the folder.
[[nodiscard]] Status RunEvaluationInFolder(const std::shared_ptr<const Model>& model,
                                           std::vector<EvalSetting> settings,
                                           const EvalRunOptions& options);

}  // namespace ebb

#endif  // EBB_LAB_EVAL_RUN_H_
