// Speculator runs a lossless session: the session's own sequence, the draft, guesses tokens; a
// second sequence, the store, holds every row in full precision and verifies them. If the policy
// evicts nothing and reads T1 selectively (T1Read::kSelect), one sequence is both: draft steps read
// the selected rows, verifying steps all of them, and the rows of a draft are rolled back before
// they are computed again.
//
// A run is the token that the caller chose and the guesses after it. The draft decodes them one
// step each; one step of the store computes them all, and overwrites the draft's rows. While the
// caller chooses the tokens that were guessed, Decode() only computes the logits after them, for a
// few tokens at a time. At the first other token both sequences roll back to it.
//
// Guesses may also come from the text itself (text_lookup.h). The store then computes them at once,
// and the draft follows.
//
// In steps without a draft, and in prompts, the store computes and the draft follows (Follower in
// src/sequence/step.h).
#ifndef EBB_LOSSLESS_SPECULATOR_H_
#define EBB_LOSSLESS_SPECULATOR_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/lossless.h"
#include "ebb/policy.h"
#include "src/lossless/draft_length.h"
#include "src/lossless/text_lookup.h"
#include "src/policy/tier_plan.h"
#include "src/sequence/sequence.h"
#include "src/sequence/shown_logits.h"
#include "src/sequence/step.h"
#include "src/sequence/tier_stores.h"
#include "src/step/work/signal_buffers.h"

namespace ebb {

// Returns the contents of the cache that a session's policy places rows in. A lossless session's
// cache drafts: kDraft, or kSession if it holds all rows and drafts read it selectively.
[[nodiscard]] CacheUse CacheUseOf(const SessionOptions& session);

// PolicyTiers holds the tiers that a session's policy places rows in: TiersOf() the session, or the
// tiers of a lossless session's draft.
struct PolicyTiers {
  TierSetting tiers;
  Protected protected_rows = Protected::kStay;
};
// Returns nothing if the session leaves all rows in T0. A draft (CacheUseOf() is kDraft) has no T1,
// and evicts the rows that the hierarchy would have in T1 and T3.
[[nodiscard]] std::optional<PolicyTiers> TiersOfPolicy(const EngineOptions& engine,
                                                       const SessionOptions& session);

class Speculator {
 public:
  // Creates a speculator. `draft` outlives it. Errors: options out of range, a policy that
  // re-rotates keys, tiers or a device that cannot verify.
  static Result<std::unique_ptr<Speculator>> Create(const LosslessOptions& options,
                                                    Sequence* draft);

  // Returns the sequence that computes prompts and verifies: the draft itself if it reads
  // selectively.
  [[nodiscard]] Sequence& store() const { return *store_; }
  // Returns how many verified tokens at the end of the draft the caller has not asked for yet.
  [[nodiscard]] size_t num_verified_ahead() const { return ahead_.size() - next_ahead_; }
  // Removes the verified tokens that the caller has not asked for from both sequences.
  void DiscardLookahead();

  // Checks that policy and tiers have room for a prompt of `num_tokens` tokens.
  [[nodiscard]] Status CheckPrompt(size_t num_tokens) const;
  // Returns the entry of a batch for a piece of a prompt, without its tokens.
  [[nodiscard]] Result<SequenceStep> PromptEntry();

  // Decodes as Session::Decode() does, and shows the logits.
  StepOutcome Decode(Token token, const Guess& guess, int most_guesses, ShownLogits* logits);
  // Returns whether `token` was guessed and verified, so that BeginDecode() shows its logits
  // without a step. Computes these logits if they are not computed yet. Errors: those of computing
  // logits.
  [[nodiscard]] Result<bool> HasCachedLogits(Token token);
  // Begins a decode step in a batch. Returns its entry without the token; or nothing, and shows the
  // logits, if the token was verified already. REQUIRES: EndDecode() follows a step that was taken.
  [[nodiscard]] Result<std::optional<SequenceStep>> BeginDecode(Token token, ShownLogits* logits);
  void EndDecode();
  // Rolls both sequences back. REQUIRES: num_verified_ahead() is 0; RollBack::Check() is OK.
  void TruncateTo(Position end);

