// A prompt on its way into a session, piece by piece: how it is cut into steps, so that other
// sequences may step between two pieces. The pieces are those of a prompt that is read at once, as
// far as the room in T0 is the same.
#ifndef EBB_SESSION_PROMPT_READING_H_
#define EBB_SESSION_PROMPT_READING_H_

#include <cstddef>
#include <limits>
#include <span>

#include "ebb/status.h"
#include "ebb/types.h"
#include "src/sequence/session_body.h"
#include "src/sequence/shown_logits.h"
#include "src/sequence/step.h"

namespace ebb {

class PromptReading {
 public:
  // `tokens` and the body outlive it. Errors, after which nothing has changed: a broken sequence,
  // an empty prompt, unknown tokens, no room for all of it.
  static Result<PromptReading> Begin(SessionBody* body, std::span<const Token> tokens);

  [[nodiscard]] bool done() const { return num_read_ == tokens_.size(); }
  [[nodiscard]] size_t num_read() const { return num_read_; }
  // What the next step takes: at most so many tokens, but never a single one where two are left to
  // read, since it would be multiplied by other kernels than several are. REQUIRES: not done.
  [[nodiscard]] Result<StepEntry> Next(size_t most_tokens = std::numeric_limits<size_t>::max());
  // The step was taken.
  void Took(const StepEntry& entry) { num_read_ += entry.tokens.size(); }
  // All of it was read.
  void End() { body_->sequence().EndPrompt(); }

 private:
  PromptReading(SessionBody* body, std::span<const Token> tokens) : body_(body), tokens_(tokens) {}

  SessionBody* body_;
  std::span<const Token> tokens_;
  size_t num_read_ = 0;
  size_t chunk_begin_ = 0, chunk_end_ = 0;  // of tokens_
};

}  // namespace ebb

#endif  // EBB_SESSION_PROMPT_READING_H_
