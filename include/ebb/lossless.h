// Lossless generation is speculative decoding without a second model: the rows that the session's
// policy keeps draft a few tokens, and one step over every row of the text verifies them, so that
// the text is the full cache's. Rows that the policy evicts are missing from drafts alone.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LOSSLESS_H_
#define EBB_LOSSLESS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// kMostDrafted is the most tokens of a verifying step.
inline constexpr int kMostDrafted = 64;

// LosslessOptions configure how a lossless session drafts and verifies.
struct LosslessOptions {
  // Verify::kExact computes each token of a verifying step with the arithmetic of a decode step, so
  // that logits are the full cache's bit for bit. Verify::kFast multiplies matrices with all tokens
  // at once, and attention of more than 12 tokens adds in the order of a prompt, so that logits are
  // the full cache's up to rounding: about a logit with F16, BF16 and quantized weights, far less
  // with F32.
  enum class Verify : uint8_t { kExact, kFast };
  Verify verify = Verify::kExact;
  // draft_min and draft_max bound the tokens of a verifying step, which are the last sampled token
  // and the guesses after it; draft_max <= 1 drafts nothing. Between the two bounds the engine
  // drafts on while it expects another guess to pay, by the measured times of steps and the share
  // of similar guesses that were right. With draft_min 0 the engine stops drafting where drafting
  // does not pay and reads all rows for every token; with draft_min >= 1 it guesses in every step
  // that has room for a guess.
  int draft_min = 0;
  int draft_max = kMostDrafted;
  // Lets the engine guess by prompt lookup: if the last tokens occurred earlier in the text, it
  // guesses the tokens that followed them there, without a draft step, while that yields more
  // tokens a second than drafts do. Has no effect if draft_min equals draft_max.
  bool looks_up = true;
};

// Returns "exact" or "fast".
[[nodiscard]] std::string_view VerifyName(LosslessOptions::Verify verify);
// Parses "exact" or "fast". Errors: InvalidArgument, listing these names.
[[nodiscard]] Result<LosslessOptions::Verify> ParseVerify(std::string_view name);

// Guessed is a token that a draft proposes.
struct Guessed {
  Token token = 0;
  // Measures how far the token was ahead of the next best one (Sampler::margin()); below 0:
  // unknown.
  double margin = -1;

  Guessed(Token token_in, double margin_in = -1)  // NOLINT(google-explicit-constructor)
      : token(token_in), margin(margin_in) {}
};

// Guess chooses the next draft token from the draft's logits [vocab_size] after the tokens so far;
// it returns nothing to end the draft. Guesses change how fast a text is generated, never the text.
using Guess = std::function<std::optional<Guessed>(std::span<const float> logits)>;

// LosslessReport counts a lossless session's guesses and the work of its steps.
struct LosslessReport {
  int64_t drafted = 0;    // tokens that were guessed and verified
  int64_t accepted = 0;   // drafted tokens that became part of the text
  int64_t looked_up = 0;  // drafted tokens that came from a lookup in the text
  int64_t accepted_looked_up = 0;
  int64_t verify_steps = 0;  // steps over all rows, those of a single token among them
  uint64_t bytes_read = 0;   // bytes of T1 that verifying steps read
  int64_t rows_read = 0;     // rows of all layers and kv heads that drafting and verifying read
  double draft_seconds = 0;
  double verify_seconds = 0;
  double wait_seconds = 0;  // the part of verify_seconds spent waiting for T1's file
};
// Returns the work between two reports of a session: `now` minus `before`.
[[nodiscard]] LosslessReport Since(const LosslessReport& before, const LosslessReport& now);

// Speculation selects the source of the guesses that a session verifies together with the token
// that the caller chose (speculative decoding). Guesses change how fast a text is generated, never
// the text: Speculation is part of no session's identity.
enum class Speculation : uint8_t {
  kOff,
  kAuto,    // every source that there is
  kLookup,  // the text itself: what followed the last tokens when they occurred before
  kModel,   // EngineOptions::draft_model, a whole model
  kMtp,     // the model's own MTP layer (ModelOptions::loads_mtp)
  // EngineOptions::draft_model, a head for the model in a file of its own (ModelOptions::target).
  kEagle3,
  kAssistant,  // of a Gemma 4 model
  kDflash,
};

// kDraftSources lists the sources besides the text itself. A session has at most one of them.
inline constexpr std::array kDraftSources = {Speculation::kModel, Speculation::kMtp,
                                             Speculation::kEagle3, Speculation::kAssistant,
                                             Speculation::kDflash};

// Returns "off", "auto", "lookup", "model", "mtp", "eagle3", "assistant" or "dflash".
[[nodiscard]] std::string_view SpeculationName(Speculation speculation);
// Parses one of these names. Errors: InvalidArgument, listing them.
[[nodiscard]] Result<Speculation> ParseSpeculation(std::string_view name);

// kMostTokensWithGuesses is the most tokens of a step of a session that is not lossless: the chosen
// token and its guesses.
inline constexpr int kMostTokensWithGuesses = 16;

// SpeculationReport counts a session's guesses.
struct SpeculationReport {
  int64_t drafted = 0;       // tokens that were guessed and computed
  int64_t accepted = 0;      // drafted tokens that became part of the text
  int64_t verify_steps = 0;  // steps that computed guesses
  // Names the session's source of guesses besides the text itself; kOff: it has none. The next two
  // count those among the guesses that it made.
  Speculation draft_source = Speculation::kOff;
  int64_t drafted_by_source = 0;
  int64_t accepted_by_source = 0;
};
// Returns the counts between two reports of a session: `now` minus `before`.
[[nodiscard]] SpeculationReport Since(const SpeculationReport& before,
                                      const SpeculationReport& now);

}  // namespace ebb

#endif  // EBB_LOSSLESS_H_
