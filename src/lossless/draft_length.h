// DraftLength decides how many tokens a lossless session drafts before it verifies them: it drafts
// on while another guess is worth its time, by the times of the last steps and the share of similar
// guesses that were right.
//
// If all earlier guesses of the run are right with probability P, a guess that is right with
// probability p adds P * p tokens on average; it costs a draft step and its share of the verifying
// step. DraftLength takes the guess if it adds more tokens than runs yield in the same time. It
// estimates p from the guess's margin, the lead of the guessed token over the next one: where the
// draft nearly took another token, the full cache often does.
//
// Every few runs DraftLength takes one guess too many, so that it keeps learning about kinds of
// guesses that it refuses. Now and then it decodes a token without a draft, so that the comparison
// with plain decoding stays up to date.
#ifndef EBB_LOSSLESS_DRAFT_LENGTH_H_
#define EBB_LOSSLESS_DRAFT_LENGTH_H_

#include <array>
#include <vector>

#include "src/base/running_mean.h"

namespace ebb {

class DraftLength {
 public:
  // `min` and `max` bound the tokens of a verifying step. With min 0 it drafts only while drafts
  // pay; with min >= 1 it drafts in every step that has room for a guess. REQUIRES: 0 <= min <=
  // max, 1 <= max.
  DraftLength(int min, int max);

  // Begins a run. Returns the most tokens of its verifying step, at most `limit` (>= 1), which
  // overrides the minimum. 1: the step has no draft.
  [[nodiscard]] int Begin(int limit);
  // Returns whether the run takes another guess with this margin (Guessed::margin). REQUIRES: the
  // run has fewer tokens than Begin() returned.
  [[nodiscard]] bool Takes(double margin);
  // Returns how many plain steps will pass before Begin() allows a draft, as far as is known.
  [[nodiscard]] int PlainStepsToDraft() const;
  // Begins a run that another control bounds, and whose times are not recorded.
  void BeginUntimed();
  // Adds a guess with this margin to such a run. Returns the probability that all of its guesses
  // are right.
  [[nodiscard]] double AddUntimed(double margin);
  // Records of such a run what Compared() does.
  void ComparedUntimed(int num_right, bool next_was_wrong);
  // Records the time of a step of one token without a draft.
  void PlainStep(double seconds);
  void DraftedStep(int num_tokens, double draft_seconds, double verify_seconds);
  // Records the time of a verifying step with tokens from a lookup instead of a draft.
  void LookedUpStep(int num_tokens, double verify_seconds);
  // Records the time of computing the logits after `num_tokens` tokens of the last step. The
  // speculator computes logits only when one of these tokens is needed.
  void LogitsStep(int num_tokens, double seconds);
  // Returns whether Rate() and VerifySeconds() have enough measurements.
  [[nodiscard]] bool KnowsSteps() const;
  // Returns tokens a second: the rate of drafts or, unless every step is drafted, that of plain
  // steps if it is higher.
  [[nodiscard]] double Rate() const;
  // Returns the expected time of a verifying step of `num_tokens` tokens, including the logits
  // after `num_taken` of them. Above 0.
  [[nodiscard]] double VerifySeconds(int num_tokens, double num_taken) const;
  // Records that `num_right` of the run's guesses were right, and whether the next one was compared
  // and wrong. Not called for a run that was abandoned.
  void Compared(int num_right, bool next_was_wrong);

 private:
  static constexpr int kMargins = 10;

  [[nodiscard]] static int MarginClass(double margin);
  [[nodiscard]] double TokensPerSecond() const {
    return run_tokens_.value() / run_seconds_.value();
  }
  // Returns the seconds for the logits of one token.
  [[nodiscard]] double LogitsSeconds() const {
    return logits_seconds_.empty() ? 0 : logits_seconds_.value();
  }
  [[nodiscard]] bool Pays() const;
  void LearnSlope(int num_tokens, double verify_seconds);

  const bool drafts_always_;
  const int min_, max_;
  std::array<RunningMean, kMargins> right_;  // share of guesses, by margin
  RunningMean plain_seconds_;                // seconds of a plain step
  RunningMean draft_seconds_;                // seconds of drafting a token
  RunningMean logits_seconds_;               // seconds of computing a token's logits
  RunningMean run_tokens_, run_seconds_;     // tokens and seconds of drafted runs
  // tokens_, seconds_, squares_ and products_ are means over verifying steps, for the regression
  // line of seconds over tokens.
  RunningMean tokens_, seconds_, squares_, products_;
  double slope_ = 0;            // slope of the regression line, in seconds per token
  int runs_ = 0;                // verifying steps so far
  bool warm_ = false;           // a first plain step was seen, and left out
  int tokens_since_plain_ = 0;  // tokens of drafted runs since the last plain step
  int plain_steps_ = 0;         // since the last draft
  int wait_ = 0;                // plain steps before a draft is tried again
  // `least_` and the members below describe the current run.
  int least_ = 1;
  bool one_too_many_ = false;  // whether the run takes one guess too many
  double all_right_ = 1;       // probability that its guesses are
  std::vector<int> margins_;   // their classes
  double last_seconds_ = 0;    // seconds of the last run, with the logits computed so far
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_DRAFT_LENGTH_H_
