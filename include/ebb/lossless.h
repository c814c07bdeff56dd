// Lossless generation: the visible set of the session's policy drafts a few tokens, one step over
// every row that ever was verifies them, so that the text is that of the full cache. Rows that
// the policy evicts are missing from the drafts alone.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LOSSLESS_H_
#define EBB_LOSSLESS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// The most tokens of a verifying step.
inline constexpr int kMostDrafted = 64;

struct LosslessOptions {
  // kExact: each token of a verifying step goes through the arithmetic of a decode step, so that
  // logits are the full cache's bit for bit. kFast: matrix products take all tokens at once, and
  // attention of more than 12 tokens computes in the order of a prompt, so that logits are the full
  // cache's up to rounding: about a logit with F16, BF16 and quantized weights, far less with F32.
  enum class Verify : uint8_t { kExact, kFast };
  Verify verify = Verify::kExact;
  // Tokens of a verifying step, guesses and the one before them; at most 1: nothing is drafted.
  // Between the two a draft goes on while a further guess pays, by what steps took and how many
  // guesses like it were right. With draft_min 0 all rows are read for every token where drafting
  // does not pay; from 1 on there is a guess in every step that has room for one.
  int draft_min = 0;
  int draft_max = kMostDrafted;
  // If the last tokens stood before in the text, the tokens that followed them there are guessed
  // without a draft step, while that brings more tokens a second than drafts do. Not where
  // draft_min is draft_max.
  bool looks_up = true;
};

// "exact", "fast"
[[nodiscard]] std::string_view VerifyName(LosslessOptions::Verify verify);
[[nodiscard]] Result<LosslessOptions::Verify> ParseVerify(std::string_view name);

struct Guessed {
  Token token = 0;
  // How far it was ahead of the next best one, as Sampler::margin(); below 0: unknown.
  double margin = -1;

  Guessed(Token token_in, double margin_in = -1)  // NOLINT(google-explicit-constructor)
      : token(token_in), margin(margin_in) {}
};

// The next token of a draft, from the draft's logits [vocab_size] after the tokens so far; nothing:
// the draft ends. The guesses change how fast a text comes, never the text.
using Guess = std::function<std::optional<Guessed>(std::span<const float> logits)>;

struct LosslessReport {
  int64_t drafted = 0;    // tokens that were guessed and verified
  int64_t accepted = 0;   // of them, those that became part of the text
  int64_t looked_up = 0;  // of `drafted`, those that were found in the text
  int64_t accepted_looked_up = 0;
  int64_t verify_steps = 0;  // steps over all rows, those of a single token among them
  uint64_t bytes_read = 0;   // of T1, by them
  int64_t rows_read = 0;     // by drafting and verifying steps, of all layers and kv heads
  double draft_seconds = 0;
  double verify_seconds = 0;
  double wait_seconds = 0;  // of verify_seconds, for T1's file
};
// Work between two reports of a session.
[[nodiscard]] LosslessReport Since(const LosslessReport& before, const LosslessReport& now);

}  // namespace ebb

#endif  // EBB_LOSSLESS_H_
