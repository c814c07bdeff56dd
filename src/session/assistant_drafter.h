// AssistantDrafter guesses by an assistant of a Gemma 4 model: a small model without a cache, whose
// attentions read the rows that the guessing session holds in memory, in every tier.
//
// The assistant reads a token together with the model's hidden row of the token before it, from
// behind the last layer; a guess, with its own row. All guesses have the position of the first one.
#ifndef EBB_SESSION_ASSISTANT_DRAFTER_H_
#define EBB_SESSION_ASSISTANT_DRAFTER_H_

#include <cstddef>
#include <span>
#include <vector>

#include "src/lossless/drafter.h"
#include "src/sequence/sequence.h"
#include "src/session/head_drafter.h"
#include "src/step/graph_runner.h"
#include "src/step/work/signal_buffers.h"

namespace ebb {

class AssistantDrafter : public Drafter {
 public:
  // Makes a drafter. REQUIRES: `runner` runs the steps of an assistant for the model of `sequence`;
  // the steps of `sequence` have kHeadRows; its cache has no T1 in a file. All outlive this.
  AssistantDrafter(GraphRunner* runner, Sequence* sequence);

  [[nodiscard]] Speculation source() const override { return Speculation::kAssistant; }
  void Follow(std::span<const Token> text, const StepSignals& step) override;
  void Rest() override { rows_.Clear(); }
  void ForkFrom(const Drafter& other) override {
    rows_ = static_cast<const AssistantDrafter&>(other).rows_;
  }
  void TruncateTo(Position end) override { rows_.TruncateTo(end); }
  std::span<const float> Begin(std::span<const Token> text, Token token) override;
  std::span<const float> Append(Token guess) override { return Step(guess); }
  [[nodiscard]] size_t memory_bytes() const override { return rows_.memory_bytes(); }

 private:
  // Computes the logits after `token`, read with last_, and sets last_ to the assistant's row;
  // nothing: there is no memory.
  std::span<const float> Step(Token token);

  GraphRunner& runner_;
  Sequence& sequence_;
  HeadRows rows_;  // of the model
  SignalBuffers signals_;
  Position position_ = 0;    // of the guesses
  std::vector<float> last_;  // the row that is read with the next token
};

}  // namespace ebb

#endif  // EBB_SESSION_ASSISTANT_DRAFTER_H_