  // Returns InvalidArgument if there are two sequences.
  [[nodiscard]] Status CheckT0ShareMayChange() const;
  [[nodiscard]] Status CheckMayPark() const;
  // Copies the store of `other`, from whose draft this one's draft was forked. REQUIRES: both
  // speculators have the same options; other.num_verified_ahead() is 0.
  [[nodiscard]] Status ForkFrom(const Speculator& other);
  // Completes the store after the caches and the draft's tokens were read from a file. Errors:
  // Corrupt if the store lacks the row of a token.
  [[nodiscard]] Status Resume();

  // Returns the accounting of both sequences together.
  [[nodiscard]] CacheAccounting accounting() const;
  [[nodiscard]] const LosslessReport& report() const { return report_; }
  // Describes the rows that the store keeps and how it verifies, for a session file.
  [[nodiscard]] std::string KeptRows() const;

 private:
  // Makes the draft the store if `second` is null.
  Speculator(const LosslessOptions& options, Sequence* draft, std::unique_ptr<Sequence> second);
  [[nodiscard]] bool IsOneSequence() const { return second_ == nullptr; }
  // Returns an entry in which the store computes and the draft follows the step.
  [[nodiscard]] SequenceStep FollowedEntry();
  [[nodiscard]] EngineCore& core() const { return *draft_->core(); }
  // Returns how many tokens a run may have: at most what is left of the contexts.
  [[nodiscard]] int Limit(int most_guesses) const;
  // Adds the token to the text of the lookup.
  void IndexToken(Token token);
  void TruncateIndex(Position end);
  // Returns how many guesses of the lookup are worth a run.
  [[nodiscard]] int NumLookedUp(int limit) const;
  // Returns whether the token was guessed and verified, and then shows the logits after it.
  // Otherwise discards the verified tokens.
  [[nodiscard]] Result<bool> TakeAhead(Token token, ShownLogits* logits);
  StepOutcome DecodePlainly(Token token, ShownLogits* logits);
  // Runs one run, with `num_looked_up` guesses of the lookup, or with guesses of the draft if that
  // is 0.
  Status Run(Token token, const Guess& guess, int num_tokens, int num_looked_up,
             ShownLogits* logits);
  void EndRunAt(Position begin);
  // Decodes run_.front() on the draft, and then each guess, which it adds to run_. Ends at
  // logits that are not finite.
  Status Draft(const Guess& guess, int num_tokens);
  // Computes the run, which begins at position `begin`, over all rows.
  Status Verify(Position begin);
  // Computes the logits after token `i` of the run, and usually those after the next few tokens.
  // They are checked when they are used: those after a wrong guess may not be finite.
  Status ComputeLogits(size_t i);
  // Returns the logits after token `i` of the run. REQUIRES: HasLogitsAfter(i).
  [[nodiscard]] std::span<const float> LogitsAfter(size_t i) const;
  [[nodiscard]] bool HasLogitsAfter(size_t i) const;
  void CountComparison(bool right);
  void CountVerifying(double seconds, double waited_before);
  // Records the time of computing the logits in logits_.
  void CountLogits(double seconds);

  const LosslessOptions options_;
  Sequence* const draft_;
  const std::unique_ptr<Sequence> second_;
  Sequence* const store_;  // second_, or draft_ where there is none
  const Follower draft_takes_step_, draft_takes_rows_;
  SignalBuffers store_signals_;  // signals of the store's steps for the draft's policy
  DraftLength length_;
  std::optional<TextLookup> lookup_;  // empty: unwanted, or there was no memory for it
  int looked_up_since_draft_ = 0;     // tokens that became part of the text
  LosslessReport report_;
  double waited_before_batch_ = 0;
  int without_drafts_ = 0;     // steps to come, since a cap had no room for a run
  bool is_looked_up_ = false;  // the last run
  std::vector<Token> run_;
  // Holds the verified guesses of the last run. TakeAhead() took the
  // first next_ahead_ of them.
  std::vector<Token> ahead_;
  size_t next_ahead_ = 0;
  // Holds the hidden states from which the logits after each token of the run are computed on
  // demand. All logits at once would take more memory on the CPU than a small T0, and logits after
  // a wrong guess are never read.
  std::vector<float> outputs_;  // [run, StepBackend::OutputFloats()]
  std::vector<float> logits_;   // [a few, vocab_size]
  size_t first_logits_ = 0;     // the token of the run that the first of them come after
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_SPECULATOR_H_
