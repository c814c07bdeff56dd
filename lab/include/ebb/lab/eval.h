// Evaluates settings of a cache: a model answers problems under several settings, and every answer
// is judged. Problems run in parallel, each in an engine of its own with one thread, or in batches
// of constant width, so that an answer depends neither on other problems nor on how many run at
// once.
//
// Thread safety: the same callbacks must not be used by two calls of RunEvaluation() at once.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_EVAL_H_
#define EBB_LAB_EVAL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/lab/answers.h"
#include "ebb/lossless.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

// EvalQuestion is a problem as a model is asked it.
struct EvalQuestion {
  std::string id;        // unique in its task
  std::string question;  // what the user says
  int max_tokens = 0;
  // Judges a whole text, thought included. `answer` is the part behind the thought, or empty if the
  // thought does not end. Several threads call it.
  std::function<Judgement(std::string_view text, std::string_view answer)> judge;
};

// EvalSetting is one way to run all problems. Settings that differ have labels that differ: `policy`,
// `budget`, `tiers` and `options`.
struct EvalSetting {
  std::string policy;      // as it was asked for: "h2o:heavy=64"; the scorer of tiers that evict
  std::string budget;      // "25%"; empty: none
  std::string tiers;       // "t0=50% evict=5%"; empty: none
  std::string options;     // "window=16 interval=16": what else was asked for
  uint64_t seed = 0;       // of sampling and of policies that draw lots
  EngineOptions engine;    // threads is taken as 1
  SessionOptions session;  // policy.seed is set from `seed`
  // Identifies the code of SessionOptions::make_policy, with all that its decisions depend on;
  // empty: there is none.
  std::string code;
};

// kLoopReason says that an answer ended because it repeated itself, which no FinishReason means.
inline constexpr std::string_view kLoopReason = "loop";

struct EvalAnswer {
  size_t setting = 0;
  size_t problem = 0;
  Judgement judgement;
  int prompt_tokens = 0;
  int generated_tokens = 0;
  std::string finish_reason;  // as FinishReasonName(), or kLoopReason
  std::string error;          // why, where the finish reason is an error
  size_t peak_kv_bytes = 0;   // of the pages of all tiers, at most
  double peak_tokens = 0;     // rows alive, at most; mean over layers and kv heads
  double kv_reads = 0;        // rows attended to in decode steps, summed; the same mean
  int64_t rows_evicted = 0;   // (layer, kv head, token) triples
  int decode_steps = 0;       // tokens that were decoded: the last may not be
  std::optional<LosslessReport> lossless;  // of a lossless setting
  double seconds = 0;                      // prefill included
  std::string text;                        // what the model wrote
};

enum class PromptStyle { kChat, kRaw };

struct EvaluationOptions {
  SamplingOptions sampling;  // its seed is the setting's
  PromptStyle prompt_style = PromptStyle::kChat;
  int workers = 1;
  // Sets the batch size: this many problems step together, in one engine with as many threads as
  // `workers`. If fewer problems are left, stand-ins fill the batch, so that every step has this
  // width. Must be a multiple of 4, because matrix products then compute all tokens of a step
  // alike, for every type of weights. 0: each problem steps alone. Answers equal those of other
  // widths if Engine::Step() promises so, and otherwise agree up to rounding.
  int batch = 0;
  // Skips the units before this one, which are done. Units are numbered setting by setting, problem
  // by problem.
  size_t first_unit = 0;
  // Selects one of every `num_shards` problems: the one at index `shard`.
  size_t shard = 0;
  size_t num_shards = 1;
  // Ends a text that repeats itself early: if its last 3 periods of up to this many tokens are
  // equal and together at least 192 tokens long. 0: never.
  int longest_loop = 128;
  const std::atomic<bool>* cancel = nullptr;
  // Receives answers in the order of the units, on one thread at a time. An error ends the
  // evaluation.
  std::function<Status(const EvalAnswer&)> on_answer;
};

// Returns the number of units of one shard.
[[nodiscard]] size_t NumUnits(size_t num_settings, size_t num_problems, size_t shard,
                              size_t num_shards);

// Checks that a setting's problems can be answered in batches of this width. Errors:
// InvalidArgument if the width is no multiple of 4, if the setting has caps in bytes, which
// problems would share, or if it is lossless.
[[nodiscard]] Status CheckBatch(const EvalSetting& setting, int width);

// Runs every setting over every problem. If caps or the budget do not allow a request, its answer
// holds the error and the evaluation continues. Errors: kCancelled; those of on_answer; settings
// with which no session can be opened; those of CheckBatch().
[[nodiscard]] Status RunEvaluation(std::shared_ptr<const Model> model,
                                   std::span<const EvalQuestion> problems,
                                   std::span<const EvalSetting> settings,
                                   const EvaluationOptions& options);

// Returns the first `count` problems of pebble's list of `seed`; see ebb/lab/pebble.h.
[[nodiscard]] std::vector<EvalQuestion> PebbleProblems(uint64_t seed, int count);

// Returns whether the end of `tokens` repeats itself; see EvaluationOptions::longest_loop.
[[nodiscard]] bool EndsInLoop(std::span<const Token> tokens, int longest_loop);

}  // namespace ebb

#endif  // EBB_LAB_EVAL_H_
