// Measures fidelity: how far the next-token distributions under a setting (a policy with its
// budget) are from those of the full cache, on given text.
//
// The text is teacher-forced, in windows. The first tokens of a window are its prompt, read at
// once; each later token is one decode step, after which the placement works as in generation. Two
// sessions of one engine, one with the full cache and one with the setting, decode the same tokens
// in lockstep, so that no distribution needs to be stored. After each decode step they are compared
// by
//   KL(full || setting) in nats; whether both have the same likeliest token; and the likelihood
//   that each gave to the text's next token, from which perplexities are computed.
//
// A policy that looks ahead (ebb/lab/foresight.h) receives its foresight from a replay: a full
// cache reads each window again before the two sessions do, which takes as long as a full cache
// takes.
//
// Intervals are block bootstraps: since neighbouring tokens resemble each other, blocks of tokens
// are drawn, not tokens. They are deterministic for a seed.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_FIDELITY_H_
#define EBB_LAB_FIDELITY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "ebb/lab/forgetting.h"
#include "ebb/lab/statistics.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

struct FidelityOptions {
  SessionOptions setting = {};
  int prompt_tokens = 64;  // at the beginning of each window
  int block_tokens = 64;   // of the bootstrap
  int resamples = 1000;
  double confidence = 0.95;
  uint64_t seed = 0;
  // Selects whether to measure also the error that evicted rows cause in each attention head
  // (forgetting.h). kMeasure keeps the setting's own queries, keys and values in memory as floats;
  // it does not work if keys are re-rotated.
  enum class Forgetting { kLeaveOut, kMeasure };
  Forgetting forgetting = Forgetting::kLeaveOut;
  const std::atomic<bool>* cancel = nullptr;
  // Is called after each decode step of both sessions, with the number of steps so far. May be
  // null.
  std::function<void(int64_t steps)> progress = {};
};

// Estimate is a value with its interval; NaN if there is no data.
struct Estimate {
  double value = 0;
  Interval interval = {};
};

struct FidelityReport {
  int64_t tokens = 0;      // compared decode steps
  int64_t not_finite = 0;  // steps left out: a logit or the KL was not finite
  int windows = 0;
  Estimate mean_kl = {};
  double max_kl = 0;
  double max_logit_difference = 0;
  Estimate top1 = {};  // share of steps with the same likeliest token
  Estimate perplexity = {};
  Estimate perplexity_full = {};
  // kv_bytes is the size of the pages of the setting's rows in all tiers, averaged over the decode
  // steps. policy_bytes is the most that its policy stores in addition at the end of a window
  // (Session::CountPolicyBytes()).
  double kv_bytes = 0;
  size_t policy_bytes = 0;
  std::optional<ForgettingReport> forgetting = {};  // set if Forgetting::kMeasure
};

// Divides a text into windows. Each begins with `prefix` (the begin-of-sequence token, if the model
// wants one) and has `window_tokens` tokens in all. The last one may be shorter; it is dropped if
// it is too short for a decode step. REQUIRES: window_tokens is greater than prompt_tokens and than
// the size of `prefix`.
[[nodiscard]] std::vector<std::vector<Token>> CutWindows(std::span<const Token> text,
                                                         std::span<const Token> prefix,
                                                         int window_tokens, int prompt_tokens);

// Measures the fidelity of a setting. Errors: no windows; a window that is not longer than the
// prompt, or longer than the context; options out of range; those of the sessions' steps;
// kCancelled.
[[nodiscard]] Result<FidelityReport> MeasureFidelity(Engine& engine,
                                                     std::span<const std::vector<Token>> windows,
                                                     const FidelityOptions& options);

}  // namespace ebb

#endif  // EBB_LAB_FIDELITY_H_
