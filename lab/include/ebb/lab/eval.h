// Evaluation: a model answers problems under several settings of its cache, and every answer is
// judged. Problems run in parallel, each by itself in an engine of its own with one thread, or in
// batches that are always as wide: what comes out depends neither on its neighbours nor on how many
// run at once.
//
// Thread safety: one call of RunEvaluation() at a time may use the same callbacks.
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

// A problem as a model is asked it.
struct EvalQuestion {
  std::string id;        // unique in its task
  std::string question;  // what the user says
  int max_tokens = 0;
  // Judges a whole text, thought included; `answer` begins where the thought ends, and is empty
  // where it does not end. Called from several threads.
  std::function<Judgement(std::string_view text, std::string_view answer)> judge;
};

// One way to run all problems.
struct EvalSetting {
  std::string policy;      // as it was asked for: "h2o:heavy=64"
  std::string budget;      // "25%"; empty: none
  std::string tiers;       // "t0=50% evict=5%"; empty: none
  std::string options;     // "window=16 interval=16": what else was asked of the policy
  uint64_t seed = 0;       // of sampling and of policies that draw lots
  EngineOptions engine;    // threads is taken as 1
  SessionOptions session;  // policy.seed is set from `seed`
};

// How an answer ended, where a FinishReason does not tell.
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
  // So many problems step together, in one engine with as many threads as there are workers; where
  // fewer are left, others stand in for them, so that every step has that width. A multiple of 4:
  // matrix products then treat all tokens of a step alike, for every type of weights. 0: each
  // problem by itself. Its answers are those of other widths where Engine::Step() says so, else up
  // to rounding.
  int batch = 0;
  // Units are numbered setting by setting, problem by problem. Those before `first_unit` are done.
  size_t first_unit = 0;
  // One of every `num_shards` problems is answered, that at `shard`.
  size_t shard = 0;
  size_t num_shards = 1;
  // A text that repeats itself is ended early: its last 3 periods of up to this many tokens are the
  // same, and together at least 192 tokens long. 0: never.
  int longest_loop = 128;
  const std::atomic<bool>* cancel = nullptr;
  // Called in the order of the units, by one thread at a time. An error ends the evaluation.
  std::function<Status(const EvalAnswer&)> on_answer;
};

// Units of one shard.
[[nodiscard]] size_t NumUnits(size_t num_settings, size_t num_problems, size_t shard,
                              size_t num_shards);

// Whether a setting's problems can be answered in batches of this width: InvalidArgument when it is
// no multiple of 4, and for settings with caps in bytes, which problems would share, or lossless.
[[nodiscard]] Status CheckBatch(const EvalSetting& setting, int width);

// Runs every setting over every problem. A request that its caps or its budget do not allow is an
// answer with an error, not the end. Errors: kCancelled; what on_answer returned; settings that no
// session opens with; those of CheckBatch().
[[nodiscard]] Status RunEvaluation(std::shared_ptr<const Model> model,
                                   std::span<const EvalQuestion> problems,
                                   std::span<const EvalSetting> settings,
                                   const EvaluationOptions& options);

// The first `count` problems of pebble's list of `seed`; see ebb/lab/pebble.h.
[[nodiscard]] std::vector<EvalQuestion> PebbleProblems(uint64_t seed, int count);

// Whether the end of `tokens` repeats itself; see EvaluationOptions::longest_loop.
[[nodiscard]] bool EndsInLoop(std::span<const Token> tokens, int longest_loop);

}  // namespace ebb

#endif  // EBB_LAB_EVAL_H_
