// Evaluates settings of a cache: a model answers problems under several settings, and every answer
// is judged. Problems run in parallel, each in its own engine with one thread, or in batches of
// constant width, so that an answer depends neither on other problems nor on how many run at once.
//
// Thread safety: two concurrent calls of RunEvaluation() must not use the same callbacks.
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

// EvalQuestion is a problem in the form in which a model is asked it.
struct EvalQuestion {
  std::string id;        // unique in the task
  std::string question;  // the user's message
  int max_tokens = 0;
  // Judges a whole text, with the thought. `answer` is the part after the thought; empty if the
  // thought does not end. Several threads may call it.
  std::function<Judgement(std::string_view text, std::string_view answer)> judge;
};

// EvalSetting is one way to run all problems. Settings that differ have labels that differ:
// `policy`, `budget`, `tiers` and `options`.
struct EvalSetting {
  std::string policy;      // as it was asked for: "h2o:heavy=64"; the scorer of tiers that evict
  std::string budget;      // "25%"; empty: none
  std::string tiers;       // "t0=50% evict=5%"; empty: none
  std::string options;     // the other options: "window=16 interval=16"
  uint64_t seed = 0;       // seed of sampling and of randomized policies
  EngineOptions engine;    // threads is taken as 1
  SessionOptions session;  // policy.seed is set from `seed`
  // Identifies the code of SessionOptions::make_policy, with all that its decisions depend on;
  // empty: there is none.
  std::string code;
};

// kLoopReason is the finish reason of an answer that was ended because it repeated itself; no
// FinishReason has this meaning.
inline constexpr std::string_view kLoopReason = "loop";

struct EvalAnswer {
  size_t setting = 0;
  size_t problem = 0;
  Judgement judgement;
  int prompt_tokens = 0;
  int generated_tokens = 0;
  std::string finish_reason;               // FinishReasonName(), or kLoopReason
  std::string error;                       // the cause, if the finish reason is an error
  size_t peak_kv_bytes = 0;                // maximum, pages of all tiers
  double peak_tokens = 0;                  // maximum of stored rows; mean over layers and kv heads
  double kv_reads = 0;                     // rows read in all decode steps; the same mean
  int64_t rows_evicted = 0;                // (layer, kv head, token) triples
  int decode_steps = 0;                    // tokens decoded; the last one may not be
  std::optional<LosslessReport> lossless;  // set if the setting is lossless
  double seconds = 0;                      // with prefill
  std::string text;                        // the model's text
};

enum class PromptStyle { kChat, kRaw };

struct EvaluationOptions {
  SamplingOptions sampling;  // the seed is the setting's
  PromptStyle prompt_style = PromptStyle::kChat;
  int workers = 1;
  // Holds the number of problems that step together, in one engine with `workers` threads; 0: each
  // problem steps alone. If fewer problems are left, stand-ins fill the batch, so that every step
  // has this width. It must be a multiple of 4, because matrix products then compute all tokens of
  // a step alike, for every type of weights. Answers equal those of other widths if Engine::Step()
  // promises so, and otherwise agree up to rounding.
  int batch = 0;
  // Holds the number of units to skip, because they are done. Units are numbered setting by
  // setting, problem by problem.
  size_t first_unit = 0;
  // Select every `num_shards`-th problem, beginning with index `shard`.
  size_t shard = 0;
  size_t num_shards = 1;
  // Ends a text early that repeats itself: if it ends in 3 equal periods of at most this many
  // tokens, together at least 192 tokens. 0: never.
  int longest_loop = 128;
  const std::atomic<bool>* cancel = nullptr;
  // Receives the answers in the order of units, on one thread at a time. An error ends the
  // evaluation.
  std::function<Status(const EvalAnswer&)> on_answer;
};

// Returns the number of units of one shard.
[[nodiscard]] size_t NumUnits(size_t num_settings, size_t num_problems, size_t shard,
                              size_t num_shards);

// Checks that a setting's problems can be answered in batches of this width. Errors:
// InvalidArgument (the width is no multiple of 4; the setting has caps in bytes, which problems
// would share; it is lossless).
[[nodiscard]] Status CheckBatch(const EvalSetting& setting, int width);

// Answers every problem under every setting. If a request exceeds caps or the budget, its answer
// has the error and the evaluation continues. Errors: kCancelled; those of on_answer; settings with
// which no session can be opened; those of CheckBatch().
[[nodiscard]] Status RunEvaluation(std::shared_ptr<const Model> model,
                                   std::span<const EvalQuestion> problems,
                                   std::span<const EvalSetting> settings,
                                   const EvaluationOptions& options);

// Returns the first `count` problems of pebble's list number `seed`; see ebb/lab/pebble.h.
[[nodiscard]] std::vector<EvalQuestion> PebbleProblems(uint64_t seed, int count);

// Returns whether the end of `tokens` repeats itself; see EvaluationOptions::longest_loop.
[[nodiscard]] bool EndsInLoop(std::span<const Token> tokens, int longest_loop);

}  // namespace ebb

#endif  // EBB_LAB_EVAL_H_
