// Drafter is a source of guesses that computes logits for them: a smaller model that reads the same
// text (speculative decoding with a draft model), or a head, which reads the model's hidden rows.
#ifndef EBB_LOSSLESS_DRAFTER_H_
#define EBB_LOSSLESS_DRAFTER_H_

#include <cstddef>
#include <span>

#include "ebb/lossless.h"
#include "ebb/signals.h"
#include "ebb/types.h"

namespace ebb {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Returns one of kDraftSources.
  [[nodiscard]] virtual Speculation source() const = 0;
  // Called after steps of the guessing session, with all of its text and the step's signals. May
  // throw std::bad_alloc.
  virtual void Follow(std::span<const Token> /*text*/, const StepSignals& /*step*/) {}
  // Forgets what it has read and frees that memory, since no guess will be wanted for a while.
  // Later calls start again from there.
  virtual void Rest() = 0;
  // Takes over what `other`, of the same source, has read for the session from which this one was
  // forked. May throw std::bad_alloc, as may Begin() and Append().
  virtual void ForkFrom(const Drafter& /*other*/) {}
  // Called after a roll-back of the guessing session to `end` tokens.
  virtual void TruncateTo(Position /*end*/) {}
  // Returns whether Begin() would only read a part of the text.
  [[nodiscard]] virtual bool IsBehind(std::span<const Token> /*text*/) const { return false; }
  // Reads `text` and `token`, as far as it has not read them. Returns its logits [vocab_size of the
  // guessing session's model] after them; nothing if it was behind, or cannot guess.
  virtual std::span<const float> Begin(std::span<const Token> text, Token token) = 0;
  // Appends a guess. Returns the logits after it; nothing if it cannot guess on.
  virtual std::span<const float> Append(Token guess) = 0;
  // Returns the bytes of memory of its cache.
  [[nodiscard]] virtual size_t memory_bytes() const = 0;
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_DRAFTER_H_
