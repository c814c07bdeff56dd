// A prompt on its way into a session, piece by piece: how it is cut into steps, so that other
// sequences may step between two pieces. Chunks, after which policies decide, are those of a
// prompt that is read at once.
#ifndef EBB_SESSION_PROMPT_READING_H_
#define EBB_SESSION_PROMPT_READING_H_

#include <cstddef>
#include <limits>
#include <span>

#include "ebb/status.h"
#include "ebb/types.h"
#include "src/lossless/speculator.h"
#include "src/sequence/sequence.h"
#include "src/sequence/step.h"

namespace ebb {

class PromptReading {
 public:
  // `tokens` and the sequences outlive it. `speculator`: of a lossless session, or null. The first
  // `num_taken` tokens are those that the sequence has already, all that it has. REQUIRES:
  // Session::Impl::CheckPrompt().
  PromptReading(Sequence* sequence, Speculator* speculator, std::span<const Token> tokens,
                size_t num_taken = 0);

  [[nodiscard]] bool done() const { return num_read_ == tokens_.size(); }
  [[nodiscard]] size_t num_read() const { return num_read_; }
  // The entry of the next step: at most so many tokens, but never a single one where two are left
  // to read, since it would be multiplied by other kernels than several are; a whole chunk where
  // pieces of it would change bits (PromptChunks::ReadsWholeChunks()). REQUIRES: not done.
  [[nodiscard]] Result<SequenceStep> Next(size_t most_tokens = std::numeric_limits<size_t>::max());
  // The step was taken.
  void Took(const SequenceStep& entry) { num_read_ += entry.tokens.size(); }
  // All of it was read.
  void End() { sequence_->prompt().End(); }

 private:
  [[nodiscard]] Result<SequenceStep> BeginEntry() const;

  Sequence* sequence_;
  Speculator* speculator_;
  const Sequence* store_;  // computes the prompt
  std::span<const Token> tokens_;
  size_t num_read_ = 0;
  size_t chunk_begin_ = 0, chunk_end_ = 0;  // of tokens_
};

}  // namespace ebb

#endif  // EBB_SESSION_PROMPT_READING_H_
