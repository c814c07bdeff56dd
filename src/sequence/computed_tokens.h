// ComputedTokens holds tokens that a step computed before the caller has chosen them: the guesses
// of speculative decoding, with their rows, logits and signals.
//
// A sequence takes none of them in that step. When the caller chooses the next one, Take() appends
// it as a step of this token alone would, without computing anything, so that policies, windows,
// the ledger and the tiers never see a guess that was wrong. The bits are those of single steps as
// long as the rows that later tokens attended to stay as they are: if the policy evicts, moves or
// compresses rows, the tokens after it are dropped.
#ifndef EBB_SEQUENCE_COMPUTED_TOKENS_H_
#define EBB_SEQUENCE_COMPUTED_TOKENS_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/types.h"
#include "src/sequence/sequence.h"
#include "src/step/work/signal_buffers.h"
#include "src/step/work/step_work.h"

namespace ebb {

class StepResult;

class ComputedTokens {
 public:
  // Returns the reason why steps of a sequence of this core, policy and options cannot compute
  // tokens ahead with the bits of single steps; empty: they can.
  [[nodiscard]] static std::string Obstacle(const EngineCore& core, const Policy& policy,
                                            const SessionOptions& options);
  // Returns how many tokens a step of the sequence may have now, from 1 to `most`: as many as its
  // context and T0 have room for, and none after a token after which the policy decides.
  [[nodiscard]] static int MostTokens(const Sequence& sequence, int most);

  [[nodiscard]] bool empty() const { return first_ == tokens_.size(); }
  [[nodiscard]] size_t size() const { return tokens_.size() - first_; }
  // Returns the token that Take() appends next. REQUIRES: !empty().
  [[nodiscard]] Token next() const { return tokens_[first_].token; }
  void Clear();
  // Appends next() to the sequence. If it was taken, logits() are those after it. REQUIRES:
  // !empty(); nothing but Take() has changed the sequence since the tokens were computed.
  StepOutcome Take(Sequence* sequence);
  // Returns the logits [vocab_size] after the token that Take() appended last.
  [[nodiscard]] std::span<const float> logits() const { return taken_.logits; }
  [[nodiscard]] size_t memory_bytes() const;

  // Takes over the tokens after the first from a step that was computed, and leaves the sequence
  // with the first. Keeps none if memory does not suffice. Called by RunStep() (step.h).
  void TakeFrom(const SequenceStep& entry, const StepResult& result, size_t index);

 private:
  struct Computed {
    Token token = 0;
    std::vector<std::byte> rows;  // [streams, RowBytes()]
    SignalBuffers::TokenSignals signals;
    std::vector<float> logits;
  };

  // Appends the row of taken_ to the sequence, and shows its signals to the policy. After an error,
  // the sequence is as before.
  Status Append(Sequence* sequence);
  void Record(const SequenceStep& entry, const StepResult& result, size_t index);

  std::vector<Computed> tokens_;
  size_t first_ = 0;  // in tokens_: the next to be taken
  Computed taken_;
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_COMPUTED_TOKENS_H_
