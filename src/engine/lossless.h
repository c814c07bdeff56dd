// The insides of a lossless session: beside the sequence that drafts, the session's own, a second
// one, the store, holds every row in full precision and verifies.
//
// A run: the token that was chosen, then guesses, are decoded on the drafting sequence, one step
// each; one step of the store takes them all, and writes their rows over the drafted ones. Then as
// long as the tokens that the caller chooses are those guessed, Decode() computes but the logits
// behind them, a few tokens' at a time; at the first other one both sequences roll back to it.
//
// Guesses may also come from the text itself (text_lookup.h): then the store computes them at once,
// and the drafting sequence takes their rows and signals.
//
// Where a step is not drafted, and in prompts, the store computes and the drafting sequence takes
// its rows and signals (Part::draft in engine_impl.h).
#ifndef EBB_ENGINE_LOSSLESS_H_
#define EBB_ENGINE_LOSSLESS_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "ebb/lossless.h"
#include "src/engine/draft_length.h"
#include "src/engine/signal_buffers.h"
#include "src/engine/text_lookup.h"

namespace ebb {

// What the drafting sequence could not do, as its user is to read it.
[[nodiscard]] Status OfDraft(const Status& status);

class Lossless {
 public:
  // The policy of the drafting sequence for what the user said of a whole session: what the
  // hierarchy would have in T1 and T3 is not drafted with.
  static PolicySpec DraftSpec(PolicySpec spec);
  // For the session that `draft` is of. Errors: options out of range, a policy that turns keys.
  static Result<std::unique_ptr<Lossless>> Create(const LosslessOptions& options,
                                                  Session::Impl* draft);
  ~Lossless();

  // As Session::Decode().
  Status Decode(Token token, const Guess& guess, int most_guesses);
  // Both caches and the drafting sequence's tokens came out of a file. Corrupt when the store has
  // not a row for every token.
  Status Resume();
  // Gives up what was verified and not yet asked for: both sequences end where the caller is.
  void DropAhead();
  // REQUIRES: nothing is ahead.
  void TruncateTo(Position end);
  [[nodiscard]] size_t num_ahead() const { return ahead_.size() - next_ahead_; }
  [[nodiscard]] Session::Impl& store() { return *store_; }
  [[nodiscard]] const Session::Impl& store() const { return *store_; }
  // What of the store's steps the drafting sequence wants to see.
  [[nodiscard]] SignalBuffers* store_signals() { return &store_signals_; }
  [[nodiscard]] const LosslessReport& report() const { return report_; }
  // Of the text that is looked up in.
  [[nodiscard]] size_t lookup_bytes() const {
    return lookup_.has_value() ? lookup_->memory_bytes() : 0;
  }

 private:
  Lossless(const LosslessOptions& options, Session::Impl* draft,
           std::unique_ptr<Session::Impl> store);
  // How many tokens a run may have: up to what the contexts hold.
  [[nodiscard]] int Limit(int most_guesses) const;
  // The text up to here, this token included, is what is looked up in.
  void SeeText(Token token);
  void ForgetText(Position end);
  // How many guesses of the text's own are worth a run.
  [[nodiscard]] int NumLookedUp(int limit) const;
  Status DecodePlainly(Token token);
  // With so many guesses of the text's own, or those of the draft if there are none.
  Status Run(Token token, const Guess& guess, int num_tokens, int num_looked_up);
  void EndRunAt(Position begin);
  // Decodes run_.front() and then guesses, which it adds, on the drafting sequence.
  Status Draft(const Guess& guess, int num_tokens);
  Status Verify();
  // Those after token `i` of the run, and mostly after a few behind it.
  Status ComputeLogits(size_t i);
  // REQUIRES: they are at hand.
  [[nodiscard]] std::span<const float> LogitsAfter(size_t i) const;
  [[nodiscard]] bool HasLogitsAfter(size_t i) const;
  void CountComparison(bool right);
  void CountVerifying(double seconds, double waited_before);
  // Of computing those at hand.
  void CountLogits(double seconds);
  [[nodiscard]] double Now() const;

  const LosslessOptions options_;
  Session::Impl* const draft_;
  const std::unique_ptr<Session::Impl> store_;
  SignalBuffers store_signals_;
  DraftLength length_;
  std::optional<TextLookup> lookup_;  // empty: unwanted, or there was no memory for it
  int looked_up_since_draft_ = 0;     // tokens that became part of the text
  LosslessReport report_;
  int without_drafts_ = 0;     // steps to come, since a cap had no room for a run
  bool is_looked_up_ = false;  // the last run
  std::vector<Token> run_;
  // The guesses of the last run that were verified. Those before next_ahead_ have been asked for.
  std::vector<Token> ahead_;
  size_t next_ahead_ = 0;
  // What logits after each token of the run are computed from. All of them at once would take much
  // room beside a small T0, and those behind a wrong guess nobody asks for.
  std::vector<float> outputs_;  // [run, GraphRunner::OutputFloats()]
  std::vector<float> logits_;   // [a few, vocab_size]
  size_t first_logits_ = 0;     // the token of the run that the first of them come after
};

}  // namespace ebb

#endif  // EBB_ENGINE_LOSSLESS_H_
