// The sequences of a session: one, or several of which the session shows one (src/lossless).
// Everything that depends on how many there are is here.
#ifndef EBB_SEQUENCE_SESSION_BODY_H_
#define EBB_SEQUENCE_SESSION_BODY_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/lossless.h"
#include "ebb/report.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/sequence/sequence.h"
#include "src/sequence/shown_logits.h"
#include "src/sequence/step.h"

namespace ebb {

class SessionBody {
 public:
  virtual ~SessionBody() = default;

  // The sequence whose policy, signals, ledger and rows the session shows.
  [[nodiscard]] virtual Sequence& sequence() = 0;
  // Why no step can be taken any more.
  [[nodiscard]] virtual Status CheckUnbroken() const = 0;
  // Tokens at the end of sequence() that the caller has not asked for yet.
  [[nodiscard]] virtual size_t num_verified_ahead() const { return 0; }
  // Gives them up.
  virtual void DiscardLookahead() {}

  // Whether policy and tiers have room for a prompt, how many of its tokens a step may take, and
  // what takes them, apart from the tokens.
  [[nodiscard]] virtual Status CheckPrompt(size_t num_tokens) = 0;
  [[nodiscard]] virtual size_t MaxPrefillChunk(size_t num_tokens) = 0;
  // Whether what computes them takes one token at a time now.
  [[nodiscard]] virtual bool ReadsTokenByToken() const = 0;
  [[nodiscard]] virtual Result<SequenceStep> PromptEntry() = 0;

  // As Session::Decode().
  virtual StepOutcome Decode(Token token, const Guess& guess, int most_guesses,
                             ShownLogits* logits) = 0;
  // Returns whether the logits after this token have been computed already. If so, BeginDecode()
  // shows them and cannot fail.
  [[nodiscard]] virtual Result<bool> HasCachedLogits(Token /*token*/) { return false; }
  // Begins a decode step in a batch. Returns its entry without the token, or nothing if the logits
  // after the token were computed already, which are shown now. EndDecode() follows a step that was
  // taken.
  [[nodiscard]] virtual Result<std::optional<SequenceStep>> BeginDecode(Token token,
                                                                        ShownLogits* logits) = 0;
  virtual void EndDecode() {}
  // REQUIRES: nothing is ahead; sequence().CheckTruncateTo().
  virtual void TruncateTo(Position end) = 0;

  // See Session, which checks the arguments.
  [[nodiscard]] virtual Status SetT0Share(double share) = 0;
  [[nodiscard]] virtual Status Park() = 0;
  // Becomes a body that stands where `other` does. REQUIRES: both were made alike, this one has no
  // tokens, and nothing of the other is ahead.
  [[nodiscard]] virtual Status ForkFrom(SessionBody* other) = 0;
  // See Sequence. 0 for a lossless session. REQUIRES: both bodies have the same options.
  [[nodiscard]] virtual size_t ShareablePrefixLength(std::span<const Token> /*prompt*/) {
    return 0;
  }
  [[nodiscard]] virtual Status AdoptPrefix(SessionBody* other, Position end) = 0;

  [[nodiscard]] virtual CacheAccounting accounting() = 0;
  [[nodiscard]] virtual size_t page_bytes(Tier tier) = 0;
  [[nodiscard]] virtual const LosslessReport* lossless_report() const { return nullptr; }
  // The contents of a session file: which rows, in words, and the caches, sequence()'s first.
  [[nodiscard]] virtual std::string KeptRows() const = 0;
  [[nodiscard]] virtual std::vector<SequenceCache*> caches() = 0;
  // The caches and sequence()'s tokens came out of a file. Corrupt where they do not fit.
  [[nodiscard]] virtual Status Resume() { return OkStatus(); }
};

// A body with one sequence.
[[nodiscard]] std::unique_ptr<SessionBody> MakePlainBody(std::unique_ptr<Sequence> sequence);

}  // namespace ebb

#endif  // EBB_SEQUENCE_SESSION_BODY_H_
