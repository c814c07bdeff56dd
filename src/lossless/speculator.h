// The speculator of a lossless session: the session's own sequence drafts, and a second one, the
// store, holds every row in full precision and verifies. If the policy evicts nothing and reads T1
// selectively (T1Read::kSelect), one sequence is both: draft steps read the selected rows,
// verifying steps all of them, and the rows of a draft are rolled back before they are computed
// again.
//
// A run: the token that was chosen, then guesses, are decoded on the draft, one step each; one step
// of the store takes them all, and writes the draft's rows again. As long as the tokens that the
// caller chooses are those guessed, Decode() computes only the logits after them, a few tokens' at
// a time; at the first other one both sequences roll back to it.
//
// Guesses may also come from the text itself (text_lookup.h): then the store computes them at once,
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
#include "src/sequence/sequence.h"
#include "src/sequence/shown_logits.h"
#include "src/sequence/step.h"
#include "src/sequence/tier_stores.h"
#include "src/step/signal_buffers.h"

namespace ebb {

// Returns the contents of the cache that drafts: kSession if it holds all rows and reads
// selectively.
[[nodiscard]] CacheUse DraftUse(const std::optional<TierSpec>& tiers);

// Makes the draft's policy from that of the whole session: the draft does without the rows that the
// hierarchy would have in T1 and T3. REQUIRES: DraftUse() is kDraft.
[[nodiscard]] PolicySpec DraftSpec(PolicySpec spec);

class Speculator {
 public:
  // `draft` outlives it. Errors: options out of range, a policy that rotates keys again, tiers that
  // cannot verify.
  static Result<std::unique_ptr<Speculator>> Create(const LosslessOptions& options,
                                                    Sequence* draft);

  // The sequence that computes prompts and verifies: the draft itself if it reads selectively.
  [[nodiscard]] Sequence& store() const { return *store_; }
  // Tokens at the end of the draft that the caller has not asked for yet.
  [[nodiscard]] size_t num_verified_ahead() const { return ahead_.size() - next_ahead_; }
  // Removes them from both sequences.
  void DiscardLookahead();

  // Whether policy and tiers have room for a prompt of so many tokens.
  [[nodiscard]] Status CheckPrompt(size_t num_tokens) const;
  // Returns the entry of a piece of a prompt without its tokens.
  [[nodiscard]] Result<SequenceStep> PromptEntry();

  // As Session::Decode().
  StepOutcome Decode(Token token, const Guess& guess, int most_guesses, ShownLogits* logits);
  // Returns whether the logits after this token have been computed already. If so, BeginDecode()
  // shows them and cannot fail.
  [[nodiscard]] Result<bool> HasCachedLogits(Token token);
  // Begins a decode step in a batch. Returns its entry without the token, or nothing if the logits
  // after the token were computed already, which are shown now. EndDecode() follows a step that was
  // taken.
  [[nodiscard]] Result<std::optional<SequenceStep>> BeginDecode(Token token, ShownLogits* logits);
  void EndDecode();
  // Rolls both sequences back. REQUIRES: nothing is ahead; Sequence::CheckTruncateTo().
  void TruncateTo(Position end);

  // InvalidArgument if there are two sequences.
  [[nodiscard]] Status CheckT0ShareMayChange() const;
  [[nodiscard]] Status CheckMayPark() const;
  // Follows the draft, which was forked from that of `other`. REQUIRES: both were made alike, and
  // nothing of the other is ahead.
  [[nodiscard]] Status ForkFrom(const Speculator& other);
  // The caches and the draft's tokens came out of a file. Corrupt when the store has not a row for
  // every token.
  [[nodiscard]] Status Resume();

  // Counts both sequences.
  [[nodiscard]] CacheAccounting accounting() const;
  [[nodiscard]] const LosslessReport& report() const { return report_; }
  // The rows that the store keeps and how it verifies, in words for a session file.
  [[nodiscard]] std::string KeptRows() const;

 private:
  // Without a second sequence the draft is the store.
  Speculator(const LosslessOptions& options, Sequence* draft, std::unique_ptr<Sequence> second);
  [[nodiscard]] bool IsOneSequence() const { return second_ == nullptr; }
  // The store computes, the draft takes the step.
  [[nodiscard]] SequenceStep FollowedEntry();
  [[nodiscard]] EngineCore& core() const { return *draft_->core(); }
  // How many tokens a run may have: at most the rest of the contexts.
  [[nodiscard]] int Limit(int most_guesses) const;
  // Adds the token to the text in which guesses are looked up.
  void IndexToken(Token token);
  void TruncateIndex(Position end);
  // How many guesses of the text's own are worth a run.
  [[nodiscard]] int NumLookedUp(int limit) const;
  // Whether it was guessed and verified; then it shows the logits after it. Otherwise the tokens
  // ahead are given up.
  [[nodiscard]] Result<bool> TakeAhead(Token token, ShownLogits* logits);
  StepOutcome DecodePlainly(Token token, ShownLogits* logits);
  // With so many guesses of the text's own, or those of the draft if there are none.
  Status Run(Token token, const Guess& guess, int num_tokens, int num_looked_up,
             ShownLogits* logits);
  void EndRunAt(Position begin);
  // Decodes run_.front() and then guesses, which it adds, on the draft.
  Status Draft(const Guess& guess, int num_tokens);
  // Computes the run, which begins at a position, over all rows.
  Status Verify(Position begin);
  // Computes the logits after token `i` of the run, and mostly those after the next few tokens.
  Status ComputeLogits(size_t i);
  // REQUIRES: they are at hand.
  [[nodiscard]] std::span<const float> LogitsAfter(size_t i) const;
  [[nodiscard]] bool HasLogitsAfter(size_t i) const;
  void CountComparison(bool right);
  void CountVerifying(double seconds, double waited_before);
  // Takes note of how long it took to compute the logits at hand.
  void CountLogits(double seconds);

  const LosslessOptions options_;
  Sequence* const draft_;
  const std::unique_ptr<Sequence> second_;
  Sequence* const store_;  // second_, or draft_ where there is none
  const Follower draft_takes_step_, draft_takes_rows_;
  SignalBuffers store_signals_;  // those of the store's steps that the draft wants to see
  DraftLength length_;
  std::optional<TextLookup> lookup_;  // empty: unwanted, or there was no memory for it
  int looked_up_since_draft_ = 0;     // tokens that became part of the text
  LosslessReport report_;
  double waited_before_batch_ = 0;
  int without_drafts_ = 0;     // steps to come, since a cap had no room for a run
  bool is_looked_up_ = false;  // the last run
  std::vector<Token> run_;
  // The guesses of the last run that were verified. Those before next_ahead_ have been asked for.
  std::vector<Token> ahead_;
  size_t next_ahead_ = 0;
  // The hidden states from which the logits after each token of the run are computed: on the CPU
  // all logits at once would take more memory than a small T0, and those after a wrong guess are
  // never read.
  std::vector<float> outputs_;  // [run, GraphRunner::OutputFloats()]
  std::vector<float> logits_;   // [a few, vocab_size]
  size_t first_logits_ = 0;     // the token of the run that the first of them come after
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_SPECULATOR_H_
