// Fidelity: how far the next-token distributions of a setting (a policy with its budget) are from
// those of the full cache, on given text.
//
// Teacher-forced and in windows. The first tokens of a window are its prompt, read at once; each
// later token is one decode step, with the placement at work as in generation. Two sessions of one
// engine, one with the full cache and one with the setting, take the same tokens in lockstep, so no
// distribution is ever stored. After each decode step they are compared:
//   KL(full || setting) in nats; whether both hold the same token likeliest; how likely each held
//   the token that follows in the text, from which perplexities come.
//
// A policy that looks ahead (ebb/lab/foresight.h) gets what a replay tells: a full cache reads each
// window once more, before the two sessions do, which takes as long again as a full cache takes.
//
// Intervals are block bootstraps: neighbouring tokens resemble each other, so blocks of tokens are
// drawn, not tokens. They are deterministic for a seed.
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
  int prompt_tokens = 64;  // of each window
  int block_tokens = 64;   // of the bootstrap
  int resamples = 1000;
  double confidence = 0.95;
  uint64_t seed = 0;
  // kMeasure: what evicted rows cost each attention head, too (forgetting.h), from the setting's
  // own queries, keys and values, which stay in memory as floats. Not for keys that are rotated
  // anew.
  enum class Forgetting { kLeaveOut, kMeasure };
  Forgetting forgetting = Forgetting::kLeaveOut;
  const std::atomic<bool>* cancel = nullptr;
  // After each decode step of both sessions, with the number so far. May be null.
  std::function<void(int64_t steps)> progress = {};
};

// NaN where nothing could be counted.
struct Estimate {
  double value = 0;
  Interval interval = {};
};

struct FidelityReport {
  int64_t tokens = 0;      // decode steps that were compared
  int64_t not_finite = 0;  // of them, left out of the means: a logit or the KL was not finite
  int windows = 0;
  Estimate mean_kl = {};
  double max_kl = 0;
  double max_logit_difference = 0;
  Estimate top1 = {};  // share of steps in which both hold the same token likeliest
  Estimate perplexity = {};
  Estimate perplexity_full = {};
  // What the setting takes: the pages of its rows in all tiers, mean over the decode steps; and
  // what its policy keeps beside them (Session::CountPolicyBytes()), at most at the end of a
  // window.
  double kv_bytes = 0;
  size_t policy_bytes = 0;
  std::optional<ForgettingReport> forgetting = {};  // where it was asked for
};

// A text as windows: each begins with `prefix` (the begin-of-sequence token, where the model wants
// one) and holds `window_tokens` tokens in all; the last may be shorter. One that is too short for
// a decode step is left out. REQUIRES: window_tokens > prompt_tokens and the size of `prefix`.
[[nodiscard]] std::vector<std::vector<Token>> CutWindows(std::span<const Token> text,
                                                         std::span<const Token> prefix,
                                                         int window_tokens, int prompt_tokens);

// Errors: no windows, or one that is not longer than the prompt or longer than the context;
// options out of range; those of the sessions' steps; kCancelled.
[[nodiscard]] Result<FidelityReport> MeasureFidelity(Engine& engine,
                                                     std::span<const std::vector<Token>> windows,
                                                     const FidelityOptions& options);

}  // namespace ebb

#endif  // EBB_LAB_FIDELITY_H_
