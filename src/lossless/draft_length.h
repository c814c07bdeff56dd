// How far a draft goes before it is verified: as far as a further guess is worth its time, by the
// times of the last steps and how often guesses like it were right.
//
// If all guesses before it are right with probability P, a guess that is right with probability p
// adds P * p tokens on average, and costs a draft step and its share of the verifying step. It is
// taken while it adds more than runs bring in the same time. Its margin predicts how likely a guess
// is right, the lead of the token that was guessed over the next one: where the draft nearly took
// another token, the full cache often does.
//
// Every few runs a guess too many is taken, so that kinds of guesses that are refused are still
// learnt about, and a token is decoded without a draft, so that the comparison with that stays
// true.
#ifndef EBB_LOSSLESS_DRAFT_LENGTH_H_
#define EBB_LOSSLESS_DRAFT_LENGTH_H_

#include <array>
#include <vector>

#include "src/lossless/running_mean.h"

namespace ebb {

class DraftLength {
 public:
  // Tokens of a verifying step. With min 0 those that do not pay are not drafted; from 1 on every
  // one is that may have a guess. REQUIRES: 0 <= min <= max, 1 <= max.
  DraftLength(int min, int max);

  // Begins a run: the most tokens that its step may have, at most `limit` (>= 1), which overrides
  // the minimum. 1: it is not drafted.
  [[nodiscard]] int Begin(int limit);
  // Whether the run takes a further guess, with the margin that Guessed has. REQUIRES: fewer than
  // Begin() said.
  [[nodiscard]] bool Takes(double margin);
  // A step of one token without a draft.
  void PlainStep(double seconds);
  void DraftedStep(int num_tokens, double draft_seconds, double verify_seconds);
  // A verifying step of tokens that were not drafted but looked up.
  void LookedUpStep(int num_tokens, double verify_seconds);
  // Logits after so many tokens of the last step, which are computed when one of them is asked for.
  void LogitsStep(int num_tokens, double seconds);
  // Whether Rate() and VerifySeconds() have measurements to go by.
  [[nodiscard]] bool KnowsSteps() const;
  // Tokens a second, the better of drafts and, unless every step is drafted, those of one token.
  [[nodiscard]] double Rate() const;
  // The expected time of a verifying step of so many tokens, with the logits after `num_taken` of
  // them: above 0.
  [[nodiscard]] double VerifySeconds(int num_tokens, double num_taken) const;
  // So many of the run's guesses were right; the one after them, if it was compared, was not. Not
  // called for a run that was given up.
  void Compared(int num_right, bool next_was_wrong);

 private:
  static constexpr int kMargins = 10;

  [[nodiscard]] static int MarginClass(double margin);
  [[nodiscard]] double TokensPerSecond() const {
    return run_tokens_.value() / run_seconds_.value();
  }
  // For the logits of one token.
  [[nodiscard]] double LogitsSeconds() const {
    return logits_seconds_.empty() ? 0 : logits_seconds_.value();
  }
  [[nodiscard]] bool Pays() const;
  void LearnSlope(int num_tokens, double verify_seconds);

  const bool drafts_always_;
  const int min_, max_;
  std::array<RunningMean, kMargins> right_;  // share of guesses, by margin
  RunningMean plain_seconds_;                // of a step
  RunningMean draft_seconds_;                // of a token
  RunningMean logits_seconds_;               // of a token
  RunningMean run_tokens_, run_seconds_;     // of drafted steps, with their drafts
  // Sums over verifying steps, for the line through them.
  RunningMean tokens_, seconds_, squares_, products_;
  double slope_ = 0;            // of that line, in seconds a token
  int runs_ = 0;                // verifying steps so far
  bool warm_ = false;           // a first plain step was seen, and left out
  int tokens_since_plain_ = 0;  // of drafted steps
  int plain_steps_ = 0;         // since the last draft
  int wait_ = 0;                // plain steps before a draft is tried again
  // For the run that goes on:
  int least_ = 1;
  bool one_too_many_ = false;  // is to be taken
  double all_right_ = 1;       // probability that its guesses are
  std::vector<int> margins_;   // their classes
  double last_seconds_ = 0;    // of the last one, with the logits that were asked for
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_DRAFT_LENGTH_H_
